// One panel of the explorer: the circuit's sums as blocks of cells, one for each unit, coloured by a quantity.
import { scaleLinear } from "d3-scale";
import { fitCanvas, h } from "./dom.js";
import { power, short } from "./format.js";
import { colour } from "./theme.js";
import { shade } from "./units.js";

const BLOCK = 0.82;
const SMALLEST_CELL = 2.2;

export class TreePanel {
  constructor(explorer, key, letter) {
    this.explorer = explorer;
    this.key = key;
    const { quantities } = explorer.units;
    const options = [...quantities.values()].map((q) => h("option", { value: q.key, selected: q.key === key }, q.name));
    this.select = h("select", { "aria-label": `Colour of panel ${letter}`, onchange: () => this.show(this.select.value) }, options);
    this.canvas = h("canvas", { class: "tree", tabIndex: 0, role: "img" });
    this.legend = h("div", { class: "legend" });
    this.element = h("figure", { class: "panel" },
      h("figcaption", {}, h("span", { class: "letter" }, letter), this.select, explorer.enlargeButton(() => this.element)),
      h("div", { class: "stage" }, this.canvas), this.legend);
    this.describe();
  }

  show(key) {
    this.key = key;
    this.describe();
    this.draw();
  }

  describe() {
    const quantity = this.explorer.units.quantities.get(this.key);
    this.canvas.setAttribute("aria-label",
      `Circuit coloured by ${quantity.name}: ${quantity.long}. Arrow keys move between sums, square brackets between units, plus and minus zoom, Enter lists children.`);
  }

  resize() {
    Object.assign(this, fitCanvas(this.canvas, this.explorer.extent));
  }

  // World coordinates -> pixels of the panel: the whole drawing fills it at zoom 1.
  base() {
    const { x, y, width, height } = this.explorer.extent;
    const scale = Math.min(this.width / width, this.height / height, 110);
    return { scale, dx: this.width / 2 - x * scale, dy: this.height / 2 - y * scale };
  }

  toScreen({ x, y }) {
    const { k, x: tx, y: ty } = this.explorer.transform;
    const { scale, dx, dy } = this.base();
    return [k * (x * scale + dx) + tx * this.width, k * (y * scale + dy) + ty * this.height];
  }

  toWorld([px, py]) {
    const { k, x: tx, y: ty } = this.explorer.transform;
    const { scale, dx, dy } = this.base();
    return [((px - tx * this.width) / k - dx) / scale, ((py - ty * this.height) / k - dy) / scale];
  }

  get unitSize() {
    return this.base().scale * this.explorer.transform.k;
  }

  // The unit at a pixel, or the first unit of a node that is drawn as one disc; -1 if there is none.
  unitAt(pixel) {
    const { points, quadtree, units } = this.explorer;
    const [x, y] = this.toWorld(pixel);
    const node = quadtree.find(x, y, 0.7);
    if (node === undefined) return { unit: -1, whole: false };
    const half = BLOCK / 2;
    const left = x - points[node].x + half, top = y - points[node].y + half;
    if (left < 0 || top < 0 || left >= BLOCK || top >= BLOCK) return { unit: -1, whole: false };
    const order = units.order[node], side = Math.ceil(Math.sqrt(order.length));
    if (!this.detailed(side)) return { unit: order[0], whole: order.length > 1 };
    const at = Math.floor((top / BLOCK) * side) * side + Math.floor((left / BLOCK) * side);
    return { unit: order[at] ?? -1, whole: false };
  }

  detailed(side) {
    return (BLOCK * this.unitSize) / side >= SMALLEST_CELL;
  }

