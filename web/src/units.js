// The sum units of the page: which node each belongs to, what can be shown of it, and its name.
import { quantileSorted } from "d3-array";
import { scaleLinear, scaleLog } from "d3-scale";
import { interpolateViridis } from "d3-scale-chromatic";
import { isDark } from "./theme.js";

export class Units {
  constructor(explorer, columns) {
    this.explorer = explorer;
    this.columns = columns;
    this.nodes = explorer.nodes;
    this.starts = new Uint32Array(this.nodes.length + 1);
    this.nodes.forEach((node, i) => (this.starts[i + 1] = this.starts[i] + node.units));
    this.length = this.starts[this.nodes.length];
    this.nodeOf = new Uint32Array(this.length);
    this.nodes.forEach((node, i) => this.nodeOf.fill(i, this.starts[i], this.starts[i + 1]));
    this.childUnits = this.nodes.map((node) => node.children.reduce((total, [units]) => total + units, 0));
    this.quantities = this.makeQuantities();
    this.scopes = new Map();
    this.order = this.makeOrder();
  }

  makeQuantities() {
    const { flow_squared: use, local, total, mean_trace: exact, edges, floor_edges: dead, estimator, trace } = this.explorer;
    const perNode = (read) => (u) => read(this.nodes[this.nodeOf[u]]);
    const listed = [
      { key: "use", name: "F², use", long: "how much the node is used", of: (u) => use[u] },
      { key: "local", name: "t, own sharpness", long: `how sharp its own mixture is (${estimator.replaceAll("_", " ")})`, of: (u) => local[u] },
      { key: "total", name: "T, contribution", long: "what it adds to the trace", of: (u) => total[u] },
      exact && { key: "exact", name: "t, exact mean over rows", long: "dominated by edges of weight near zero, if there are any", of: (u) => exact[u] },
      exact && { key: "usage", name: "T / t", long: "effective use", of: (u) => (exact[u] > 0 ? total[u] / exact[u] : 0) },
      { key: "depth", name: "depth", long: "sums above it", linear: true, of: perNode((n) => n.depth ?? NaN) },
      { key: "scope", name: "columns below", long: "columns below it", of: perNode((n) => n.scope_size) },
      { key: "edges", name: "edges", long: "children it mixes", of: (u) => (edges ? edges[u] : this.childUnits[this.nodeOf[u]]) },
      { key: "dead", name: "edges near zero", long: "edges with a weight at the floor of training", linear: true, of: (u) => (dead ? dead[u] : 0) },
    ];
    this.trace = trace;
    return new Map(listed.filter(Boolean).map((quantity) => [quantity.key, quantity]));
  }

  // The units of each node from the most used down: the order of the cells in its block.
  makeOrder() {
    const use = this.explorer.flow_squared;
    return this.nodes.map((_, i) => {
      const units = Array.from({ length: this.nodes[i].units }, (_, k) => this.starts[i] + k);
      return units.sort((a, b) => use[b] - use[a]);
    });
  }

  // Colours for a quantity: logarithmic where it spans orders of magnitude; the ends hold the outer hundredths.
  scale(key) {
    const quantity = this.quantities.get(key);
    if (!quantity.domain) {
      const values = Float64Array.from({ length: this.length }, (_, u) => quantity.of(u)).filter((v) => Number.isFinite(v) && (quantity.linear || v > 0)).sort();
      const [low, high] = values.length ? [quantileSorted(values, 0.01), quantileSorted(values, 0.99)] : [0.1, 1];
      quantity.domain = high > low ? [low, high] : quantity.linear ? [low - 0.5, low + 0.5] : [low / 2, low * 2];
    }
    const position = (quantity.linear ? scaleLinear() : scaleLog()).domain(quantity.domain).range([0, 1]).clamp(true);
    return { position, domain: quantity.domain, linear: quantity.linear, colour: (value) => shade(position(value)) };
  }

  mean(key, node) {
    const quantity = this.quantities.get(key);
    quantity.means ??= this.nodes.map((info, i) => {
      let total = 0;
      for (let u = this.starts[i]; u < this.starts[i + 1]; u++) total += quantity.of(u);
      return total / info.units;
    });
    return quantity.means[node];
  }

  // All columns below a node, found by a walk down.
  scope(node) {
    if (!this.scopes.has(node)) {
      const seen = new Set([node]), found = new Set();
      for (const at of seen) {
        for (const column of this.nodes[at].own) found.add(column);
        for (const child of this.nodes[at].below) seen.add(child);
      }
      this.scopes.set(node, [...found].sort((a, b) => a - b));
    }
    return this.scopes.get(node);
  }

  label(unit) {
    const node = this.nodes[this.nodeOf[unit]];
    return node.units === 1 ? node.label : `unit ${unit - this.starts[this.nodeOf[unit]]} of ${node.label}`;
  }

  technical(unit) {
    const node = this.nodes[this.nodeOf[unit]];
    return `${node.name}[${unit - this.starts[this.nodeOf[unit]]}]`;
  }

  // [{weight, parts: [{kind, index, unit}]}], the largest first; null where the page does not have them.
  children(unit) {
    const { unit: kept, start, child, weight, complete } = this.explorer.weights;
    const row = complete ? unit : search(kept, unit);
    if (row < 0) return null;
    const node = this.nodes[this.nodeOf[unit]];
    const found = [];
    for (let i = start[row]; i < start[row + 1]; i++) {
      let local = child[i], at = 0;
      while (local >= node.children[at][0]) local -= node.children[at++][0];
      const parts = node.children[at][1].map((part) => ({ ...part, unit: part.select ? part.select[local] : local }));
      found.push({ weight: weight[i], parts });
    }
    return found;
  }

  childCount(unit) {
    return this.quantities.get("edges").of(unit);
  }
}

function search(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] === value) return middle;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}

// Viridis, evenly graded for every kind of colour vision: the further from the background, the larger.
const STEPS = 256;
const steps = Array.from({ length: STEPS }, (_, i) => i / (STEPS - 1));
const SHADES = { dark: steps.map((p) => interpolateViridis(0.12 + 0.88 * p)), light: steps.map((p) => interpolateViridis(0.95 - 0.95 * p)) };

export function shade(position) {
  return SHADES[isDark() ? "dark" : "light"][Math.round(position * (STEPS - 1))] ?? "#8888";
}
