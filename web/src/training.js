// Training curves, with a switch for each run and each part of the data.
import { crosshairX, dot, lineY, plot, ruleX } from "@observablehq/plot";
import { h, onWidth, section } from "./dom.js";
import { fixed, short } from "./format.js";

const PARTS = { train: "training rows", valid: "validation rows", test: "test rows" };
const DASHES = { train: "4 3", valid: null, test: "1 3" };
const COLOURS = ["var(--first-strong)", "var(--second)", "var(--third)", "var(--fourth)", "var(--fifth)", "var(--sixth)"];

export function trainingSection(runs) {
  if (!runs.length) return;
  const parts = Object.keys(PARTS).filter((part) => runs.some((run) => curve(run, part)));
  const shown = new Set([...runs.map((_, i) => `run ${i}`), ...parts]);
  const chart = h("div", { class: "chart" }), sharp = h("div", { class: "chart" });
  const redraw = () => chart.dataset.width && draw(Number(chart.dataset.width));
  const toggle = (key, text, swatch) => h("label", { class: "toggle" },
    h("input", { type: "checkbox", checked: true, onchange: (event) => { shown[event.target.checked ? "add" : "delete"](key); redraw(); } }),
    h("span", { class: "swatch", style: swatch }), text);
  const switches = h("div", { class: "toolbar" },
    parts.map((part) => toggle(part, PARTS[part], { borderTop: `2.5px ${part === "valid" ? "solid" : part === "train" ? "dashed" : "dotted"} var(--ink)` })),
    runs.length > 1 ? runs.map((run, i) => toggle(`run ${i}`, run.name, { borderTop: `4px solid ${COLOURS[i % COLOURS.length]}` })) : null);
  const draw = (width) => {
    chart.dataset.width = width;
    chart.replaceChildren(likelihoods(runs, parts, shown, width));
    const tracked = runs.some((run) => curve(run, "sharpness"));
    sharp.replaceChildren(...(tracked ? [h("h3", {}, "Sharpness"), h("p", { class: "muted" }, "Mean trace of the Hessian over the batches of each epoch."), sharpness(runs, shown, width)] : []));
  };
  section("training", "Training", lead(runs), switches, h("div", { class: "card" }, chart, sharp));
  onWidth(chart, draw);
}

function lead(runs) {
  if (runs.length > 1) return "Mean log-likelihood per row in nats after each epoch; rings mark the epochs whose parameters were kept.";
  const [run] = runs;
  const last = run.epochs[run.epochs.length - 1], valid = curve(run, "valid");
  const kept = run.kept ? `the ring marks epoch ${run.kept}, whose parameters the model has` : "the model has its initial parameters";
  if (!valid) return `Mean log-likelihood per row in nats over ${last} epochs; ${kept}.`;
  const best = valid.reduce((a, v, i) => (v !== null && v > (valid[a] ?? -Infinity) ? i : a), 0);
  return `Mean log-likelihood per row in nats over ${last} epochs. Validation was best in epoch ${run.epochs[best]} with ${fixed(valid[best])}; ${kept}.`;
}

function curve(run, name) {
  return run.curves.find((one) => one.name === name)?.values;
}

function points(runs, parts, shown) {
  return runs.flatMap((run, i) => (shown.has(`run ${i}`) ? parts.filter((part) => shown.has(part) || part === "sharpness").flatMap((part) =>
    (curve(run, part) ?? []).map((value, at) => ({ run: i, name: run.name, part, epoch: run.epochs[at], value, kept: run.epochs[at] === run.kept }))) : []))
    .filter((d) => d.value !== null);
}

function likelihoods(runs, parts, shown, width) {
  const rows = points(runs, parts, shown);
  // the first epochs are far below the others: the axis begins where curves can still be told apart
  const values = rows.filter((d) => d.epoch > 1).map((d) => d.value).sort((a, b) => a - b);
  const low = values.length ? values[Math.floor(values.length * 0.03)] : undefined, high = values.at(-1);
  const lines = parts.filter((part) => shown.has(part)).map((part) => lineY(rows.filter((d) => d.part === part),
    { x: "epoch", y: "value", z: "run", stroke: (d) => COLOURS[d.run % COLOURS.length], strokeWidth: 2, strokeDasharray: DASHES[part], clip: true }));
  const domain = low < high ? [low - 0.04 * (high - low), high + 0.04 * (high - low)] : undefined;
  return plot({ width, height: Math.min(Math.max(width * 0.42, 220), 380), marginLeft: 56, marginRight: 16, marginBottom: 38, style: { background: "none", fontSize: "12px" },
    x: { label: "epoch", labelAnchor: "center", tickFormat: (v) => (Number.isInteger(v) ? String(v) : "") }, y: { label: "log-likelihood", grid: true, domain, tickFormat: (v) => short(v) },
    marks: [...lines, dot(rows.filter((d) => d.kept && d.part !== "train" && d.value >= (domain?.[0] ?? d.value)), { x: "epoch", y: "value", stroke: (d) => COLOURS[d.run % COLOURS.length], fill: "var(--card)", strokeWidth: 2, r: 5 }),
      crosshairX(rows, { x: "epoch", y: "value", color: "var(--muted)" })] });
}

function sharpness(runs, shown, width) {
  const rows = points(runs, ["sharpness"], shown).filter((d) => d.value > 0);
  return plot({ width, height: 200, marginLeft: 56, marginRight: 16, marginBottom: 38, style: { background: "none", fontSize: "12px" },
    x: { label: "epoch", labelAnchor: "center", tickFormat: (v) => (Number.isInteger(v) ? String(v) : "") }, y: { label: "trace", grid: true, type: "log", ticks: 4, tickFormat: (v) => short(v) },
    marks: [lineY(rows, { x: "epoch", y: "value", z: "run", stroke: (d) => COLOURS[d.run % COLOURS.length], strokeWidth: 2 }), ruleX([rows[0]?.epoch ?? 1], { stroke: "none" })] });
}
