// The page's state is in the URL's fragment, all of it: a link shows the same.

const NONE = {
  window: "", weight: "", process: "", paused: "",
  height: "", by: "instructions", certain: "", thread: "", base: "", shape: "", find: "", zoom: "",
};
const readers = [];

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(Object.entries(NONE).map(([key, none]) => [key, given.get(key) ?? none]));
}

export let state = read();

function tell(before) {
  const changed = new Set(Object.keys(NONE).filter((key) => before[key] !== state[key]));
  if (changed.size) for (const reader of readers) reader(changed);
}

// `reader` is called with the set of the keys that have changed.
export const onChange = (reader) => readers.push(reader);

export function change(values) {
  const before = state;
  state = {...state, ...values};
  const told = new URLSearchParams(Object.entries(state).filter(([key, value]) => value !== NONE[key]));
  const hash = `${told}` ? `#${told}` : location.pathname;
  if ("zoom" in values && state.zoom !== before.zoom) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
  tell(before);
}

function again() {
  const before = state;
  state = read();
  tell(before);
}
addEventListener("hashchange", again);
addEventListener("popstate", again);

// The window and the process, for a question to the streamer.
export function query(more = {}) {
  const asked = new URLSearchParams(more);
  if (state.window) asked.set("window", state.window);
  if (state.process) {
    const [pid, host] = state.process.split(/@(.*)/);
    asked.set("pid", pid);
    asked.set("host", host);
  }
  return asked;
}
