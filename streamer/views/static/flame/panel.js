// The flame graph with its controls: asks for frames, and leads focus, zoom and search through them.

import {at, element, options, percent} from "../dom.js";
import {change, query, state} from "../state.js";
import {named, stretch} from "../timeline/bins.js";
import {Frames} from "./frames.js";
import {follow, moved} from "./moved.js";
import {Painter} from "./paint.js";
import {line, path, table} from "./table.js";

const CONTROLS = ["by", "certain", "thread", "base", "shape"];
const ASKED = new Set(["window", "process", "by", "certain", "thread", "base"]);
const FILE = "file";
const BEFORE = "before";  // the minute before the shortest window: what a shift is measured against

export class Panel {
  constructor() {
    this.box = at("flame-box");
    this.painter = new Painter(this.box, at("flame-canvas"));
    [this.frames, this.file, this.asking, this.seconds] = [null, null, null, 10];
    [this.told, this.took, this.later, this.turn, this.wanted] = [-Infinity, 0, 0, 0, null];
    for (const id of CONTROLS) at(id).addEventListener("change", () => this.chosen(id));
    at("find").addEventListener("input", () => change({find: at("find").value}));
    at("file").addEventListener("change", () => this.choose(at("file").files[0]));
    at("flame-reset").addEventListener("click", () => this.zoom(0));
    at("flame-controls").addEventListener("submit", (event) => event.preventDefault());
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("click", (event) => this.click(event));
    this.box.addEventListener("mousemove", (event) => this.hover(event));
    this.box.addEventListener("mouseleave", () => this.say());
    this.controls();
    this.ask();
  }

  controls() {
    if (this.view) this.windows(this.view);
    for (const id of [...CONTROLS, "find"]) if (at(id).value !== state[id]) at(id).value = state[id];
  }

  // -- what is asked

  windows(view) {
    [this.view, this.seconds] = [view, view.seconds];
    if (!this.frames?.count) this.stale();  // what is awaited may have changed
    const others = view.windows.filter((window) => window !== view.window).concat(stretch(state.base) ? [state.base] : []);
    const values = ["", BEFORE, ...others, FILE], file = this.file ? `file ${this.file.name}` : "a file…";
    const windows = others.map(named);
    options(at("base"), values, ["nothing", "the minute before", ...windows, file], state.base);
    at("base").options[values.length - 1].textContent = file;
  }

  chosen(id) {
    if (id === "base" && at("base").value === FILE) {
      at("base").value = state.base;
      at("file").click();
    } else {
      change({[id]: at(id).value, ...(id === "thread" ? {zoom: ""} : {})});
    }
  }

  async choose(file) {
    if (!file) return;
    this.file = file;
    if (state.base === FILE) this.ask();
    else change({base: FILE});
  }

  changed(keys) {
    this.controls();
    if ([...keys].some((key) => ASKED.has(key))) this.ask();
    else this.show();
  }

  // There is more: a long window changes slowly, and is asked for a tenth of its length apart; and a large tree not so
  // often that its making takes more than a fifth of the time.
  stale() {
    if (state.paused || this.later || (stretch(state.window) && (!state.base || stretch(state.base)))) return;
    const wait = Math.max(0, this.told + Math.max(100 * this.seconds, 5 * this.took) - performance.now());
    this.later = setTimeout(() => this.ask(), wait);
  }

  async ask() {
    clearTimeout(this.later);
    this.later = 0;
    this.asking?.abort();
    this.asking = new AbortController();
    const asked = query({weight: state.by});
    if (state.certain) asked.set("observed", "1");
    if (state.thread) asked.set("thread", state.thread);
    if (state.base && state.base !== FILE) asked.set("base", state.base);
    this.exports(asked);
    const posted = state.base !== FILE ? {} : this.file
      ? {method: "POST", body: this.file, headers: {"Content-Type": "application/octet-stream"}} : null;
    if (!posted) return this.fail("Choose the file again: a link cannot hold it.");
    const asked_at = performance.now();
    try {
      const answer = await fetch(`api/flame?${asked}`, {signal: this.asking.signal, ...posted});
      const told = await answer.json();
      if (!answer.ok) return this.fail(told.error);
      this.told = performance.now();
      this.took = this.told - asked_at;
      this.take(told);
      const shift = await fetch(`api/shift?${query({weight: state.by})}`, {signal: this.asking.signal});
      if (shift.ok) moved(await shift.json(), (path) => this.lead(path));
    } catch (error) {
      if (error.name !== "AbortError") this.fail(`no answer: ${error.message}`);
    }
  }

  exports(asked) {
    for (const link of at("flame-save").querySelectorAll("a")) {
      const more = new URLSearchParams(asked);
      more.delete("base");
      more.set("format", link.dataset.format);
      link.href = `api/export?${more}`;
    }
  }

  fail(why) {
    at("flame-why").textContent = why;
    at("flame-why").hidden = false;
  }

