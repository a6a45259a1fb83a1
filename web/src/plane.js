// The fourth panel: every sum unit by use and own sharpness, with the pairs that T and t order differently.
import { quadtree } from "d3-quadtree";
import { scaleLog } from "d3-scale";
import { fitCanvas, h } from "./dom.js";
import { power } from "./format.js";
import { colour } from "./theme.js";

const MARGIN = { left: 58, right: 14, top: 12, bottom: 40 };

export class Plane {
  constructor(explorer, letter) {
    this.explorer = explorer;
    this.canvas = h("canvas", { class: "plane", tabIndex: 0, role: "img",
      "aria-label": "Every sum unit by own sharpness t and use F squared; lines join the most extreme reversals." });
    this.element = h("figure", { class: "panel" },
      h("figcaption", {}, h("span", { class: "letter" }, letter), h("span", { class: "panel-title" }, "Reversals: use against own sharpness"), explorer.enlargeButton(() => this.element)),
      h("div", { class: "stage" }, this.canvas),
      h("p", { class: "legend-text" }, "Colour: contribution T. Lines join the ten most extreme reversals."));
  }

  resize() {
    Object.assign(this, fitCanvas(this.canvas, this.explorer.extent));
    const { local, flow_squared: use, total } = this.explorer.units.explorer;
    const known = [];
    for (let u = 0; u < local.length; u++) if (local[u] > 0 && use[u] > 1e-37) known.push(u);
    this.known = known;
    this.x = scaleLog().domain(padded(known, local)).range([MARGIN.left, this.width - MARGIN.right]);
    this.y = scaleLog().domain(padded(known, use)).range([this.height - MARGIN.bottom, MARGIN.top]);
    this.known.sort((a, b) => total[a] - total[b]); // the largest are drawn last
    this.dots = null;
    this.tree = quadtree(known, (u) => this.x(local[u]), (u) => this.y(use[u]));
  }

  unitAt([x, y]) {
    return { unit: this.tree?.find(x, y, 12) ?? -1, whole: false };
  }

  at(unit) {
    const { local, flow_squared: use } = this.explorer.units.explorer;
    return [this.x(local[unit]), this.y(use[unit])];
  }

  draw() {
    if (!this.width) return;
    const { units, selected, marked } = this.explorer;
    const context = this.canvas.getContext("2d");
    this.dots ??= this.drawDots();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.dots, 0, 0);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    for (const pair of units.explorer.reversals) this.drawPair(context, pair, marked.includes(pair.used) && marked.includes(pair.sharper));
    for (const unit of [...marked, selected].filter((u) => u >= 0)) {
      const [x, y] = this.at(unit);
      context.strokeStyle = colour(unit === selected ? "accent" : "accent-2");
      context.lineWidth = 2.5;
      context.beginPath();
      context.arc(x, y, 7, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // Axes and all units, which change with size and theme only.
  drawDots() {
    const { units } = this.explorer, scale = units.scale("total"), { total } = units.explorer;
    const picture = h("canvas", { width: this.canvas.width, height: this.canvas.height });
    const context = picture.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.drawAxes(context);
    const radius = Math.min(Math.max(60 / Math.sqrt(this.known.length), 0.9), 4), zero = colour("faint");
    for (const unit of this.known) {
      const [x, y] = this.at(unit);
      context.fillStyle = total[unit] > 0 ? scale.colour(total[unit]) : zero;
      context.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
    }
    return picture;
  }

  drawPair(context, { used, sharper }, strong) {
    const [[x1, y1], [x2, y2]] = [this.at(used), this.at(sharper)];
    if (![x1, y1, x2, y2].every(Number.isFinite)) return;
    context.strokeStyle = colour("accent-2");
    context.globalAlpha = strong ? 1 : 0.35;
    context.lineWidth = strong ? 2 : 1;
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    context.stroke();
    context.globalAlpha = 1;
  }

  drawAxes(context) {
    context.font = "11px system-ui, sans-serif";
    context.strokeStyle = colour("grid");
    context.fillStyle = colour("muted");
    context.lineWidth = 1;
    for (const value of powers(this.x.domain(), this.width / 70)) {
      const x = Math.round(this.x(value)) + 0.5;
      line(context, x, MARGIN.top, x, this.height - MARGIN.bottom);
      context.textAlign = "center";
      context.fillText(`10${power(Math.round(Math.log10(value)))}`, x, this.height - MARGIN.bottom + 16);
    }
    for (const value of powers(this.y.domain(), this.height / 50)) {
      const y = Math.round(this.y(value)) + 0.5;
      line(context, MARGIN.left, y, this.width - MARGIN.right, y);
      context.textAlign = "right";
      context.fillText(`10${power(Math.round(Math.log10(value)))}`, MARGIN.left - 6, y + 4);
    }
    context.fillStyle = colour("ink");
    context.textAlign = "center";
    context.fillText("own sharpness t →", (MARGIN.left + this.width - MARGIN.right) / 2, this.height - 6);
    context.save();
    context.translate(11, (MARGIN.top + this.height - MARGIN.bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText("use F² →", 0, 0);
    context.restore();
  }
}

function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

function padded(units, values) {
  let low = Infinity, high = -Infinity;
  for (const u of units) {
    low = Math.min(low, values[u]);
    high = Math.max(high, values[u]);
  }
  if (!(high > 0)) return [0.1, 1];
  const room = Math.max((high / low) ** 0.05, 1.3);
  return [low / room, high * room];
}

function powers([low, high], most) {
  const first = Math.ceil(Math.log10(low)), last = Math.floor(Math.log10(high));
  const step = Math.max(Math.ceil((last - first + 1) / most), 1);
  return Array.from({ length: Math.max(Math.floor((last - first) / step) + 1, 0) }, (_, i) => 10 ** (first + i * step));
}
