// Positions of the sums: first a radial tree, then pushed apart until neighbours are at least 1 apart.
import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY } from "d3-force";
import { hierarchy, tree } from "d3-hierarchy";

const TOP = -1;

export function place(nodes) {
  const children = new Map([[TOP, []]]);
  nodes.forEach((_, i) => children.set(i, []));
  nodes.forEach((node, i) => children.get(node.parent).push(i));
  const tops = children.get(TOP);
  const root = hierarchy(tops.length === 1 ? tops[0] : TOP, (i) => children.get(i));
  const reach = Math.sqrt(nodes.length) * 0.9;
  tree().size([2 * Math.PI, 1]).separation((a, b) => (a.parent === b.parent ? 1 : 2) / Math.max(a.depth, 1))(root);
  const points = nodes.map(() => ({ x: 0, y: 0 }));
  root.each((d) => {
    if (d.data === TOP) return;
    const radius = reach * Math.sqrt(d.y);
    points[d.data].x = radius * Math.sin(d.x);
    points[d.data].y = -radius * Math.cos(d.x);
  });
  if (nodes.length > 2) {
    const links = nodes.map((node, i) => ({ source: node.parent, target: i })).filter((link) => link.source >= 0);
    const rounds = nodes.length > 4000 ? 60 : 220;
    const simulation = forceSimulation(points)
      .force("apart", forceCollide(0.58).iterations(2))
      .force("push", forceManyBody().strength(-0.16).distanceMax(6).theta(0.9))
      .force("link", forceLink(links).distance(1).strength(0.9))
      .force("x", forceX(0).strength(0.02))
      .force("y", forceY(0).strength(0.02))
      .alphaDecay(1 - 0.001 ** (1 / rounds))
      .stop();
    for (let i = 0; i < rounds; i++) simulation.tick();
  }
  return points.map(({ x, y }) => ({ x, y }));
}

export function extent(points) {
  const xs = points.map((p) => p.x), ys = points.map((p) => p.y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  return { x: (left + right) / 2, y: (top + bottom) / 2, width: right - left + 1.5, height: bottom - top + 1.6 };
}
