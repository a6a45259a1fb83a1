// All sum units as a table that can be sorted and filtered, page by page.
import { byId, h, section, whenNear } from "./dom.js";
import { aligned, count, percent, short } from "./format.js";

const PAGE = 20;

export function nodesSection(explorer) {
  const { units } = explorer;
  const table = new NodeTable(explorer);
  const host = section("nodes", "All sum nodes", `${count(units.length)} units of ${count(units.nodes.length)} nodes. Click a heading to sort, a row to find it in the drawing.`, table.element);
  whenNear(host, () => table.refresh());
}

class NodeTable {
  constructor(explorer) {
    this.explorer = explorer;
    const { units } = explorer, of = (key) => units.quantities.get(key).of;
    this.heads = [
      { key: "name", title: "node", text: (u) => units.label(u) },
      { key: "scope", title: "columns below", of: of("scope"), text: (u) => count(of("scope")(u)) },
      { key: "depth", title: "depth", of: of("depth"), text: (u) => short(of("depth")(u)) },
      { key: "use", title: "F²", of: of("use"), text: (u) => aligned(of("use")(u)) },
      { key: "local", title: "t", of: of("local"), text: (u) => aligned(of("local")(u)) },
      { key: "total", title: "T", of: of("total"), text: (u) => aligned(of("total")(u)) },
      { key: "share", title: "of the trace", of: of("total"), text: (u) => percent(of("total")(u) / units.trace) },
      { key: "dead", title: "edges near zero", of: of("dead"), text: (u) => count(of("dead")(u)) },
    ];
    Object.assign(this, { sort: "total", down: true, text: "", page: 0 });
    this.head = h("tr");
    this.body = h("tbody");
    this.status = h("span", { class: "muted", role: "status" });
    const filter = h("input", { type: "search", placeholder: "Filter by node or column", "aria-label": "Filter nodes by name or column", oninput: (event) => { this.text = event.target.value.trim().toLowerCase(); this.page = 0; this.refresh(); } });
    const turn = (text, by) => h("button", { type: "button", onclick: () => { this.page += by; this.fill(); } }, text);
    [this.back, this.next] = [turn("Previous", -1), turn("Next", 1)];
    this.element = h("div", {}, h("div", { class: "toolbar" }, filter, this.status, h("div", { class: "group" }, this.back, this.next)),
      h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Table of sum nodes" }, h("table", { class: "nodes" }, h("thead", {}, this.head), this.body)));
  }

  refresh() {
    this.head.replaceChildren(...this.heads.map(({ key, title }) => {
      const now = this.sort === key;
      return h("th", { scope: "col", "aria-sort": now ? (this.down ? "descending" : "ascending") : "none" },
        h("button", { type: "button", onclick: () => this.sortBy(key) }, title, h("span", { "aria-hidden": "true" }, now ? (this.down ? " ↓" : " ↑") : "")));
    }));
    const { units } = this.explorer;
    const wanted = units.nodes.map((node, i) => !this.text || `${node.label} ${node.name}`.toLowerCase().includes(this.text) || node.own.some((c) => units.columns[c].name.toLowerCase().includes(this.text)) || (this.text === "root" && i === 0));
    const found = [];
    for (let u = 0; u < units.length; u++) if (wanted[units.nodeOf[u]]) found.push(u);
    const head = this.heads.find(({ key }) => key === this.sort), sign = this.down ? -1 : 1;
    if (head.of) found.sort((a, b) => sign * (head.of(a) - head.of(b)) || a - b);
    else found.sort((a, b) => sign * (a - b));
    this.found = found;
    this.fill();
  }

  sortBy(key) {
    this.down = this.sort === key ? !this.down : key !== "name";
    Object.assign(this, { sort: key, page: 0 });
    const at = this.heads.findIndex((head) => head.key === key);
    this.refresh();
    this.head.querySelectorAll("button")[at].focus();
  }

  fill() {
    const last = Math.max(Math.ceil(this.found.length / PAGE) - 1, 0);
    this.page = Math.min(Math.max(this.page, 0), last);
    const start = this.page * PAGE;
    this.body.replaceChildren(...this.found.slice(start, start + PAGE).map((unit) => h("tr", {}, this.heads.map(({ text, of }, i) =>
      h("td", { class: of ? "number" : "" }, i ? text(unit) : h("button", { type: "button", class: "link", onclick: () => this.go(unit) }, text(unit)))))));
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page === last;
    this.status.textContent = this.found.length ? `${count(start + 1)} to ${count(Math.min(start + PAGE, this.found.length))} of ${count(this.found.length)}` : "Nothing found.";
  }

  go(unit) {
    this.explorer.choose(unit, { zoomed: true });
    byId("circuit").scrollIntoView();
  }
}
