// Set some columns and see how the others change: computed here for small circuits, looked up for large ones.
import { h, section, whenNear } from "./dom.js";
import { densityChart, statesChart } from "./charts.js";
import { aligned, count, dateOf, fixed, percent, probability, short, valueText } from "./format.js";
import { Inference } from "./inference.js";
import { key, redrawOnWidth } from "./marginals.js";

const SHOWN = 9;

export function playgroundSection({ columns, playground }) {
  if (!playground) return null;
  const exact = "nodes" in playground;
  const source = exact ? new Exact(playground, columns) : new Looked(playground, columns);
  const made = new Playground(source, columns, exact);
  const lead = exact
    ? "Set the values of some columns; the others' exact distributions follow, the most changed first. Everything is computed in this page."
    : "Set one column to a value; the columns that it changes most follow. This circuit is too large to compute with in a page, so these answers were computed in advance.";
  const host = section("playground", "What if? Conditional distributions", lead, made.element);
  whenNear(host, () => made.draw());
  return source;
}

// Answers computed in the page.
class Exact {
  constructor(circuit, columns) {
    this.circuit = circuit;
    this.columns = columns;
    this.inference = new Inference(circuit, columns);
    this.usual = this.inference.infer(new Map());
    this.settable = columns.map((_, i) => i);
    this.before = columns.map((_, i) => this.inference.distribution(i, this.usual));
  }

  start(column) {
    return this.columns[column].type === "states" ? argmax(this.before[column]) : this.circuit.starts[column];
  }

  choices(column) {
    return this.columns[column].type === "states" ? this.columns[column].labels.map((_, i) => i) : null;
  }

  ask(evidence) {
    const found = this.inference.infer(evidence);
    if (!found.flows) return { logEvidence: -Infinity, answers: [] };
    const answers = this.columns.flatMap((column, i) => {
      if (evidence.has(i)) return [];
      const after = this.inference.distribution(i, found), before = this.before[i];
      const answer = { column: i, before, after, distance: this.inference.distance(i, before, after) };
      if (column.type !== "states") answer.moments = [this.inference.moments(i, this.usual), this.inference.moments(i, found)];
      return [answer];
    });
    return { logEvidence: found.logEvidence, answers: answers.sort((a, b) => b.distance - a.distance) };
  }
}

// Answers that came with the page: one column at a time.
class Looked {
  constructor(table, columns) {
    this.table = table;
    this.columns = columns;
    this.settable = table.columns;
  }

  start(column) {
    return this.table.values[this.table.columns.indexOf(column)][0];
  }

  choices(column) {
    return this.table.values[this.table.columns.indexOf(column)];
  }

  ask(evidence) {
    if (!evidence.size) return { logEvidence: 0, answers: [] };
    const [[column, value]] = evidence;
    const place = this.table.columns.indexOf(column);
    const found = this.table.influences[place][this.table.values[place].indexOf(value)];
    return { logEvidence: null, answers: found.map(([other, distance, values]) => {
      const before = this.table.usual[other];
      if (this.columns[other].type === "states") return { column: other, before, after: values, distance };
      const moments = [before, values].map(([mean, deviation]) => ({ mean, deviation }));
      return { column: other, distance, moments };
    }) };
  }
}

class Playground {
  constructor(source, columns, exact) {
    Object.assign(this, { source, columns, exact });
    this.evidence = new Map();
    this.text = "";
    this.controls = h("div", { class: "evidence" });
    this.status = h("p", { class: "status", role: "status" });
    this.cards = h("div", { class: "cards" });
    this.adder = h("select", { "aria-label": "Column to set", onchange: () => this.add(Number(this.adder.value)) });
    const filter = h("input", { type: "search", placeholder: "Show columns named…", "aria-label": "Filter the columns that are shown", oninput: (event) => {
      this.text = event.target.value.trim().toLowerCase();
      this.draw();
    } });
    const clear = h("button", { type: "button", onclick: () => { this.evidence.clear(); this.update(); } }, "Clear");
    this.element = h("div", {}, h("div", { class: "toolbar" }, this.adder, clear, filter, key("before", "after")), this.controls, this.status, this.cards);
    redrawOnWidth(this.cards);
    this.update(false);
  }

  add(column) {
    if (!this.exact) this.evidence.clear();
    this.evidence.set(column, this.source.start(column));
    this.update();
  }

  update(draw = true) {
    const free = this.source.settable.filter((c) => !this.evidence.has(c));
    this.adder.replaceChildren(h("option", { value: "" }, "Set a column…"), ...free.map((c) => h("option", { value: c }, this.columns[c].name)));
    this.controls.replaceChildren(...[...this.evidence.keys()].map((column) => this.control(column)));
    if (draw) this.draw();
  }

