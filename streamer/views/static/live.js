// Events of /api/live: `hot` and `timeline`, views; `trees`, more trees have come. The browser connects again by itself.

import {at} from "./dom.js";
import {query, state} from "./state.js";

let source = null;

export function connect({hot, timeline, trees}) {
  source?.close();
  source = null;
  if (document.hidden) return;
  const asked = query(state.weight ? {weight: state.weight} : {});
  if (state.paused) {
    once("hot", asked, hot);
    once("timeline", asked, timeline);
    return;
  }
  source = new EventSource(`api/live?${asked}`);
  source.addEventListener("hot", (event) => hot(JSON.parse(event.data)));
  source.addEventListener("timeline", (event) => timeline(JSON.parse(event.data)));
  source.addEventListener("trees", trees);
  source.addEventListener("error", async (event) => {
    at("state").className = "bad";
    at("state").textContent = "no answer: connecting again…";
    if (event.target.readyState !== EventSource.CLOSED) return;
    const answer = await fetch(`api/hot?${asked}`);  // its reason: an event source is not told it
    const {error} = await answer.json();
    at("state").textContent = `no answer: ${error ?? `HTTP status ${answer.status}`}`;
  });
}

async function once(view, asked, take) {
  const answer = await fetch(`api/${view}?${asked}`), told = await answer.json();
  if (answer.ok) take(told);
  else at("state").textContent = `no answer: ${told.error}`;
}
