// Small charts of one column, drawn by Observable Plot: what was seen or expected before, and the model.
import { areaY, barX, barY, dot, lineY, plot, rectY, ruleX, ruleY, tickX } from "@observablehq/plot";
import { dateOf, percent, short, shorten, valueText } from "./format.js";

const BASE = { marginTop: 8, marginRight: 10, style: { background: "none", fontSize: "11px", overflow: "visible" } };
const FIRST = "var(--first)", SECOND = "var(--second)";
const WIDE_LABELS = 6;

function labelled(chart, text) {
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", text);
  return chart;
}

// States as horizontal bars (many, or long names) or vertical ones; `first` as bars, `second` as marks.
export function statesChart({ labels, first, second, names, width, height = 150 }) {
  const places = labels.map((_, i) => i);
  const rows = places.map((i) => ({ i, first: first[i], second: second[i] }));
  const title = (d) => `${labels[d.i]}\n${names[0]}: ${percent(d.first)}\n${names[1]}: ${percent(d.second)}`;
  const lying = labels.length > WIDE_LABELS || labels.some((label) => label.length > 9);
  const top = Math.max(...first, ...second, 1e-9);
  const text = `${names[0]} and ${names[1]}: ` + rows.slice(0, 12).map((d) => `${labels[d.i]} ${percent(d.first)}, ${percent(d.second)}`).join("; ");
  const shares = { domain: [0, top * 1.05], tickFormat: (v) => `${+(100 * v).toPrecision(3)}%`, ticks: 4, label: null, grid: true };
  const band = { domain: places, tickFormat: (i) => shorten(labels[i], lying ? 16 : 10), label: null, tickSize: 0, padding: 0.25 };
  if (lying) {
    return labelled(plot({ ...BASE, width, height: Math.max(60, 17 * labels.length + 34), marginLeft: 104, marginBottom: 24, x: shares, y: band, marks: [
      barX(rows, { y: "i", x: "first", fill: FIRST, title, tip: false }),
      tickX(rows, { y: "i", x: "second", stroke: SECOND, strokeWidth: 2.5, title }), ruleX([0])] }), text);
  }
  return labelled(plot({ ...BASE, width, height, marginLeft: 40, marginBottom: 24, x: band, y: shares, marks: [
    barY(rows, { x: "i", y: "first", fill: FIRST, title }),
    dot(rows, { x: "i", y: "second", fill: SECOND, stroke: "var(--card)", strokeWidth: 1.5, r: 5.5, title }), ruleY([0])] }), text);
}

function numberAxis(column, width) {
  const ticks = Math.max(Math.floor(width / 80), 2);
  return column.origin
    ? { type: "utc", label: null, ticks }
    : { label: null, ticks, tickFormat: (v) => short(v) };
}

function at(column) {
  return column.origin ? (value) => dateOf(column, value) : (value) => value;
}

// A histogram of the data, and the density of the model (real numbers) or its bins (counts).
export function binsChart(column, { edges, data, model, grid, density }, width, height = 150) {
  const x = at(column);
  const bars = data.map((share, i) => ({ x1: x(edges[i]), x2: x(edges[i + 1]), share, model: model[i], low: edges[i], high: edges[i + 1], middle: x((edges[i] + edges[i + 1]) / 2) }));
  const title = (d) => `${valueText(column, d.low)} to ${valueText(column, d.high)}\ndata: ${percent(d.share)}\nmodel: ${percent(d.model)}`;
  const bin = edges[1] - edges[0];
  const curve = density ? grid.map((value, i) => ({ x: x(value), y: density[i] * bin })) : [];
  const marks = density
    ? [lineY(curve, { x: "x", y: "y", stroke: SECOND, strokeWidth: 2 })]
    : [dot(bars, { x: "middle", y: "model", fill: SECOND, r: 3.5, title })];
  const text = `Share of rows in ${data.length} bins from ${valueText(column, edges[0])} to ${valueText(column, edges[edges.length - 1])}, data and model`;
  return labelled(plot({ ...BASE, width, height, marginLeft: 40, marginBottom: 24, x: numberAxis(column, width),
    y: { label: null, grid: true, ticks: 4, tickFormat: (v) => `${+(100 * v).toPrecision(3)}%` },
    marks: [rectY(bars, { x1: "x1", x2: "x2", y: "share", fill: FIRST, insetLeft: 0.5, insetRight: 0.5, title }), ...marks, ruleY([0])] }), text);
}

// A density before and after something was set.
export function densityChart(column, grid, before, after, width, height = 150) {
  const x = at(column);
  const rows = grid.map((value, i) => ({ x: x(value), before: before[i], after: after[i] }));
  const shape = column.type === "count" ? "step" : "linear";
  return labelled(plot({ ...BASE, width, height, marginLeft: 14, marginBottom: 24, x: numberAxis(column, width), y: { axis: null },
    marks: [areaY(rows, { x: "x", y: "before", fill: FIRST, curve: shape }), lineY(rows, { x: "x", y: "after", stroke: SECOND, strokeWidth: 2, curve: shape }), ruleY([0])] }),
  "Distribution before and after");
}
