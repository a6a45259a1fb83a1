// Light and dark: as the system says, until the button is used.
import { byId } from "./dom.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const listeners = [];
let printing = false;

export function isPrinting() {
  return printing;
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return !printing && (chosen ? chosen === "dark" : dark.matches);
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Pictures on canvases are drawn again when colours change.
export function onTheme(draw) {
  listeners.push(draw);
}

function changed() {
  const button = byId("theme");
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
  for (const draw of listeners) draw();
}

export function startTheme() {
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    changed();
  });
  dark.addEventListener("change", changed);
  for (const [event, value] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      printing = value;
      document.documentElement.classList.toggle("printing", value);
      changed();
    });
  }
  changed();
}
