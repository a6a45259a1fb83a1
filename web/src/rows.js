// The rows that the model finds most surprising, and the cells that make them so.
import { plot, rectY, ruleX, ruleY } from "@observablehq/plot";
import { h, onWidth, section } from "./dom.js";
import { fixed, percent, short } from "./format.js";

const COLOURS = ["var(--first-strong)", "var(--second)"];

export function rowsSection({ columns, surprises }) {
  const { rows, edges, counts } = surprises;
  if (!rows.length) return;
  const most = Math.max(...rows.flatMap((row) => row.cells.map((cell) => cell.surprise ?? 0)), 1);
  const chart = h("div", { class: "chart" });
  const list = h("ol", { class: "list rows" }, rows.map((row) => h("li", {},
    h("div", { class: "row-head" }, h("strong", {}, row.place), h("span", { class: "muted" }, `log-probability ${fixed(row.log_prob)}`)),
    row.cells.length
      ? h("ul", { class: "cells" }, row.cells.map((cell) => h("li", { title: `surprise ${short(cell.surprise ?? Infinity)}` },
        h("span", { class: "meter", "aria-hidden": "true" }, h("span", { style: { width: `${100 * Math.min((cell.surprise ?? most) / most, 1)}%` } })),
        h("span", { class: "cell-text" }, h("b", {}, columns[cell.column].name), " is ", h("b", {}, cell.value), h("span", { class: "muted" }, `, expected ${cell.expected}`)),
        h("span", { class: "odds muted" }, odds(cell.surprise)))))
      : h("p", { class: "muted" }, "No single cell explains it."))));
  section("rows", "Most surprising rows",
    "The least probable rows, each with its most surprising cells given the rest of the row. The number on the right says how often, at most, a value this improbable would occur if the model were right.",
    h("div", { class: "columns-2 wide-left" }, h("div", { class: "card" }, list), h("div", { class: "card" }, h("h3", {}, "All rows"), legend(counts), chart)));
  if (edges.length) onWidth(chart, (width) => chart.replaceChildren(histogram(edges, counts, rows, width)));
}

function odds(surprise) {
  if (surprise === null) return "impossible";
  const chance = Math.exp(-surprise);
  return chance > 0.1 ? `chance ${percent(chance)}` : `1 in ${short(Math.round(1 / chance))}`;
}

function legend(counts) {
  return h("p", { class: "key" }, counts.map(([name], i) => [h("span", { class: "box", style: { background: COLOURS[i], opacity: 0.6 } }), name]), h("span", { class: "tick" }), "listed here");
}

function histogram(edges, counts, rows, width) {
  const bars = counts.flatMap(([name, shares], part) => shares.map((share, i) => ({ part, name, share, x1: edges[i], x2: edges[i + 1] }))).filter((d) => d.share > 0);
  const listed = rows.map((row) => row.log_prob).filter((value) => value !== null);
  const chart = plot({ width, height: 230, marginLeft: 44, marginBottom: 38, style: { background: "none", fontSize: "11px" },
    x: { label: "log-probability of a row", labelAnchor: "center", ticks: Math.max(Math.floor(width / 80), 2), tickFormat: (v) => short(v) }, y: { label: "share of rows", grid: true, ticks: 4, tickFormat: (v) => `${+(100 * v).toPrecision(2)}%` },
    marks: [counts.map((_, part) => rectY(bars.filter((d) => d.part === part), { x1: "x1", x2: "x2", y: "share", fill: COLOURS[part], fillOpacity: 0.5, title: (d) => `${d.name}: ${percent(d.share)}` })),
      ruleX(listed, { y1: 0, y2: 0.012, stroke: "var(--ink)", strokeWidth: 1.5 }), ruleY([0])] });
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", `Log-probabilities of all rows, from ${short(edges[0])} to ${short(edges[edges.length - 1])}`);
  return chart;
}
