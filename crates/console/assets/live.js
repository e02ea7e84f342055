// Live updates: the server's events, read with the token in a header, which EventSource cannot send.

import { Unauthorized, open } from "./api.js";

const RETRY_MS = 2000;
// "tick" with the server's event, "back" when the stream begins, "away" with the reason when it breaks.
export const live = new EventTarget();

let running = null;
export let last = null;

const tell = (kind, detail) => live.dispatchEvent(new CustomEvent(kind, { detail }));
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function follow(signal) {
  const response = await open("/v1/events", { signal, headers: { accept: "text/event-stream" } });
  tell("back");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text
        .slice(0, end)
        .split("\n")
        .filter((line) => line.startsWith("data:"));
      text = text.slice(end + 2);
      if (lines.length === 0) continue;
      last = JSON.parse(lines.map((line) => line.slice(5)).join("\n"));
      tell("tick", last);
    }
  }
}

export function start() {
  if (running) return;
  const abort = new AbortController();
  running = abort;
  (async () => {
    while (!abort.signal.aborted) {
      let reason = "the server ended the connection";
      try {
        await follow(abort.signal);
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error instanceof Unauthorized) {
          running = null;
          return tell("unauthorized");
        }
        reason = error.message;
      }
      tell("away", reason);
      await pause(RETRY_MS);
    }
  })();
}

export function stop() {
  running?.abort();
  running = null;
}
