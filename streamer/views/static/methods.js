// The table of hot methods, with the pipeline's figures above it: a view of /api/hot.

import {at, bytes, element, name as nameOf, percent, words} from "./dom.js";
import {named} from "./timeline/bins.js";

function row(number, name, share, sure, largest, shift, kinds, invocations, bytecodes, className) {
  const tr = element("tr", undefined, className);
  tr.append(element("td", number, "number"), nameOf("td", name, "method"));
  const cell = element("td", undefined, "share");
  const track = element("span", undefined, "track");
  const bar = element("span");
  bar.style.width = `${largest ? Math.min(100, 100 * share / largest) : 0}%`;
  track.append(bar);
  track.setAttribute("aria-hidden", "true");
  cell.append(track, sure >= share && sure ? `${(100 * share).toFixed(0)} ± ${percent(sure, 0)}?`
    : sure ? `${(100 * share).toFixed(1)} ± ${percent(sure)}` : percent(share));
  tr.append(cell, shift, element("td", kinds), element("td", invocations, "number calls"),
    element("td", bytecodes, "number bytecodes"));
  return tr;
}

function shiftCell(method) {
  const cell = element("td");
  const points = 100 * (method.now - method.before);
  if (Math.abs(points) < 0.5) return cell;
  const up = points > 0;
  const text = `${up ? "▲ +" : "▼ −"}${Math.abs(points).toFixed(1)}`;
  const mark = element("span", text, `${up ? "up" : "down"}${method.moved ? " moved" : ""}`);
  mark.title = `${percent(method.before)} before, ${percent(method.now)} now`;
  cell.append(mark);
  return cell;
}

const names = {interpreted: "interpreter", c1: "C1", c2: "C2", native_wrapper: "native", stub: "stub", unknown: "?"};

function kinds(method) {
  return Object.entries(method.kinds)
    .filter(([, share]) => share >= 0.01)
    .sort((a, b) => b[1] - a[1])
    .map(([kind, share]) => (share > 0.99 ? names[kind] : `${names[kind]} ${percent(share, 0)}`))
    .join(", ");
}

function showCoverage(view) {
  const {coverage} = view;
  const bar = at("seen-bar");
  if (!coverage.bytes) {
    at("seen").textContent = "No trace bytes in this window.";
    bar.replaceChildren();
    bar.setAttribute("aria-label", "no trace bytes in this window");
    return;
  }
  const lost = Object.entries(coverage.lost).sort((a, b) => b[1] - a[1]);
  const part = (size, title, className) => {
    const span = element("span", undefined, className);
    span.style.width = `${100 * size / coverage.bytes}%`;
    span.title = title;
    return span;
  };
  const followed = part(coverage.decoded - coverage.shed, "decoded", "decoded");
  const shed = coverage.shed ? [part(coverage.shed, "decoded by its addresses only (shed)", "decoded shed")] : [];
  bar.replaceChildren(followed, ...shed, ...lost.map(([c, n]) => part(n, words(c), "")));
  // rounded down, so that 100 % means all
  const text = `${percent(Math.floor(1000 * coverage.ratio) / 1000)} of ${bytes(coverage.bytes)} of trace decoded` +
    `${coverage.shed ? `, ${percent(Math.floor(1000 * coverage.shed / coverage.decoded) / 1000)} of that by its ` +
      "addresses only (shed)" : ""}; ` +
    (lost.length ? `lost: ${lost.map(([c, n]) => `${bytes(n)} ${words(c)}`).join(", ")}` : "nothing lost");
  at("seen").textContent = `${text}. Since the start: ${bytes(view.run.bytes)}, ` +
    `${view.run.bytes - view.run.decoded ? bytes(view.run.bytes - view.run.decoded) + " lost" : "nothing lost"}` +
    `${Object.entries(view.holes).map(([c, n]) => `; ${n} × ${words(c)}`).join("")}.`;
  bar.setAttribute("aria-label", text);
}

function showFigures(view) {
  const live = view.processes.filter((p) => p.live);
  const largest = (key) => live.map((p) => p[key]).filter((v) => v !== null).reduce((a, b) => Math.max(a, b), -1);
  const [lag, distance, score] = ["lag_seconds", "shift_distance", "shift_score"].map(largest);
  const figures = [
    ["Processes", String(live.length)],
    ["Weight", `${view.total.toLocaleString("en")} ${view.weight === "time" ? "ticks" : view.weight}`],
    ["Lag", lag < 0 ? "–" : `${lag.toFixed(1)} s`],
    ["Shift distance", distance < 0 ? "–" : `${percent(distance, 0)}${score >= 4 ? " (unusual)" : ""}`],
    ["Restarts", String(view.restarts)],
    ["Late reports", String(view.processes.reduce((n, p) => n + p.late, 0))],
  ];
  at("figures").replaceChildren(...figures.map(([name, value]) => {
    const div = element("div");
    div.append(element("dt", name), element("dd", value));
    return div;
  }));
}

// Not known: "–".
function count(number, mark) {
  return number === null ? "–" : mark + number.toLocaleString("en");
}

export function show(view) {
  const state = at("state");
  const trouble = view.down.map((name) => `${name} is down`).join(", ");
  state.textContent = trouble || (view.ready ? `live, fidelity ${view.fidelity}` : "waiting for the first pane");
  state.className = trouble ? "bad" : view.ready ? "good" : "";
  showFigures(view);
  showCoverage(view);
  const part = view.duty < 1 ? `, ${percent(view.duty)} of it traced` : "";
  const early = view.methods.some((m) => m.sure && m.sure >= m.share)
    ? "; ?: too early to say, the interval is wider than the share" : "";
  at("caption").textContent = `Observed share of ${view.weight} in ${named(view.window)}${part}${early}`;
  const largest = Math.max(view.other, ...view.methods.map((m) => m.share), 0);
  const {classList} = at("methods").parentElement;
  classList.toggle("without-calls", view.methods.every((m) => m.invocations === 0));
  classList.toggle("without-bytecodes", !view.methods.some((m) => m.bytecodes));
  const rows = view.methods.map((m, i) => row(String(i + 1), m.method, m.share, m.sure, largest, shiftCell(m), kinds(m),
    count(m.invocations, m.at_least ? "≥ " : ""), count(m.bytecodes, m.bytecodes_about ? "≈ " : "")));
  if (view.other > 0) rows.push(row("", "other", view.other, 0, largest, element("td"), "", "", "", "other"));
  at("methods").replaceChildren(...rows);
}
