// What is known of the selected sum unit: its numbers, its columns, its children with their weights.
import { h } from "./dom.js";
import { count, percent, short } from "./format.js";

const SHOWN_COLUMNS = 12;
const SHOWN_CHILDREN = 10;

export class Details {
  constructor(explorer) {
    this.explorer = explorer;
    this.body = h("div", {}, h("p", { class: "muted" }, "Select a node in the drawing, in the list of reversals or in the table at the end."));
    this.element = h("div", { class: "card", id: "details", tabIndex: -1 }, h("h3", {}, "Selected node"), this.body);
  }

  focus() {
    this.element.focus();
  }

  show(unit) {
    const { units } = this.explorer, node = units.nodeOf[unit], info = units.nodes[node];
    const value = (key) => units.quantities.get(key).of(unit);
    const facts = [
      ["F², use", short(value("use"))], ["t, own sharpness", short(value("local"))], ["T, contribution", short(value("total"))],
      ["share of the trace", percent(value("total") / units.trace)], ["depth", info.depth === null ? "–" : short(info.depth)],
      ["edges", `${count(value("edges"))}${value("dead") ? `, ${count(value("dead"))} near zero` : ""}`],
    ];
    this.body.replaceChildren(
      h("p", { class: "name" }, h("strong", {}, units.label(unit)), " ", h("code", {}, units.technical(unit))),
      h("dl", { class: "facts" }, facts.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)))),
      ...[this.columns(node), this.parent(info), this.children(unit)].filter(Boolean));
  }

  columns(node) {
    const { units } = this.explorer, scope = units.scope(node);
    const text = (list) => list.map((c) => units.columns[c].name).join(", ");
    const line = h("p", {}, h("span", { class: "muted" }, `${count(scope.length)} ${scope.length === 1 ? "column" : "columns"} below: `));
    const names = h("span", {}, text(scope.slice(0, SHOWN_COLUMNS)));
    line.append(names);
    if (scope.length > SHOWN_COLUMNS) {
      const more = h("button", { type: "button", class: "link", onclick: () => { names.textContent = text(scope); more.remove(); } }, "show all");
      line.append(" … ", more);
    }
    return line;
  }

  parent(info) {
    if (info.parent < 0) return null;
    const { units } = this.explorer;
    return h("p", {}, h("span", { class: "muted" }, "Above it: "), this.link(units.order[info.parent][0], units.nodes[info.parent].label));
  }

  link(unit, text) {
    return h("button", { type: "button", class: "link", onclick: () => this.explorer.choose(unit, { zoomed: true }) }, text ?? this.explorer.units.label(unit));
  }

  children(unit) {
    const { units } = this.explorer, found = units.children(unit);
    if (!found) {
      return h("p", { class: "muted" }, "This page only has the weights of the nodes that add most to the trace; this node is not one of them. ReportOptions(max_weights=...) keeps more.");
    }
    const table = h("tbody");
    const add = (rows) => table.append(...rows.map(({ weight, parts }) => h("tr", {},
      h("td", { class: "number" }, h("span", { class: "weight-bar", style: { width: `${Math.max(100 * weight, 0.5)}%` } }), percent(weight)),
      h("td", {}, parts.map((part, i) => [i ? " × " : "", this.part(part)])))));
    add(found.slice(0, SHOWN_CHILDREN));
    const rest = found.slice(SHOWN_CHILDREN);
    const more = rest.length ? h("button", { type: "button", class: "link", onclick: () => { add(rest); more.remove(); } }, `show ${count(rest.length)} more`) : null;
    const of = units.childCount(unit);
    return h("div", {}, h("p", { class: "muted" }, found.length < of ? `The ${found.length} heaviest of ${count(of)} children:` : `${count(of)} children, the heaviest first:`),
      h("table", { class: "children" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "weight"), h("th", { scope: "col" }, "child (Σ: the sum above a column)"))), table), more);
  }

  part({ kind, index, unit }) {
    const { units } = this.explorer;
    if (kind === "column") return `${units.columns[index].name} (${unit})`;
    const { own, label } = units.nodes[index];
    const made = this.link(units.starts[index] + unit, `${own.length === 1 ? `Σ ${units.columns[own[0]].name}` : label} (${unit})`);
    made.title = label;
    return made;
  }
}
