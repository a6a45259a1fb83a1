// Exact inference in a small circuit: one pass up in logarithms, one pass down for the flows of its inputs.

const LOG_ZERO = -1e30;
const HALF_LOG_TWO_PI = 0.5 * Math.log(2 * Math.PI);
const LANCZOS = [0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
  -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];

// log Gamma(x) for x >= 1, by Lanczos' approximation.
export function logGamma(x) {
  const y = x - 1;
  let total = LANCZOS[0];
  for (let i = 1; i < LANCZOS.length; i++) total += LANCZOS[i] / (y + i);
  const t = y + 7.5;
  return HALF_LOG_TWO_PI + (y + 0.5) * Math.log(t) - t + Math.log(total);
}

function logProb(node, unit, value) {
  const { kind, values } = node;
  if (kind === "table") return values[unit * (values.length / node.units) + value];
  if (kind === "gaussian") {
    const variance = values[2 * unit + 1];
    return -0.5 * (value - values[2 * unit]) ** 2 / variance - HALF_LOG_TWO_PI - 0.5 * Math.log(variance);
  }
  if (value < 0 || !Number.isInteger(value)) return LOG_ZERO;
  return value * Math.log(values[unit]) - values[unit] - logGamma(value + 1);
}

function logSum(node, children) {
  const width = children.length;
  let largest = LOG_ZERO;
  for (const value of children) if (value > largest) largest = value;
  const scaled = children.map((value) => Math.exp(value - largest));
  const out = new Float64Array(node.units);
  for (let k = 0; k < node.units; k++) {
    let total = 0;
    for (let c = 0; c < width; c++) total += node.values[k * width + c] * scaled[c];
    out[k] = total > 0 && largest > LOG_ZERO / 2 ? Math.log(total) + largest : LOG_ZERO;
  }
  return out;
}

export class Inference {
  constructor(circuit, columns) {
    this.nodes = circuit.nodes;
    this.grids = circuit.grids;
    this.columns = columns;
    this.inputs = columns.map(() => []);
    this.nodes.forEach((node, number) => {
      if (node.column >= 0) this.inputs[node.column].push(number);
    });
  }

  // evidence: a Map from columns to the place of a state, or to a number.
  infer(evidence) {
    const logs = this.up(evidence);
    const root = logs[logs.length - 1][0];
    const logEvidence = root > LOG_ZERO / 2 ? root : -Infinity;
    return { evidence, logEvidence, flows: logEvidence === -Infinity ? null : this.down(logs) };
  }

  up(evidence) {
    const logs = [];
    for (const node of this.nodes) {
      if (node.kind === "sum") logs.push(logSum(node, this.childLogs(node, logs)));
      else if (node.kind === "product") {
        const out = new Float64Array(node.units);
        node.children.forEach((child, at) => {
          const select = node.select?.[at];
          for (let u = 0; u < node.units; u++) out[u] += logs[child][select ? select[u] : u];
        });
        logs.push(out.map((value) => Math.max(value, LOG_ZERO)));
      } else {
        const out = new Float64Array(node.units);
        if (evidence.has(node.column)) for (let u = 0; u < node.units; u++) out[u] = logProb(node, u, evidence.get(node.column));
        logs.push(out);
      }
    }
    return logs;
  }

  childLogs(node, logs) {
    if (node.children.length === 1) return logs[node.children[0]];
    const parts = node.children.map((child) => logs[child]);
    const joined = new Float64Array(parts.reduce((total, part) => total + part.length, 0));
    let start = 0;
    for (const part of parts) {
      joined.set(part, start);
      start += part.length;
    }
    return joined;
  }

  down(logs) {
    const flows = this.nodes.map((node) => new Float64Array(node.units));
    flows[flows.length - 1][0] = 1;
    for (let number = this.nodes.length - 1; number >= 0; number--) {
      const node = this.nodes[number];
      if (node.kind === "product") {
        node.children.forEach((child, at) => {
          const select = node.select?.[at];
          for (let u = 0; u < node.units; u++) flows[child][select ? select[u] : u] += flows[number][u];
        });
      } else if (node.kind === "sum") this.share(node, number, logs, flows);
    }
    return flows;
  }

  // F_kc = F_k theta_kc p_c / p_k
  share(node, number, logs, flows) {
    let start = 0;
    const width = node.values.length / node.units;
    for (const child of node.children) {
      for (let c = 0; c < logs[child].length; c++) {
        let total = 0;
        for (let k = 0; k < node.units; k++) {
          const weight = node.values[k * width + start + c];
          const flow = flows[number][k];
          if (flow > 0 && weight > 0) total += flow * weight * Math.exp(logs[child][c] - logs[number][k]);
        }
        flows[child][c] += total;
      }
      start += logs[child].length;
    }
  }

  // Probabilities of the states of a column, or its density on its grid; null where the evidence is impossible.
  distribution(column, found) {
    if (!found.flows) return null;
    const states = this.columns[column].type === "states";
    const known = found.evidence.get(column);
    if (states && known !== undefined) return Float64Array.from(this.columns[column].labels, (_, s) => (s === known ? 1 : 0));
    const points = states ? null : this.grids[column];
    let size = points?.length;
    if (states) size = this.nodes[this.inputs[column][0]].values.length / this.nodes[this.inputs[column][0]].units;
    const out = new Float64Array(size);
    let whole = 0;
    for (const number of this.inputs[column]) {
      const node = this.nodes[number];
      for (let u = 0; u < node.units; u++) {
        const flow = found.flows[number][u];
        if (flow <= 0) continue;
        whole += flow;
        for (let i = 0; i < size; i++) out[i] += flow * Math.exp(logProb(node, u, states ? i : points[i]));
      }
    }
    const scale = states ? out.reduce((a, b) => a + b, 0) : whole;
    return out.map((value) => value / scale);
  }

  // Mean and standard deviation of a column of numbers; the mean first, so that nothing cancels.
  moments(column, found) {
    const units = this.inputs[column].flatMap((number) => {
      const { kind, values } = this.nodes[number];
      return Array.from(found.flows[number], (flow, u) =>
        kind === "gaussian" ? [flow, values[2 * u], values[2 * u + 1]] : [flow, values[u], values[u]]);
    });
    const whole = units.reduce((total, [flow]) => total + flow, 0);
    const mean = units.reduce((total, [flow, m]) => total + flow * m, 0) / whole;
    const variance = units.reduce((total, [flow, m, v]) => total + flow * (v + (m - mean) ** 2), 0) / whole;
    return { mean, deviation: Math.sqrt(variance) };
  }

  // Total variation between two distributions of a column, from 0 to 1.
  distance(column, before, after) {
    let total = 0;
    for (let i = 0; i < before.length; i++) total += Math.abs(after[i] - before[i]);
    const grid = this.grids[column];
    const step = this.columns[column].type === "real" ? grid[1] - grid[0] : grid && grid.length > 1 ? grid[1] - grid[0] : 1;
    return Math.min(0.5 * total * step, 1);
  }
}
