// The circuit explorer: three trees and a plane that share zoom, selection and keyboard.
import { quadtree } from "d3-quadtree";
import { select } from "d3-selection";
import { zoom, zoomIdentity } from "d3-zoom";
import { announce, byId, h, hideTip, onWidth, section, showTip, whenNear } from "./dom.js";
import { Details } from "./details.js";
import { count, percent, short, shorten } from "./format.js";
import { extent, place } from "./layout.js";
import { Plane } from "./plane.js";
import { isPrinting, onTheme } from "./theme.js";
import { TreePanel } from "./treepanel.js";

const LEAD = "Each block is a sum node, each cell one of its units. T = F² t: what a unit adds to the sharpness is how much it is used, times how sharp its own mixture is. Hover or tap for numbers, click to list children.";
const MAX_ZOOM = 60;

export class Explorer {
  constructor(units) {
    this.units = units;
    this.selected = -1;
    this.marked = [];
    this.transform = { k: 1, x: 0, y: 0 }; // shifts in panel widths and heights
    this.panels = ["use", "local", "total"].map((key, i) => new TreePanel(this, key, "abc"[i]));
    this.plane = new Plane(this, "d");
    this.details = new Details(this);
    this.grid = h("div", { class: "panels" }, [...this.panels, this.plane].map((panel) => panel.element));
    const host = section("circuit", "Where the sharpness sits", LEAD, this.controls(), this.grid,
      h("p", { class: "hint" }, "Click a panel, then scroll or pinch to zoom, drag to move. Keys: arrows, [ and ], +, −, 0, Enter."),
      h("div", { class: "columns-2" }, this.details.element, this.reversalList()));
    whenNear(host, () => this.start());
  }

  start() {
    this.points = place(this.units.nodes);
    this.extent = extent(this.points);
    this.quadtree = quadtree(this.points.map((_, i) => i), (i) => this.points[i].x, (i) => this.points[i].y);
    for (const panel of this.panels) this.attach(panel);
    this.attachPointer(this.plane);
    onWidth(this.grid, () => this.resize());
    this.select(largest(this.units.explorer.total));
    onTheme(() => {
      this.plane.dots = null;
      this.draw();
    });
  }

  resize() {
    for (const panel of [...this.panels, this.plane]) panel.resize();
    this.draw();
  }

  draw() {
    if (!this.points) return;
    if (isPrinting()) this.paint(); // paper does not wait for the next frame
    else this.waiting ??= requestAnimationFrame(() => this.paint());
  }

  paint() {
    this.waiting = null;
    for (const panel of [...this.panels, this.plane]) panel.draw();
  }

  attach(panel) {
    this.attachPointer(panel);
    panel.zoom = zoom().scaleExtent([1, MAX_ZOOM])
      .extent(() => [[0, 0], [panel.width, panel.height]])
      .translateExtent([[-200, -200], [4000, 4000]])
      .filter((event) => this.mayZoom(event, panel))
      .on("zoom", ({ transform, sourceEvent }) => {
        if (!sourceEvent) return;
        this.transform = { k: transform.k, x: transform.x / panel.width, y: transform.y / panel.height };
        this.spread(panel);
      });
    select(panel.canvas).call(panel.zoom).on("dblclick.zoom", null);
    panel.canvas.addEventListener("keydown", (event) => this.key(event, panel));
  }

  // A page must scroll over its pictures: the wheel and one finger act on a panel that has the focus only.
  mayZoom(event, panel) {
    const focused = document.activeElement === panel.canvas;
    if (event.type === "wheel") return focused || event.ctrlKey || event.metaKey;
    if (event.type === "touchstart") return focused || event.touches.length > 1;
    return !event.button;
  }

  spread(from) {
    for (const panel of this.panels) {
      if (panel === from || !panel.width) continue;
      const { k, x, y } = this.transform;
      panel.canvas.__zoom = zoomIdentity.translate(x * panel.width, y * panel.height).scale(k);
    }
    this.draw();
  }

