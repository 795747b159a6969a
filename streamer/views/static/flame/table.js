// The same frames as text: the way to the frame that is zoomed to, and a table of what it calls.

import {at, element, percent} from "../dom.js";

const MOST = 200;

export function amount(frames, total) {
  const value = total / frames.unit;
  if (frames.weight === "time") return value >= 1 ? `${value.toFixed(2)} s` : `${(1000 * value).toFixed(2)} ms`;
  return `${value.toLocaleString("en")} ${frames.weight}`;
}

function signed(points) {
  const text = `${Math.abs(100 * points).toFixed(1)} points`;
  return Math.abs(points) < 5e-4 ? "unchanged" : points > 0 ? `+${text}` : `−${text}`;
}

// Frames that are no methods, in a few words (docs/cct.md).
const MEANING = {
  "[unknown caller]": "where tracing began or trace was lost: its callers are known when they are returned to",
  "[interpreter]": "what the interpreter runs from here on, where it is not known which methods these are",
  "[other]": "narrow frames put together",
  "[overflow]": "contexts for which there was no room",
};

function meaning(frames, i) {
  const name = frames.parent[i] < 0 ? "" : frames.names[frames.name[i]];
  const key = name.startsWith("[interpreter]") ? "[interpreter]" : name;
  return MEANING[key] ? ` (${MEANING[key]})` : "";
}

// One line about a frame, as it is read out.
export function line(frames, i) {
  const label = frames.label(i) + meaning(frames, i), share = frames.share(i);
  if (frames.compares) {
    const before = frames.base[i] / frames.baseWhole;
    return `${label}: ${percent(share)}, in the base ${percent(before)}, ${signed(share - before)}`;
  }
  const doubt = frames.doubt(i);
  const calls = frames.calls[i] ? `, ${frames.calls[i].toLocaleString("en")} invocations` : "";
  return `${label}: ${percent(share)} (${amount(frames, frames.total[i])}), itself ` +
    `${percent(frames.own[i] / frames.whole)}${calls}${doubt >= 5e-4 ? `, ${percent(doubt)} of it suspect` : ""}`;
}

function button(text, act) {
  const made = element("button", text, "frame");
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

export function path(frames, zoom, go) {
  const steps = frames.path(zoom).slice(-MOST).map((i) => {
    const item = element("li");
    if (i === zoom) {
      item.append(element("span", frames.label(i)));
      item.setAttribute("aria-current", "true");
    } else {
      item.append(button(frames.label(i), () => go(i)));
    }
    return item;
  });
  at("flame-path").replaceChildren(...steps);
}

export function table(frames, zoom, go) {
  const shown = frames.below(zoom).sort((a, b) => frames.width[b] - frames.width[a]).slice(0, MOST);
  const heads = frames.compares ? ["Called from there", "Share", "In the base", "Change"]
    : ["Called from there", "Share", "Itself", "Invocations", "Suspect"];
  const head = element("tr");
  head.append(...heads.map((text, k) => {
    const cell = element("th", text, k ? "number" : "");
    cell.scope = "col";
    return cell;
  }));
  const rows = shown.map((i) => {
    const row = element("tr");
    const name = element("td", undefined, "method");
    name.append(button(frames.label(i), () => go(i)));
    const share = frames.share(i), before = frames.compares ? frames.base[i] / frames.baseWhole : 0;
    const cells = frames.compares ? [percent(share), percent(before), signed(share - before)]
      : [percent(share), percent(frames.own[i] / frames.whole), frames.calls[i].toLocaleString("en"),
        percent(frames.doubt(i))];
    row.append(name, ...cells.map((text) => element("td", text, "number")));
    return row;
  });
  at("flame-rows").replaceChildren(...rows);
  at("flame-heads").replaceChildren(head);
  at("flame-caption").textContent = `${line(frames, zoom)}. ${rows.length ? "It calls:" : "It calls nothing that is told apart here."}`;
}
