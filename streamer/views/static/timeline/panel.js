// The timeline with its controls: takes views of /api/timeline, and leads focus and selection through them.
// A selection is the window of all the page (A), or the base that it is compared with (B).

import {at, element, percent, words} from "../dom.js";
import {change, state} from "../state.js";
import {Bins, WHY, group, named, stretch} from "./bins.js";
import {Lanes} from "./paint.js";

const MOST_ROWS = 400;

export class Timeline {
  constructor() {
    this.box = at("timeline-box");
    this.lanes = new Lanes(this.box, at("timeline-canvas"));
    [this.bins, this.focus, this.anchor, this.drag, this.turn] = [null, -1, -1, null, 0];
    [this.shown, this.lengths] = ["", new Map()];
    at("height").addEventListener("change", () => change({height: at("height").value}));
    at("timeline-newest").addEventListener("click", () => this.newest());
    at("timeline-controls").addEventListener("submit", (event) => event.preventDefault());
    at("timeline-table").addEventListener("toggle", () => this.table());
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("pointerdown", (event) => this.down(event));
    this.box.addEventListener("pointermove", (event) => this.move(event));
    this.box.addEventListener("pointerup", () => this.up());
    this.box.addEventListener("pointercancel", () => { this.drag = null; this.show(); });
    this.box.addEventListener("pointerleave", () => this.say());
    this.changed();
  }

  // What /api/hot says of the windows.
  windows(view) {
    this.shown = view.window;
    this.lengths = new Map(view.windows.map((label) => [label, seconds(label)]));
    this.show();
  }

  take(told) {
    const focused = this.focus >= 0 ? this.bins.begins(this.focus) : null;
    const anchored = this.anchor >= 0 ? this.bins.begins(this.anchor) : null;
    const dragged = this.drag?.map((i) => this.bins.begins(i));
    this.bins = new Bins(told);
    at("timeline").classList.toggle("empty", !this.bins.count);
    at("timeline-why").hidden = this.bins.count > 0;
    if (!this.bins.count) return;
    this.focus = focused === null ? -1 : this.bins.at(focused);
    this.anchor = anchored === null ? -1 : this.bins.at(anchored);
    this.drag &&= dragged.map((time) => this.bins.at(time));
    this.lanes.take(this.bins);
    this.legend();
    this.show();
    this.table();
  }

  changed() {
    at("height").value = state.height;
    this.show();
  }

  show() {
    const {bins, lanes} = this;
    at("timeline-newest").disabled = !stretch(state.window) && !stretch(state.base);
    if (!bins?.count) return;
    lanes.bytes = state.height === "bytes";
    lanes.window = bins.span(state.window || this.shown, this.lengths);
    lanes.base = state.base ? bins.span(state.base, this.lengths) : null;
    if (this.drag) {
      const [from, to] = this.drag;
      lanes[this.target()] = [Math.min(from, to), Math.max(from, to) + 1];
    }
    lanes.focus = this.focus;
    lanes.soon();
    this.say();
    this.item();
  }

  target() { return at("picks").value || "window"; }

  say(i = this.focus) {
    const {bins} = this;
    if (!bins?.count) return;
    at("timeline-said").textContent = i >= 0 ? bins.line(i) : this.summary();
  }

  summary() {
    const shown = state.window || this.shown;
    const gone = stretch(state.window) && !this.bins.span(state.window, this.lengths)
      ? ": nothing is kept of that time any more" : "";
    const base = stretch(state.base) ? `, compared with ${named(state.base)}` : "";
    return shown ? `Shown below: ${named(shown)}${gone}${base}.` : "";
  }

  legend() {
    const {bins, lanes} = this;
    const entry = (color, text) => {
      const item = element("li"), swatch = element("span", undefined, "swatch");
      swatch.style.background = `var(--${color})`;
      item.append(swatch, text);
      return item;
    };
    const whole = bins.total.reduce((a, b) => a + b, 0) || 1;
    const methods = bins.bands.map((band) => entry(`band-${lanes.slots.get(band.method)}`,
      `${band.method} ${percent(band.weights.reduce((a, b) => a + b, 0) / whole)}`));
    const fate = [entry("good", "decoded"), ...(bins.shedding ? [entry("shed", "shed: not followed, to keep up")] : []),
      ...bins.causes.map((cause) => entry(`lost-${group(cause)}`,
        `lost: ${words(cause)}${WHY[cause] ? ` (${WHY[cause]})` : ""}`)),
      ...(bins.partly ? [entry("duty", "part of the time that was traced")] : [])];
    at("timeline-methods").replaceChildren(...methods, entry("rest", "other methods"));
    at("timeline-fates").replaceChildren(...fate);
  }