  zoomTo(k, point) {
    const panel = this.panels[0];
    const { scale, dx, dy } = panel.base();
    const [px, py] = point ? [point.x * scale + dx, point.y * scale + dy] : [panel.width / 2, panel.height / 2];
    const size = Math.min(Math.max(k, 1), MAX_ZOOM);
    this.transform = size === 1 ? { k: 1, x: 0, y: 0 } : { k: size, x: 0.5 - (size * px) / panel.width, y: 0.5 - (size * py) / panel.height };
    this.spread(null);
  }

  zoomBy(factor) {
    const panel = this.panels[0];
    const [x, y] = panel.toWorld([panel.width / 2, panel.height / 2]);
    this.zoomTo(this.transform.k * factor, { x, y });
  }

  attachPointer(panel) {
    const at = (event) => {
      const box = panel.canvas.getBoundingClientRect();
      return panel.unitAt([event.clientX - box.left, event.clientY - box.top]);
    };
    panel.canvas.addEventListener("pointermove", (event) => {
      const { unit, whole } = at(event);
      panel.canvas.style.cursor = unit >= 0 ? "pointer" : "";
      if (unit >= 0) showTip(event, ...this.tip(unit, whole));
      else hideTip();
    });
    panel.canvas.addEventListener("pointerleave", hideTip);
    panel.canvas.addEventListener("click", (event) => {
      panel.canvas.focus({ preventScroll: true });
      const { unit } = at(event);
      if (unit >= 0) this.choose(unit);
    });
  }

