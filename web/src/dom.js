// Elements without HTML text: every string becomes a text node or an attribute.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "style") Object.assign(element.style, value);
    else if (name in element && !name.startsWith("aria") && name !== "list") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function section(id, title, lead, ...children) {
  const made = h("section", { id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title), lead ? h("p", { class: "lead" }, lead) : null, ...children);
  document.getElementById("main").append(made);
  return made;
}

// A canvas as wide as its parent, as high as the extent of what it shows needs, in device pixels.
export function fitCanvas(canvas, extent) {
  const width = canvas.parentElement.clientWidth;
  const height = Math.min(width * Math.min(Math.max(extent.height / extent.width, 0.62), 1), Math.max(320, innerHeight * 0.78));
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  return { width, height, ratio };
}

export function byId(id) {
  return document.getElementById(id);
}

export function announce(text) {
  byId("live").textContent = text;
}

// Call `draw(width)` now and whenever the width of the element changes.
export function onWidth(element, draw) {
  let last = 0;
  const update = () => {
    const width = Math.floor(element.clientWidth);
    if (width > 0 && width !== last) draw((last = width));
  };
  new ResizeObserver(update).observe(element);
  update();
}

// Call `start` once, when the element comes near the visible part of the page (or is printed).
export function whenNear(element, start) {
  let done = false;
  const once = () => {
    if (!done) {
      done = true;
      start();
    }
  };
  const observer = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) {
      observer.disconnect();
      once();
    }
  }, { rootMargin: "600px" });
  observer.observe(element);
  addEventListener("beforeprint", once);
}

export function showTip(event, ...content) {
  const tip = byId("tip");
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = event.clientX + 16 + width < innerWidth ? event.clientX + 16 : Math.max(event.clientX - width - 12, 4);
  const top = event.clientY + 16 + height < innerHeight ? event.clientY + 16 : Math.max(event.clientY - height - 12, 4);
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}

export function hideTip() {
  byId("tip").hidden = true;
}
