// The page, top to bottom.
import { readPage } from "./data.js";
import { byId, h } from "./dom.js";
import { Explorer } from "./explorer.js";
import { marginalsSection } from "./marginals.js";
import { nodesSection } from "./nodetable.js";
import { playgroundSection } from "./playground.js";
import { rowsSection } from "./rows.js";
import { startTheme } from "./theme.js";
import { trainingSection } from "./training.js";
import { Units } from "./units.js";

const NAMES = { training: "Training", circuit: "Circuit", columns: "Columns", playground: "What if?", rows: "Rows", nodes: "Nodes" };

function start() {
  const page = readPage();
  startTheme();
  byId("tiles").append(...page.tiles.map((tile) => h("div", {}, h("dt", {}, tile.label), h("dd", {}, tile.value), h("dd", { class: "muted" }, tile.note))));
  byId("notes").append(...page.notes.map((note) => h("li", {}, note)));
  byId("made").textContent = `Made by Circurve ${page.version}. This file is complete: it loads nothing from elsewhere.`;
  trainingSection(page.training);
  const explorer = page.explorer ? new Explorer(new Units(page.explorer, page.columns)) : null;
  marginalsSection(page);
  const playground = playgroundSection(page);
  rowsSection(page);
  if (explorer) nodesSection(explorer);
  for (const [id, name] of Object.entries(NAMES)) if (byId(id)) byId("nav").append(h("a", { href: `#${id}` }, name));
  globalThis.circurve = { page, explorer, playground }; // for scripts and for the browser's console
}

start();
