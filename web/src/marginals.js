// The distribution of every column, data against model, the worst fits first.
import { h, section, whenNear } from "./dom.js";
import { binsChart, statesChart } from "./charts.js";
import { count, percent } from "./format.js";

const AT_FIRST = 9;

export function key(first, second) {
  return h("p", { class: "key" }, h("span", { class: "box" }), first, h("span", { class: "mark" }), second);
}

export function marginalsSection({ columns, marginals }) {
  const cards = h("div", { class: "cards" });
  const more = h("button", { type: "button" }, "Show more");
  const status = h("span", { class: "muted", role: "status" });
  let shown = AT_FIRST, text = "";
  const draw = () => {
    const found = marginals.filter((m) => columns[m.column].name.toLowerCase().includes(text));
    cards.replaceChildren(...found.slice(0, shown).map((m) => card(columns[m.column], m)));
    for (const element of cards.children) element.fill();
    more.hidden = found.length <= shown;
    status.textContent = found.length === marginals.length ? "" : `${count(found.length)} of ${count(marginals.length)} columns`;
  };
  more.addEventListener("click", () => {
    shown += 2 * AT_FIRST;
    draw();
  });
  const filter = h("input", { type: "search", placeholder: "Filter columns", "aria-label": "Filter columns by name", oninput: (event) => {
    text = event.target.value.trim().toLowerCase();
    shown = AT_FIRST;
    draw();
  } });
  const left = columns.length - marginals.length;
  const host = section("columns", "Columns: model against data", lead(columns, marginals, left),
    h("div", { class: "toolbar" }, filter, status, key("data", "model")), cards, h("p", { class: "after" }, more));
  whenNear(host, draw);
  redrawOnWidth(cards);
}

function lead(columns, marginals, left) {
  const off = marginals.filter((m) => m.distance > 2 * m.chance + 1e-12).length;
  const verdict = off === 0 ? "No column differs from the data by more than twice what chance would explain"
    : `${count(off)} of ${count(marginals.length)} columns differ from the data by more than twice what chance would explain`;
  return `${verdict}. The difference is half the sum of |data − model| over all bars, from 0 % to 100 %; the largest come first.${left ? ` The ${count(left)} best fits are left out.` : ""}`;
}

export function redrawOnWidth(cards) {
  let last = cards.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(cards.clientWidth - last) < 2) return;
    last = cards.clientWidth;
    for (const element of cards.children) element.fill?.();
  }).observe(cards);
}

function card(column, marginal) {
  const body = h("div", { class: "chart" });
  const made = h("article", { class: "card" }, h("header", {}, h("h3", { title: column.name }, column.name),
    h("span", { class: "muted" }, `differs by ${percent(marginal.distance)}`, h("small", {}, ` (chance: ${percent(marginal.chance)})`))), body);
  made.fill = () => {
    const width = body.clientWidth || 280;
    body.replaceChildren(marginal.labels
      ? statesChart({ labels: marginal.labels, first: marginal.data, second: marginal.model, names: ["data", "model"], width })
      : binsChart(column, marginal, width));
  };
  return made;
}
