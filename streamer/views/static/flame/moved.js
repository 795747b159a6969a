// Contexts that gained or lost against the time before (/api/shift): each leads to its frame in the difference.

import {at, element, percent} from "../dom.js";

const SHOWN = 8;

// The frame of a path of methods; where call sites keep several apart the widest, where narrow ones are put together
// the deepest that is left.
export function follow(frames, methods) {
  let here = 0;
  for (const name of methods) {
    const next = frames.below(here).filter((k) => frames.names[frames.name[k]] === name)
      .reduce((best, k) => (best < 0 || frames.width[k] > frames.width[best] ? k : best), -1);
    if (next < 0) break;
    here = next;
  }
  return here;
}

export function moved(told, go) {
  const items = told.contexts.slice(0, SHOWN).map((context) => {
    const item = element("li");
    const [own] = context.path.slice(-1), caller = context.path.at(-2);
    const button = element("button", caller ? `${own}, called by ${caller}` : own, "frame");
    button.type = "button";
    button.addEventListener("click", () => go(context.path));
    const up = context.gain > 0;
    const by = element("span", `${up ? "▲ +" : "▼ −"}${Math.abs(100 * context.gain).toFixed(1)}`, up ? "up" : "down");
    item.append(by, " ", button, ` (${percent(context.before)} before, ${percent(context.now)} now)`);
    return item;
  });
  at("moved").replaceChildren(...items);
  at("moved-title").parentElement.hidden = !items.length;
}