  control(column) {
    const info = this.columns[column], value = this.evidence.get(column), choices = this.source.choices(column);
    const set = (next) => {
      this.evidence.set(column, next);
      this.draw();
    };
    let input;
    if (choices) {
      input = h("select", { "aria-label": `Value of ${info.name}`, onchange: (event) => set(choices[Number(event.target.value)]) },
        choices.map((choice, at) => h("option", { value: at, selected: choice === value }, valueText(info, choice))));
    } else input = numberInput(info, value, this.source.circuit.grids[column], set);
    return h("span", { class: "chip" }, h("strong", {}, info.name), " = ", input,
      h("button", { type: "button", class: "remove", "aria-label": `Do not set ${info.name}`, onclick: () => { this.evidence.delete(column); this.update(); } }, "×"));
  }

  draw() {
    const { logEvidence, answers } = this.source.ask(this.evidence);
    const shown = answers.filter((a) => this.columns[a.column].name.toLowerCase().includes(this.text));
    this.cards.replaceChildren(...shown.slice(0, SHOWN).map((answer) => this.card(answer)));
    for (const element of this.cards.children) element.fill();
    this.status.textContent = this.sentence(logEvidence, answers, shown);
  }

  sentence(logEvidence, answers, shown) {
    if (logEvidence === -Infinity) return "Under the model, these values together have probability zero: remove one of them.";
    if (!this.evidence.size) return this.exact ? "Nothing is set: these are the distributions of single columns." : "Choose a column to set.";
    const discrete = [...this.evidence.keys()].every((c) => this.columns[c].type !== "real");
    const score = logEvidence === null ? "" : discrete
      ? `What is set has probability ${probability(Math.exp(logEvidence))} (log ${fixed(logEvidence)}). ` : `What is set has log-density ${fixed(logEvidence)}. `;
    const more = shown.length > SHOWN ? ` The ${SHOWN} most changed of ${count(shown.length)} columns are shown.` : "";
    const changed = answers[0] ? `Most changed: ${this.columns[answers[0].column].name}.` : "Nothing else changes.";
    return `${score}${changed}${more}`;
  }

  card({ column, before, after, distance, moments }) {
    const info = this.columns[column], body = h("div", { class: "chart" });
    const by = this.evidence.size ? (before ? `changed by ${percent(distance)}` : `moved by ${short(distance)} standard deviations`) : "";
    const made = h("article", { class: "card", "data-column": column }, h("header", {}, h("h3", { title: info.name }, info.name), h("span", { class: "muted" }, by)), body);
    made.fill = () => {
      const width = body.clientWidth || 280;
      if (info.type === "states") body.replaceChildren(statesChart(topStates(info.labels, before, after, width)));
      else body.replaceChildren(...(after ? [densityChart(info, this.source.circuit.grids[column], before, after, width)] : []), momentLine(info, moments, this.evidence.size > 0));
    };
    return made;
  }
}

function momentLine(info, [before, after], changed) {
  const text = ({ mean, deviation }) => (info.origin ? `${valueText(info, mean)} ± ${short(deviation)} days` : `${aligned(mean)} ± ${aligned(deviation)}`);
  return h("p", { class: "muted" }, changed ? `mean ${text(before)} → ${text(after)}` : `mean ${text(before)}`);
}

function topStates(labels, before, after, width) {
  const most = 12;
  const picture = { labels, first: [...before], second: [...after], names: ["before", "after"], width, height: 130 };
  if (labels.length <= most) return picture;
  const kept = labels.map((_, i) => i).sort((a, b) => Math.max(before[b], after[b]) - Math.max(before[a], after[a])).slice(0, most).sort((a, b) => a - b);
  return { ...picture, labels: kept.map((i) => labels[i]), first: kept.map((i) => before[i]), second: kept.map((i) => after[i]) };
}

function numberInput(info, value, grid, set) {
  const days = info.origin !== null && info.origin !== undefined;
  const whole = info.type === "count";
  const box = days
    ? h("input", { type: "date", value: dateOf(info, value).toISOString().slice(0, 10), "aria-label": `Value of ${info.name}` })
    : h("input", { type: "number", step: whole ? 1 : "any", value: Number(value.toPrecision(6)), "aria-label": `Value of ${info.name}` });
  const range = h("input", { type: "range", min: grid[0], max: grid[grid.length - 1], step: whole ? 1 : (grid[grid.length - 1] - grid[0]) / 200, value, "aria-label": `Slider of ${info.name}` });
  box.addEventListener("change", () => {
    const next = days ? (Date.parse(`${box.value}T00:00:00Z`) - dateOf(info, 0).getTime()) / 86400000 : Number(box.value);
    if (box.value === "" || !Number.isFinite(next)) return;
    range.value = next;
    set(whole ? Math.max(Math.round(next), 0) : next);
  });
  range.addEventListener("input", () => {
    const next = whole ? Math.round(Number(range.value)) : Number(range.value);
    box.value = days ? dateOf(info, next).toISOString().slice(0, 10) : Number(next.toPrecision(6));
    set(next);
  });
  return h("span", { class: "number-input" }, box, range);
}

function argmax(values) {
  return values.reduce((best, value, i) => (value > values[best] ? i : best), 0);
}
