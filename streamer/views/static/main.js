// What is shown follows the state; controls change the state; events bring what is new.

import {at, options} from "./dom.js";
import {Panel} from "./flame/panel.js";
import {connect} from "./live.js";
import {show} from "./methods.js";
import {change, onChange, state} from "./state.js";
import {named, stretch} from "./timeline/bins.js";
import {Timeline} from "./timeline/panel.js";

const CONTROLS = ["window", "weight", "process"];
const panel = new Panel();
const timeline = new Timeline();

function hot(view) {
  const selected = stretch(view.window) ? [view.window] : [];
  options(at("window"), [...view.windows, ...selected], [...view.windows, ...selected.map(named)], view.window);
  options(at("weight"), view.weights, view.weights, view.weight);
  if (!state.process) {
    const live = view.processes.map((p) => `${p.pid}@${p.host}`);
    options(at("process"), ["", ...live], ["all", ...view.processes.map((p) => `${p.pid} on ${p.host}`)], "");
  } else {
    options(at("process"), ["", state.process], ["all", state.process.replace("@", " on ")], state.process);
  }
  show(view);
  panel.windows(view);
  timeline.windows(view);
}

const listen = () => connect({hot, timeline: (told) => timeline.take(told), trees: () => panel.stale()});

for (const id of CONTROLS) at(id).addEventListener("change", () => change({[id]: at(id).value}));
at("live").checked = !state.paused;
at("live").addEventListener("change", () => change({paused: at("live").checked ? "" : "1"}));
at("controls").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("visibilitychange", listen);
onChange((keys) => {
  at("live").checked = !state.paused;
  if ([...CONTROLS, "paused"].some((key) => keys.has(key))) listen();
  panel.changed(keys);
  timeline.changed();
});
listen();
