// The kept panes in order of time (/api/timeline): each bin's parts, its words, and stretches of bins. No drawing.

import {bytes, percent, words} from "../dom.js";

const FEWEST = 60;  // bins that the width has room for: a young process does not fill it, and it does not grow at each

// Causes of holes, by where the trace was lost; each group has a colour.
const GROUPS = {
  full: ["overflow", "aux_full", "sideband_lost", "jit_lost", "transport", "unread"],
  down: ["capture_down", "worker_down", "hub_down"],
  code: ["code_missing", "code_pending", "desync", "bad_packet", "no_sync", "unknown_thread"],
};
// Where the name of a cause does not say it (docs/metrics.md, "Bytes").
export const WHY = {
  overflow: "the processor's own buffer was full", aux_full: "drained too late", sideband_lost: "switches were not told",
  jit_lost: "code was not told", transport: "a socket was full", unread: "there was no time to read it",
  code_missing: "code nobody told of",
  desync: "the trace contradicts the code", no_sync: "bytes before the first PSB",
  unknown_thread: "no switch yet says whose bytes these are; the few first ones of a process, at its start all there is",
};
export const group = (cause) => Object.keys(GROUPS).find((name) => GROUPS[name].includes(cause)) ?? "code";

export const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString("en-GB");

// `FROM..TO`, as a window or a base is named; null if it is a window's label.
export function stretch(text) {
  const found = /^(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)$/.exec(text);
  return found && {begin: Number(found[1]), end: Number(found[2])};
}

// A window's name for people.
export function named(window) {
  const of = stretch(window);
  return of ? `${clock(of.begin)} – ${clock(of.end)}` : `the last ${window}`;
}

export class Bins {
  constructor(answer) {
    Object.assign(this, answer);
    this.count = answer.panes.length;
    let room = FEWEST;
    while (room < this.count) room *= 2;
    this.room = Math.max(this.count, Math.min(room, answer.most));
    this.causes = [...new Set([...Object.keys(answer.lost), ...Object.keys(answer.holes)])]
      .filter((cause) => !["off_duty", "shed"].includes(cause));
    this.partly = answer.duty.some((duty, i) => answer.panes[i] && duty < 1);
    this.shedding = answer.shed.some((n) => n > 0);
  }

  begins(i) { return this.begin + i * this.seconds; }
  at(seconds) { return Math.max(0, Math.min(this.count - 1, Math.floor((seconds - this.begin) / this.seconds + 1e-6))); }

  // Of bins `from` to `to`, in either order.
  stretch(from, to) {
    const [first, last] = [Math.min(from, to), Math.max(from, to)];
    return `${this.begins(first).toFixed(3)}..${this.begins(last + 1).toFixed(3)}`;
  }

  // The first bin of a window and the one behind its last, cut to what is kept; null: nothing of it.
  span(window, lengths) {
    const of = stretch(window);
    const end = of ? Math.round((of.end - this.begin) / this.seconds) : this.count;
    const begin = of ? Math.round((of.begin - this.begin) / this.seconds)
      : this.count - Math.round((lengths.get(window) ?? 0) / this.seconds);
    return end <= 0 || begin >= this.count || end <= begin ? null : [Math.max(0, begin), Math.min(this.count, end)];
  }

  missed(i) { return this.causes.map((cause) => [cause, this.lost[cause]?.[i] ?? 0, this.holes[cause]?.[i] ?? 0]); }

  begun(i) {
    const [from, to] = [this.begins(i), this.begins(i + 1)];
    return this.events.filter((event) => event.time > from + 1e-3 && event.time <= to + 1e-3);
  }

  when(i) { return this.seconds > 1 ? `${clock(this.begins(i))}, ${this.seconds} s` : clock(this.begins(i)); }

  heaviest(i, most) {
    return this.bands.map((band) => [band.method, this.total[i] ? band.weights[i] / this.total[i] : 0])
      .filter(([, share]) => share >= 0.005).sort((a, b) => b[1] - a[1]).slice(0, most);
  }

  amount(i) { return `${this.total[i].toLocaleString("en")} ${this.weight === "time" ? "ticks" : this.weight}`; }

  trace(i) {
    if (!this.bytes[i] && !this.missed(i).some(([, , holes]) => holes)) return "no trace";
    const lost = this.missed(i).filter(([, size, holes]) => size || holes)
      .map(([cause, size, holes]) => `${size ? `${bytes(size)} ` : `${holes} × `}${words(cause)}`);
    const shed = this.shed[i] ? [`${percent(this.shed[i] / this.decoded[i], 0)} of it shed`] : [];
    return [`${bytes(this.bytes[i])} of trace`, ...shed, lost.length ? `lost: ${lost.join(", ")}` : "nothing lost"].join(", ");
  }

  moves(i) {
    return this.begun(i).map((e) => `${e.method} began to move, from ${percent(e.before)} to ${percent(e.now)}`).join("; ");
  }

  // One line about a bin, as it is read out.
  line(i) {
    if (!this.panes[i]) return `${this.when(i)}: nothing was told of this time`;
    const methods = this.heaviest(i, 3).map(([method, share]) => `${method} ${percent(share)}`).join(", ");
    const duty = this.duty[i] < 1 ? `${percent(this.duty[i], 0)} of the time traced` : "";
    return [`${this.when(i)}: ${this.amount(i)}`, methods, this.trace(i), duty, this.moves(i)].filter(Boolean).join("; ");
  }
}
