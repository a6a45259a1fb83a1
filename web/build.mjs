// Bundles src/ into the assets that the Python package ships, with the licences of everything that went in.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "..", "src", "circurve", "report", "assets");

// The same sum as in tests/report/test_report_assets.py: names and contents, in the order of the names.
function fingerprint() {
  const hash = createHash("sha256");
  for (const name of [...readdirSync(join(here, "src")).map((n) => `src/${n}`), "build.mjs", "package-lock.json"].sort()) {
    hash.update(name).update("\0").update(readFileSync(join(here, name))).update("\0");
  }
  return hash.digest("hex");
}

const common = { bundle: true, minify: true, write: false, metafile: true, legalComments: "none", logLevel: "warning" };
const script = await build({ ...common, entryPoints: [join(here, "src/main.js")], format: "iife", target: "es2022", charset: "ascii" });
const style = await build({ ...common, entryPoints: [join(here, "src/page.css")] });
const code = script.outputFiles[0].text;
if (/<\/script|<!--/i.test(code)) throw new Error("the script holds text that would end its element");

writeFileSync(join(assets, "page.js"), `/* Built by "make web" from web/; sources ${fingerprint()}; licences at the foot of each page and in LICENSES.txt */\n${code}`);
writeFileSync(join(assets, "page.css"), style.outputFiles[0].text);
writeFileSync(join(assets, "page.html"), readFileSync(join(here, "src/page.html")));

const packages = new Set();
for (const input of Object.keys(script.metafile.inputs)) {
  const parts = input.split(/[\\/]/);
  const at = parts.lastIndexOf("node_modules");
  if (at >= 0) packages.add(parts.slice(at + 1, at + (parts[at + 1].startsWith("@") ? 3 : 2)).join("/"));
}
const texts = new Map(); // licence -> the packages under it
for (const name of [...packages].sort()) {
  const folder = join(here, "node_modules", ...name.split("/"));
  const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((n) => /^licen[cs]e/i.test(n));
  if (!file) throw new Error(`${name} has no licence file`);
  const text = readFileSync(join(folder, file), "utf8").trim();
  texts.set(text, [...(texts.get(text) ?? []), `${name} ${about.version} (${about.license})`]);
}
let licences = "The script of report pages holds code of these packages, minified.\n";
for (const [text, names] of texts) licences += `\n${"=".repeat(80)}\n${names.join("\n")}\n\n${text}\n`;
writeFileSync(join(assets, "LICENSES.txt"), licences);
console.log(`page.js ${(code.length / 1024).toFixed(0)} kB from ${packages.size} packages`);
