// Frames on a canvas: those of the rows in sight that are wider than half a pixel. The canvas is as large as what is in
// sight; the box in which it stands has the height of all rows and scrolls.

const ROW = 19;
const NARROW = 0.5;  // pixels: narrower ones of a row are drawn as one
const TEXT = 26;

function hatch(context, color) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  pen.strokeStyle = color;
  pen.lineWidth = 1.4;
  for (const shift of [-6, 0, 6]) {
    pen.moveTo(shift, 6);
    pen.lineTo(shift + 6, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

export class Painter {
  constructor(box, canvas) {
    [this.box, this.canvas, this.pen] = [box, canvas, canvas.getContext("2d")];
    [this.frames, this.zoom, this.focus, this.found, this.upwards] = [null, 0, -1, null, false];
    this.asked = 0;
    new ResizeObserver(() => this.soon()).observe(box);
    box.addEventListener("scroll", () => this.soon());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.soon());
  }

  soon() {
    this.asked ||= requestAnimationFrame(() => {
      this.asked = 0;
      const begin = performance.now();
      this.paint();
      performance.measure("flame", {start: begin, end: performance.now()});
    });
  }

  // Where the root is above, its row is the first; else the last.
  row(level) { return this.upwards ? this.frames.depths - 1 - level : level; }

  place(x) {
    const {frames, zoom} = this;
    return (x - frames.x[zoom]) / (frames.width[zoom] || 1) * this.wide;
  }

  at(clientX, clientY) {
    if (!this.frames?.count) return -1;
    const {left, top} = this.canvas.getBoundingClientRect();
    const {frames, zoom} = this;
    const row = Math.floor((clientY - top + this.box.scrollTop) / ROW);
    const level = this.row(row);
    if (level < frames.depth[zoom]) return frames.path(zoom)[level] ?? -1;
    return frames.hit(level, frames.x[zoom] + (clientX - left) / this.wide * frames.width[zoom]);
  }

  show(i) {  // scrolls the row into sight
    const top = this.row(this.frames.depth[i]) * ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top + ROW > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + ROW - this.box.clientHeight;
  }

  paint() {
    const {frames, canvas, pen, box} = this;
    if (!frames?.count) return;
    const scale = devicePixelRatio || 1;
    const height = Math.min(frames.depths * ROW, 640);
    box.style.height = `${height}px`;
    box.firstElementChild.style.height = `${frames.depths * ROW}px`;
    this.wide = box.clientWidth;
    const size = [Math.round(this.wide * scale), Math.round(height * scale)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    canvas.style.width = `${this.wide}px`;
    canvas.style.height = `${height}px`;
    const style = getComputedStyle(box);
    this.colors = (name) => style.getPropertyValue(`--${name}`);
    this.dark = matchMedia("(prefers-color-scheme: dark)").matches;
    this.hatch = hatch(pen, this.colors("ink"));
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, this.wide, height);
    pen.font = "12px ui-monospace, monospace";
    pen.textBaseline = "middle";
    this.letter = pen.measureText("m").width;
    const [begin, end] = [Math.floor(box.scrollTop / ROW), Math.ceil((box.scrollTop + height) / ROW)];
    const above = frames.path(this.zoom);
    for (let row = Math.max(0, begin); row < Math.min(end, frames.depths); row++) {
      const y = row * ROW - box.scrollTop, level = this.row(row);
      if (level < above.length) this.frame(above[level], 0, this.wide, y, level < above.length - 1);
      else this.level(level, y);
    }
    if (this.focus >= 0) this.outline(this.focus);
  }

  level(level, y) {
    const {frames, zoom} = this;
    const until = frames.x[zoom] + frames.width[zoom] * (1 - 1e-9);
    let [narrow, end] = [-1, -1];  // a run of narrow ones without a gap, in pixels
    const run = () => {
      if (narrow < 0) return;
      this.pen.fillStyle = this.colors("narrow");
      this.pen.fillRect(narrow, y, Math.max(end - narrow, 0.3), ROW - 1);
      narrow = -1;
    };
    const x0 = frames.x[zoom], by = this.wide / (frames.width[zoom] || 1);
    for (let i = frames.from(level, x0); i < frames.levels[level + 1] && frames.x[i] < until; i++) {
      const x = (frames.x[i] - x0) * by, width = frames.width[i] * by;
      if (width < NARROW && !this.found?.hit[i]) {
        if (x > end + NARROW) run();
        if (narrow < 0) narrow = x;
        end = x + width;
        continue;
      }
      run();
      this.frame(i, x, width, y, false);
    }
    run();
  }

  frame(i, x, width, y, above) {
    const {frames, pen} = this;
    pen.globalAlpha = above ? 0.55 : this.found && !this.found.hit[i] ? 0.4 : 1;
    pen.fillStyle = this.found?.hit[i] ? this.colors("found") : this.color(i);
    pen.fillRect(x, y, Math.max(width - (width > 3 ? 1 : 0), 0.6), ROW - 1);
    const doubt = frames.doubt(i) * width;
    if (doubt > 0.5) {
      pen.fillStyle = this.hatch;
      pen.fillRect(x + width - doubt, y, doubt, ROW - 1);
    }
    pen.globalAlpha = 1;
    if (width < TEXT) return;
    const fits = Math.floor((width - 8) / this.letter);
    const label = frames.label(i);
    pen.fillStyle = this.found?.hit[i] ? "#000" : this.colors("ink");
    pen.fillText(label.length <= fits ? label : `${label.slice(0, Math.max(1, fits - 1))}…`, x + 4, y + ROW / 2);
  }

  outline(i) {
    const {frames, pen} = this;
    const y = this.row(frames.depth[i]) * ROW - this.box.scrollTop;
    const inside = frames.depth[i] > frames.depth[this.zoom];
    const [x, width] = inside ? [this.place(frames.x[i]), this.place(frames.x[i] + frames.width[i])] : [0, this.wide];
    pen.strokeStyle = this.colors("ink");
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + 1, Math.max((inside ? width - x : width) - 2, 2), ROW - 3);
  }

  color(i) {
    const {frames, dark} = this;
    if (frames.compares) return this.difference(frames.delta[i]);
    const name = frames.names[frames.name[i]];
    const vary = frames.nameHash[frames.name[i]] % 13 - 6;
    const lightness = (dark ? 30 : 76) + vary / 2;
    if (frames.parent[i] < 0 || name.startsWith("[")) return dark ? "#3d4552" : "#cfd5de";
    const jdk = /^(java|javax|jdk|sun|com\.sun)\./.test(name);
    return jdk ? `hsl(${205 + vary} 45% ${lightness}%)` : `hsl(${32 + vary} 78% ${lightness}%)`;
  }

  // Red: a larger share than in the base; blue: a smaller one. Full colour at ten points of the whole.
  difference(delta) {
    const strength = Math.min(1, Math.sqrt(Math.abs(delta) / 0.1));
    if (strength < 0.05) return this.dark ? "#3d4552" : "#dfe3ea";
    const hue = delta > 0 ? 8 : 214;
    return this.dark ? `hsl(${hue} ${30 + 45 * strength}% ${30 + 8 * strength}%)`
      : `hsl(${hue} ${45 + 45 * strength}% ${90 - 22 * strength}%)`;
  }
}