  tip(unit, whole) {
    const { units } = this, node = units.nodeOf[unit], info = units.nodes[node];
    const names = units.scope(node).slice(0, 4).map((c) => shorten(units.columns[c].name, 22));
    const more = info.scope_size > names.length ? ` and ${count(info.scope_size - names.length)} more` : "";
    const value = (key) => (whole ? units.mean(key, node) : units.quantities.get(key).of(unit));
    const total = whole ? value("total") * info.units : value("total");
    return [
      h("strong", {}, whole ? `${info.label}, ${count(info.units)} units` : units.label(unit)),
      h("div", { class: "muted" }, `${names.join(", ")}${more}`),
      h("dl", {}, [
        [whole ? "mean F²" : "F²", short(value("use"))], [whole ? "mean t" : "t", short(value("local"))],
        [whole ? "sum of T" : "T", short(total)], ["of the trace", percent(total / units.trace)],
        ["depth", info.depth === null ? "–" : short(info.depth)],
      ].map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
    ];
  }

  select(unit, marked = []) {
    this.selected = unit;
    this.marked = marked;
    this.details.show(unit);
    this.draw();
  }

  choose(unit, { marked = [], zoomed = false } = {}) {
    if (zoomed && this.points) {
      this.zoomTo(Math.max(this.transform.k, Math.max(this.extent.width, this.extent.height) / 9), this.points[this.units.nodeOf[unit]]);
    }
    this.select(unit, marked);
    const { total } = this.units.explorer;
    announce(`${this.units.label(unit)}, ${percent(total[unit] / this.units.trace)} of the trace`);
  }

  key(event, panel) {
    const { nodes, nodeOf, order } = this.units;
    const node = this.selected >= 0 ? nodeOf[this.selected] : 0;
    const siblings = nodes[node].parent >= 0 ? nodes[nodes[node].parent].below.filter((b) => nodes[b].parent === nodes[node].parent) : [node];
    const turn = (by) => siblings[(siblings.indexOf(node) + by + siblings.length) % siblings.length];
    const unitTurn = (by) => order[node][(order[node].indexOf(this.selected) + by + order[node].length) % order[node].length];
    const first = (n) => order[n][0];
    const moves = {
      ArrowUp: () => first(nodes[node].parent >= 0 ? nodes[node].parent : node),
      ArrowDown: () => first(nodes[node].below.find((b) => nodes[b].parent === node) ?? node),
      ArrowLeft: () => first(turn(-1)),
      ArrowRight: () => first(turn(1)),
      "[": () => unitTurn(-1),
      "]": () => unitTurn(1),
    };
    if (event.key in moves) this.choose(this.selected < 0 ? first(0) : moves[event.key]());
    else if (event.key === "+" || event.key === "=") this.zoomBy(1.5);
    else if (event.key === "-") this.zoomBy(1 / 1.5);
    else if (event.key === "0") this.zoomTo(1);
    else if (event.key === "Enter" && this.selected >= 0) this.details.focus();
    else if (event.key === "Escape") panel.canvas.blur();
    else return;
    event.preventDefault();
  }

  enlargeButton(element) {
    const button = h("button", { type: "button", class: "enlarge", "aria-pressed": "false", title: "Enlarge this panel", onclick: () => {
      const large = this.grid.querySelector(".large");
      large?.classList.remove("large");
      large?.querySelector(".enlarge").setAttribute("aria-pressed", "false");
      if (large !== element()) {
        element().classList.add("large");
        button.setAttribute("aria-pressed", "true");
      }
      this.resize();
    } }, "Enlarge");
    return button;
  }

  controls() {
    const { columns, nodes } = this.units;
    const list = h("datalist", { id: "column-names" }, columns.map((column) => h("option", { value: column.name })));
    const find = () => {
      const text = input.value.trim().toLowerCase();
      if (!text) return;
      const names = columns.map((column) => column.name.toLowerCase());
      const column = names.includes(text) ? names.indexOf(text) : names.findIndex((name) => name.includes(text));
      const node = nodes.findLastIndex((info) => info.own.includes(column));
      result.textContent = column < 0 ? "No column has this in its name." : node < 0 ? "This column has no sum above it." : `Selected: ${nodes[node].label}.`;
      if (node >= 0) this.choose(this.units.order[node][0], { zoomed: true });
    };
    const input = h("input", { type: "search", id: "find-column", list: "column-names", placeholder: "Find a column", autocomplete: "off", onchange: find });
    const result = h("span", { class: "muted", role: "status" });
    const form = h("form", { class: "inline", role: "search", onsubmit: (event) => { event.preventDefault(); find(); } },
      h("label", { class: "sr", for: "find-column" }, "Find a column by name"), input, list, h("button", { type: "submit" }, "Find"), result);
    const button = (text, name, act) => h("button", { type: "button", "aria-label": name, title: name, onclick: act }, text);
    return h("div", { class: "toolbar" }, form, h("div", { class: "group" },
      button("+", "Zoom in", () => this.zoomBy(1.6)), button("−", "Zoom out", () => this.zoomBy(1 / 1.6)), button("Reset", "Show the whole circuit", () => this.zoomTo(1))));
  }

  reversalList() {
    const { reversals, reversed_share: share } = this.units.explorer;
    const items = reversals.map((pair) => {
      const used = pair.usage_ratio === null ? "which is not used at all" : `which is used ${short(pair.usage_ratio)} times less`;
      return h("li", {}, h("button", { type: "button", class: "row", onclick: () => {
        this.choose(pair.used, { marked: [pair.used, pair.sharper] });
        byId("circuit").querySelector(".panels").scrollIntoView({ block: "nearest" });
      } }, h("strong", {}, this.units.label(pair.used)), " adds more than ", h("strong", {}, this.units.label(pair.sharper)), `, which is ${short(pair.local_ratio)} times sharper but ${used.replace("which is ", "")}.`));
    });
    const lead = `In ${percent(share)} of all pairs of nodes, the sharper node adds less to the trace. The most extreme pairs:`;
    return h("div", { class: "card", id: "reversals" }, h("h3", {}, "Ten most extreme reversals"),
      items.length ? [h("p", { class: "muted" }, lead), h("ol", { class: "list" }, items)] : h("p", { class: "muted" }, "There are none: sharper nodes always add more to the trace."));
  }
}

function largest(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}
