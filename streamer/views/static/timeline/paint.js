// Three lanes on a canvas: work by method (or trace bytes), the fate of the trace, and, where only a part of the time is
// traced, how much. Over them shifts, what is selected, and the focus.

import {clock, group} from "./bins.js";

const [TOP, WORK, GAP, FATE, DUTY, AXIS] = [14, 96, 5, 14, 10, 16];
const BANDS = 8;

export class Lanes {
  constructor(box, canvas) {
    [this.box, this.canvas, this.pen] = [box, canvas, canvas.getContext("2d")];
    [this.bins, this.bytes, this.focus, this.window, this.base] = [null, false, -1, null, null];
    this.slots = new Map();  // a method keeps its colour as long as it has a band
    this.asked = 0;
    new ResizeObserver(() => this.soon()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.soon());
  }

  take(bins) {
    this.bins = bins;
    const methods = bins.bands.map((band) => band.method);
    for (const method of [...this.slots.keys()]) if (!methods.includes(method)) this.slots.delete(method);
    const free = [...Array(BANDS).keys()].filter((slot) => ![...this.slots.values()].includes(slot));
    for (const method of methods) if (!this.slots.has(method)) this.slots.set(method, free.shift());
    this.stack = [...bins.bands].sort((a, b) => this.slots.get(a.method) - this.slots.get(b.method));
    this.soon();
  }

  soon() {
    this.asked ||= requestAnimationFrame(() => {
      this.asked = 0;
      if (!this.bins?.count) return;
      const begin = performance.now();
      this.paint();
      performance.measure("timeline", {start: begin, end: performance.now()});
    });
  }

  x(i) { return (this.bins.room - this.bins.count + i) * this.wide / this.bins.room; }

  // The bin at a place on the page, the nearest one that there is.
  at(clientX) {
    const {left} = this.canvas.getBoundingClientRect();
    const i = Math.floor((clientX - left) / this.wide * this.bins.room) - (this.bins.room - this.bins.count);
    return Math.max(0, Math.min(this.bins.count - 1, i));
  }

  paint() {
    const {bins, box, canvas, pen} = this;
    const scale = devicePixelRatio || 1;
    this.wide = box.clientWidth;
    this.fate = TOP + WORK + GAP;
    this.duty = this.fate + FATE + GAP;
    const below = bins.partly ? this.duty + DUTY : this.fate + FATE;
    const height = below + AXIS;
    const size = [Math.round(this.wide * scale), Math.round(height * scale)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    [canvas.style.width, canvas.style.height] = [`${this.wide}px`, `${height}px`];
    const style = getComputedStyle(box), known = {};
    this.colors = (name) => (known[name] ??= style.getPropertyValue(`--${name}`));
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, this.wide, height);
    const heights = this.bytes ? bins.bytes : bins.total;
    const most = Math.max(1, ...heights);
    for (let i = 0; i < bins.count; i++) {
      const left = this.x(i), width = this.x(i + 1) - left;
      this.bar = (y, tall, color) => {
        pen.fillStyle = color;
        pen.fillRect(left, y, width > 4 ? width - 1 : Math.max(width, 0.6), tall);
      };
      this.work(i, WORK * heights[i] / most);
      this.lost(i);
      if (bins.partly && bins.panes[i]) {
        this.bar(this.duty, DUTY, this.colors("line"));
        this.bar(this.duty + DUTY * (1 - bins.duty[i]), DUTY * bins.duty[i], this.colors("duty"));
      }
      if (bins.begun(i).length) this.mark(left + width / 2);
    }
    this.axis(below);
    if (this.base) this.frame(this.base, below, this.colors("base"), [4, 3]);
    if (this.window) this.frame(this.window, below, this.colors("ink"), []);
    if (this.focus >= 0) this.frame([this.focus, this.focus + 1], below, this.colors("bar"), [1, 1]);
  }

  work(i, tall) {
    const whole = this.bins.total[i];
    let y = TOP + WORK;
    for (const band of whole ? this.stack : []) {
      const part = tall * band.weights[i] / whole;
      this.bar(y -= part, part, this.colors(`band-${this.slots.get(band.method)}`));
    }
    this.bar(TOP + WORK - tall, y - (TOP + WORK - tall), this.colors("rest"));
  }

  lost(i) {
    const {bins} = this, whole = bins.bytes[i];
    if (!bins.panes[i]) return this.bar(this.fate + FATE / 2 - 1, 2, this.colors("line"));
    let y = this.fate + FATE;
    const part = (size, color, least = 0) => {
      const tall = Math.max(least, whole ? FATE * size / whole : 0);
      if (tall) this.bar(y -= tall, tall, color);
    };
    // a hole is seen, however small, or without bytes
    const lost = bins.missed(i).filter(([, size, holes]) => size || holes);
    part(bins.decoded[i] - bins.shed[i], this.colors("good"));
    part(bins.shed[i], this.colors("shed"));
    y = Math.max(y, this.fate + 3 * lost.length);
    for (const [cause, size] of lost) part(size, this.colors(`lost-${group(cause)}`), 3);
  }

  mark(x) {
    const {pen} = this;
    pen.fillStyle = this.colors("bad");
    pen.beginPath();
    pen.moveTo(x - 5, 2);
    pen.lineTo(x + 5, 2);
    pen.lineTo(x, 11);
    pen.fill();
  }

  axis(y) {
    const {bins, pen} = this, each = Math.ceil(bins.room / 6 / 5) * 5;
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "top";
    for (let i = bins.count - 1; i >= 0; i--) {
      const seconds = Math.round(bins.begins(i));
      if (seconds % Math.round(each * bins.seconds) >= bins.seconds) continue;
      const x = this.x(i), text = clock(bins.begins(i));
      pen.fillStyle = this.colors("line");
      pen.fillRect(x, TOP, 1, y - TOP + 3);
      pen.fillStyle = this.colors("soft");
      const wide = pen.measureText(text).width;
      pen.fillText(text, Math.max(0, Math.min(this.wide - wide, x - wide / 2)), y + 4);
    }
  }

  frame([first, end], below, color, dashes) {
    const {pen} = this, left = this.x(first), right = this.x(end);
    pen.strokeStyle = color;
    pen.lineWidth = 2;
    pen.setLineDash(dashes);
    pen.strokeRect(left + 0.5, TOP - 2, Math.max(2, right - left - 1), below - TOP + 3);
    pen.setLineDash([]);
  }
}
