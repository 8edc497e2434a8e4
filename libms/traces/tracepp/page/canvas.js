// All views share these: a canvas that follows its width and the theme, a range that zooms, colours.
"use strict";

const themeColours = new Map();  // of the drawing in hand: to ask the style for each stroke takes longer than drawing it
function theme(name) {
  if (!themeColours.has(name)) {
    themeColours.set(name, getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim());
  }
  return themeColours.get(name);
}

// A drawing in <section id>: its canvas, the line of text below it, and what redraws them.
class View {
  // `draw(context, width, height)`; `height` may be a function of the width.
  constructor(id, height, draw) {
    this.section = document.getElementById(id);
    this.section.hidden = false;
    this.canvas = this.section.querySelector("canvas");
    this.readout = this.section.querySelector("output");
    this.heightOf = typeof height === "function" ? height : () => height;
    this.draw = draw;
    this.pending = false;
    new ResizeObserver(() => this.redraw()).observe(this.section);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    matchMedia("print").addEventListener("change", () => this.drawNow());
  }
  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => this.drawNow());
  }
  drawNow() {
    this.pending = false;
    themeColours.clear();
    const scale = devicePixelRatio || 1;
    this.width = this.section.clientWidth;
    this.height = this.heightOf(this.width);
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.canvas.style.height = this.height + "px";
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    context.direction = "ltr";
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = theme("page");
    context.fillRect(0, 0, this.width, this.height);
    this.draw(context, this.width, this.height);
  }
  say(text) { this.readout.textContent = text; }
  // Calls `act(x, y)` where somebody clicks, and `over(x, y)` where they point.
  onPoint(over, act) {
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.canvas.addEventListener("pointermove", (event) => { if (event.buttons === 0) over(...at(event)); });
    this.canvas.addEventListener("click", (event) => { if (!this.dragged) act(...at(event)); });
  }
  // Keys by name; a function that returns false leaves the key to the browser.
  onKeys(keys) {
    this.canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key](event);
    });
  }
}

// The visible part [low, high] of [min, max].
class Range {
  constructor(min, max, least) {
    Object.assign(this, { min, max, low: min, high: max, least });
  }
  zoom(factor, at = 0.5) {
    const size = Math.min(Math.max((this.high - this.low) * factor, this.least), this.max - this.min);
    const fixed = this.low + (this.high - this.low) * at;
    this.show(fixed - size * at, size);
  }
  pan(part) { this.show(this.low + (this.high - this.low) * part, this.high - this.low); }
  show(low, size) {
    this.low = Math.max(this.min, Math.min(low, this.max - size));
    this.high = Math.min(this.max, this.low + size);
  }
  all() { this.show(this.min, this.max - this.min); }
}

// Zooms and moves a range by wheel, drag and keys: + - arrows Home. `left`: where its axis begins in the canvas.
function attachRange(view, range, left) {
  const part = (x) => Math.min(1, Math.max(0, (x - left) / Math.max(1, view.width - left)));
  view.canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey && document.activeElement !== view.canvas) return;  // the page scrolls
    event.preventDefault();
    range.zoom(Math.exp(event.deltaY / 400), part(event.offsetX));
    view.redraw();
  }, { passive: false });
  let from = null;
  view.canvas.addEventListener("pointerdown", (event) => {
    from = event.offsetX;
    view.dragged = false;
    view.canvas.setPointerCapture(event.pointerId);
  });
  view.canvas.addEventListener("pointerup", () => { from = null; });
  view.canvas.addEventListener("pointermove", (event) => {
    if (from === null || event.buttons === 0) return;
    if (Math.abs(event.offsetX - from) > 3) view.dragged = true;
    if (!view.dragged) return;
    range.pan((from - event.offsetX) / Math.max(1, view.width - left));
    from = event.offsetX;
    view.redraw();
  });
  const then = (change) => () => { change(); view.redraw(); };
  view.onKeys({
    "+": then(() => range.zoom(0.5)), "=": then(() => range.zoom(0.5)), "-": then(() => range.zoom(2)),
    a: then(() => range.pan(-0.2)), d: then(() => range.pan(0.2)), Home: then(() => range.all()),
  });
}

// Colours of differences: less is blue, more is red; `part` from -1 to 1.
function differenceColour(part) {
  const size = Math.min(1, Math.abs(part));
  const none = theme("none").match(/\w\w/g).map((digits) => parseInt(digits, 16));
  const full = part > 0 ? [214, 40, 40] : [37, 99, 235];
  const mixed = none.map((value, i) => Math.round(value + (full[i] - value) * size));
  return `rgb(${mixed.join(",")})`;
}
// A table of 201 of them, for canvases of many cells.
function differenceColours() {
  const table = [];
  for (let i = -100; i <= 100; ++i) table.push(differenceColour(i / 100));
  return (part) => table[Math.round(Math.max(-1, Math.min(1, part)) * 100) + 100];
}

const kindColours = {
  forward: "#3b82c4", backward: "#8b5fbf", backward_input: "#8b5fbf", backward_weight: "#b48ad6", optimizer: "#4f9d69",
  tp: "#c9a227", dp: "#d9792b", pp: "#2a9d8f", world: "#7d8590", data_wait: "#d62828", save: "#a16207",
  step: "#9aa4af", other: "#7d8590", matmul: "#3b82c4", attention: "#0e7490", norm: "#2a9d8f", elementwise: "#4f9d69",
  activation: "#4f9d69", update: "#a16207", other_compute: "#57708a", op: "#8b5fbf", call: "#d9792b", python: "#3b82c4",
  annotation: "#4f9d69", copy: "#c9a227",
};
const colourOf = (info) => kindColours[info.kind === "other" ? info.row ?? "other" : info.kind] ??
  kindColours[info.axis] ?? kindColours.other;

// Returns as much of a text as is `wide`: its end, which tells the tracks of a rank apart, or its begin.
function fitting(context, text, wide, keepsEnd = true) {
  const whole = context.measureText(text).width;
  if (whole <= wide) return text;
  const kept = Math.max(1, Math.floor(text.length * wide / whole) - 1);
  return keepsEnd ? "\u2026" + text.slice(-kept) : text.slice(0, kept) + "\u2026";
}