  // The bin in focus is the one item of the list that is there for a screen reader.
  item() {
    const {bins} = this;
    const i = this.focus < 0 ? bins.count - 1 : this.focus;
    const item = element("div", bins.line(i), "unseen");
    const within = this.lanes.window && this.lanes.window[0] <= i && i < this.lanes.window[1];
    item.id = `bin-${Math.round(bins.begins(i))}-${within ? "in" : "out"}`;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", String(Boolean(within)));
    item.setAttribute("aria-setsize", bins.count);
    item.setAttribute("aria-posinset", i + 1);
    at("timeline-item").replaceChildren(item);
    this.box.setAttribute("aria-activedescendant", item.id);
  }

  table() {
    if (!this.bins?.count || !at("timeline-table").open) return;
    const {bins} = this;
    const rows = [...Array(bins.count).keys()].reverse().slice(0, MOST_ROWS).map((i) => {
      const row = element("tr"), time = element("td"), button = element("button", bins.when(i), "frame");
      button.type = "button";
      button.addEventListener("click", () => this.select(i, i));
      time.append(button);
      const cells = bins.panes[i]
        ? [bins.amount(i), bins.heaviest(i, 3).map(([method, share]) => `${method} ${percent(share)}`).join(", "),
          bins.trace(i), percent(bins.duty[i], 0), bins.moves(i)]
        : ["nothing told", "", "", "", ""];
      row.append(time, ...cells.map((text) => element("td", text)));
      return row;
    });
    at("timeline-rows").replaceChildren(...rows);
  }

  // -- ways through it

  select(from, to) {
    change({[this.target()]: this.bins.stretch(from, to), ...(this.target() === "window" ? {} : {zoom: ""})});
  }

  newest() {
    change({window: stretch(state.window) ? "" : state.window, base: stretch(state.base) ? "" : state.base});
    [this.focus, this.anchor] = [-1, -1];
    this.show();
  }

  key(event) {
    const {bins} = this;
    if (!bins?.count || event.ctrlKey || event.metaKey || event.altKey) return;
    const here = this.focus < 0 ? bins.count : this.focus, last = bins.count - 1;
    const to = {ArrowLeft: here - 1, ArrowRight: here + 1, PageUp: here - 10, PageDown: here + 10, Home: 0, End: last}[event.key];
    if (to !== undefined) {
      if (event.shiftKey && this.anchor < 0) this.anchor = Math.min(here, last);
      if (!event.shiftKey) this.anchor = -1;
      this.focus = Math.max(0, Math.min(last, to));
      if (event.shiftKey) this.select(this.anchor, this.focus);
      this.show();
    } else if (event.key === "Enter" || event.key === " ") {
      if (this.focus >= 0) this.select(this.anchor < 0 ? this.focus : this.anchor, this.focus);
    } else if (event.key === "b") {
      at("picks").value = at("picks").value ? "" : "base";
    } else if (event.key === "Escape") {
      this.newest();
    } else {
      return;
    }
    event.preventDefault();
  }

  down(event) {
    if (!this.bins?.count || event.button) return;
    this.box.setPointerCapture(event.pointerId);
    const i = this.lanes.at(event.clientX);
    this.drag = [event.shiftKey && this.focus >= 0 ? this.focus : i, i];
    this.show();
  }

  move(event) {
    if (!this.bins?.count) return;
    const i = this.lanes.at(event.clientX);
    if (this.drag) {
      this.drag[1] = i;
      this.show();
    }
    this.say(i);
  }

  up() {
    if (!this.drag) return;
    const [from, to] = this.drag;
    this.drag = null;
    [this.focus, this.anchor] = [to, from === to ? -1 : from];
    this.select(from, to);
    this.show();
  }
}

// `10s`, `1m`, `2h`
function seconds(label) {
  return parseFloat(label) * {s: 1, m: 60, h: 3600}[label.at(-1)];
}