  draw() {
    if (!this.width) return;
    const { units, points, selected, marked } = this.explorer;
    const context = this.canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    const size = this.unitSize, scale = units.scale(this.key), quantity = units.quantities.get(this.key);
    const places = points.map((p) => this.toScreen(p));
    this.drawEdges(context, places);
    const zero = colour("faint");
    places.forEach(([x, y], node) => {
      if (x < -size || y < -size || x > this.width + size || y > this.height + size) return;
      const order = units.order[node], side = Math.ceil(Math.sqrt(order.length)), block = BLOCK * size;
      const paint = (value) => (value > 0 || scale.linear ? scale.colour(value) : zero);
      if (!this.detailed(side)) {
        context.fillStyle = paint(units.mean(this.key, node));
        context.beginPath();
        context.arc(x, y, Math.max(block / 2, 1.2), 0, 2 * Math.PI);
        context.fill();
        return;
      }
      const cell = block / side, gap = cell > 9 ? 1 : 0;
      order.forEach((unit, at) => {
        context.fillStyle = paint(quantity.of(unit));
        const left = x - block / 2 + (at % side) * cell, top = y - block / 2 + Math.floor(at / side) * cell;
        context.fillRect(left, top, Math.max(cell - gap, 1), Math.max(cell - gap, 1));
      });
      this.nameNode(context, node, x, y, block);
    });
    for (const unit of marked) this.ring(context, places, unit, colour("accent-2"));
    if (selected >= 0) this.ring(context, places, selected, colour("accent"));
    this.drawLegend(scale);
  }

  drawEdges(context, places) {
    context.strokeStyle = colour("edge");
    context.lineWidth = Math.min(Math.max(this.unitSize / 60, 0.8), 1.5);
    context.beginPath();
    this.explorer.units.nodes.forEach((node, i) => {
      if (node.parent < 0) return;
      context.moveTo(...places[node.parent]);
      context.lineTo(...places[i]);
    });
    context.stroke();
  }

  nameNode(context, node, x, y, block) {
    const { own } = this.explorer.units.nodes[node];
    if (block < 46 || own.length === 0) return;
    const name = this.explorer.units.columns[own[0]].name;
    context.fillStyle = colour("ink");
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    const most = Math.max(Math.floor((block * 1.2) / 6), 4);
    context.fillText(name.length > most ? `${name.slice(0, most - 1)}…` : name, x, y + block / 2 + 12);
  }

  ring(context, places, unit, stroke) {
    const { units } = this.explorer;
    const node = units.nodeOf[unit], order = units.order[node], side = Math.ceil(Math.sqrt(order.length));
    const block = BLOCK * this.unitSize, [x, y] = places[node];
    context.strokeStyle = stroke;
    context.lineWidth = 2.5;
    if (!this.detailed(side)) {
      context.beginPath();
      context.arc(x, y, block / 2 + 4, 0, 2 * Math.PI);
      context.stroke();
      return;
    }
    const at = order.indexOf(unit), cell = block / side;
    const left = x - block / 2 + (at % side) * cell, top = y - block / 2 + Math.floor(at / side) * cell;
    context.strokeRect(left - 2, top - 2, cell + 3, cell + 3);
    context.lineWidth = 1;
    context.strokeRect(x - block / 2 - 4, y - block / 2 - 4, block + 8, block + 8);
  }

  drawLegend(scale) {
    const stops = Array.from({ length: 12 }, (_, i) => shade(i / 11)).join(", ");
    const bar = h("div", { class: "ramp", style: { background: `linear-gradient(to right, ${stops})` } });
    const ticks = legendTicks(scale).map((value) =>
      h("span", { style: { left: `${100 * scale.position(value)}%` } }, scale.linear || !wide(scale.domain) ? short(value) : `10${power(Math.round(Math.log10(value)))}`));
    this.legend.replaceChildren(bar, h("div", { class: "ticks" }, ticks));
  }
}

function wide([low, high]) {
  return high / low >= 100;
}

// Powers of ten in a wide range, round numbers in a narrow one.
function legendTicks({ domain: [low, high], linear }) {
  if (!linear && wide([low, high])) {
    const first = Math.ceil(Math.log10(low)), last = Math.floor(Math.log10(high));
    const step = Math.max(Math.ceil((last - first + 1) / 5), 1);
    return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, i) => 10 ** (first + i * step));
  }
  const ticks = scaleLinear().domain([low, high]).ticks(4).filter((value) => linear || value > 0);
  return ticks.length ? ticks : [low, high];
}