  take(told) {
    const focus = this.frames && this.painter.focus >= 0 ? this.frames.id(this.painter.focus) : "";
    this.frames = new Frames(told);
    if (told.why) this.fail(told.why);
    else at("flame-why").hidden = true;
    at("flame").classList.toggle("empty", !this.frames.count);
    const threads = told.threads.map(([tid]) => String(tid)), sum = told.threads.reduce((all, [, n]) => all + n, 0) || 1;
    if (state.thread && !threads.includes(state.thread)) threads.push(state.thread);
    const labels = threads.map((tid, k) => {
      const [, spent, name] = told.threads[k] ?? [tid, 0, ""];
      return `${name ? `${name}, ` : ""}${tid} (${percent(spent / sum, 0)})`;
    });
    options(at("thread"), ["", ...threads], ["all", ...labels], state.thread);
    this.painter.frames = this.frames;
    this.painter.focus = focus ? this.frames.find(focus) : -1;
    this.show();
    this.arrive();
  }

  // -- what is shown

  show() {
    const {frames, painter} = this;
    if (!frames?.count) return;
    const zoom = frames.find(state.zoom);
    painter.zoom = Math.max(0, zoom);
    if (zoom < 0) this.fail("The context that the link zooms to is not in this window.");
    painter.upwards = state.shape === "flame";
    painter.found = frames.search(state.find);
    at("found").textContent = painter.found ? `${percent(painter.found.share)} in ${painter.found.count} contexts` : "";
    at("flame-legend").hidden = !frames.compares;
    at("flame-reset").disabled = painter.zoom === 0;
    path(frames, painter.zoom, (i) => this.zoom(i));
    table(frames, painter.zoom, (i) => this.zoom(i));
    this.say();
    painter.soon();
  }

  say(i = this.painter.focus) {
    const {frames} = this;
    if (!frames?.count) return;
    const hidden = this.wider() + (frames.hidden ? ` ${frames.hidden.toLocaleString("en")} narrow contexts are put together.` : "");
    at("flame-said").textContent = i >= 0 ? line(frames, i) : `${line(frames, this.painter.zoom)}.${hidden}`;
  }

  // Old panes are kept together, so that a selection may have more of them than was asked for.
  wider() {
    const found = Object.entries(this.frames.stretches ?? {}).filter(([name, [begin, end]]) => {
      const asked = stretch(state[name]);
      return asked && (asked.begin - begin > 0.5 || end - asked.end > 0.5);
    });
    return found.map(([name, of]) => ` Contexts of that time are kept together: ${name === "base" ? "the base is" : "shown are those of"} ` +
      `${named(`${of[0]}..${of[1]}`)}.`).join("");
  }

  // -- ways through it

  // To a context that moved, in the difference that shows it.
  lead(path) {
    this.wanted = path;
    if (state.base === BEFORE && !state.window && !state.thread) this.arrive();
    else change({base: BEFORE, window: "", thread: ""});
  }

  arrive() {
    if (!this.wanted || (!this.frames.compares && this.frames.count)) return;
    const i = follow(this.frames, this.wanted);
    this.wanted = null;
    if (this.frames.count) this.zoom(i);
  }

  zoom(i) {
    change({zoom: i > 0 ? this.frames.id(i) : ""});
    this.focus(i);
  }

  // The frame in focus is the one item of the tree that is there for a screen reader.
  focus(i) {
    const {frames, painter} = this;
    painter.focus = i;
    painter.show(i);
    painter.soon();
    const item = element("div", line(frames, i), "unseen");
    this.turn = 1 - this.turn;  // another id: the same one would not be read out again
    item.id = `frame-${this.turn}`;
    item.setAttribute("role", "treeitem");
    item.setAttribute("aria-level", frames.depth[i] + 1);
    item.setAttribute("aria-selected", "true");
    const up = frames.parent[i];
    item.setAttribute("aria-setsize", up < 0 ? 1 : frames.children[up]);
    item.setAttribute("aria-posinset", up < 0 ? 1 : i - frames.first[up] + 1);
    if (frames.children[i]) item.setAttribute("aria-expanded", "true");
    at("flame-item").replaceChildren(item);
    this.box.setAttribute("aria-activedescendant", item.id);
    this.say();
  }

  key(event) {
    const {frames, painter} = this;
    if (!frames?.count || event.ctrlKey || event.metaKey || event.altKey) return;
    const at_ = painter.focus < 0 ? painter.zoom : painter.focus;
    const [callee, caller] = painter.upwards ? ["ArrowUp", "ArrowDown"] : ["ArrowDown", "ArrowUp"];
    const to = {
      [callee]: () => frames.heaviest(at_),
      [caller]: () => frames.parent[at_],
      ArrowLeft: () => frames.beside(at_, -1),
      ArrowRight: () => frames.beside(at_, 1),
      Home: () => 0,
    }[event.key];
    if (to) {
      const next = to();
      this.focus(next >= 0 ? next : at_);
    } else if (event.key === "Enter" || event.key === " ") {
      this.zoom(at_);
    } else if (event.key === "Escape" || event.key === "Backspace") {
      this.zoom(Math.max(0, frames.parent[painter.zoom]));
    } else if (event.key === "/") {
      at("find").focus();
    } else {
      return;
    }
    event.preventDefault();
  }

  click(event) {
    const i = this.painter.at(event.clientX, event.clientY);
    if (i >= 0) this.zoom(i);
  }

  hover(event) {
    const i = this.painter.at(event.clientX, event.clientY);
    this.box.style.cursor = i >= 0 ? "pointer" : "default";
    this.say(i >= 0 ? i : this.painter.focus);
  }
}
