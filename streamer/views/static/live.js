// Events of /api/live: `hot`, a view; `trees`, more trees have come. The browser connects again by itself.

import {at} from "./dom.js";
import {query, state} from "./state.js";

let source = null;

export function connect({hot, trees}) {
  source?.close();
  source = null;
  if (state.paused || document.hidden) return;
  const asked = query(state.weight ? {weight: state.weight} : {});
  source = new EventSource(`api/live?${asked}`);
  source.addEventListener("hot", (event) => hot(JSON.parse(event.data)));
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
