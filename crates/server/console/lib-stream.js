// Server-sent events. By `fetch` rather than `EventSource`, which hides why a stream was refused. It owns
// reconnecting after the last event, and closes while the page is hidden.
import { ApiError, send, withQuery } from "./lib-api.js";

const RETRY_MS_MAX = 15_000;

function parseEvent(block) {
  const event = { id: undefined, event: "message", data: "" };
  const data = [];
  for (const line of block.split(/\r\n|\n|\r/)) {
    const [field, value = ""] = line.split(/: ?(.*)/s);
    if (field === "data") data.push(value);
    else if (field === "event" || field === "id") event[field] = value;
  }
  event.data = data.join("\n");
  return data.length > 0 ? event : null;
}

async function readEvents(response, onEvent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffer += value;
    const blocks = buffer.split(/\r?\n\r?\n/);
    buffer = blocks.pop();
    for (const block of blocks) {
      const event = parseEvent(block);
      if (event) onEvent(event);
    }
  }
}

/**
 * Opens a stream. `onEvent({ id, event, data })` is called for each event, `onState("connecting" | "open" |
 * "paused" | "failed", error)` for each change of state. A refusal with 4xx is final. Returns a function that
 * closes.
 */
export function openStream(address, { query, onEvent, onState = () => {} }) {
  let closed = false;
  let lastId;
  let controller;
  let timer;
  let failures = 0;

  async function connect() {
    clearTimeout(timer);
    if (closed || document.hidden) return;
    controller = new AbortController();
    const { signal } = controller;
    onState("connecting");
    try {
      const headers = lastId === undefined ? {} : { "last-event-id": lastId };
      const response = await send("GET", withQuery(address, query), { headers, signal });
      failures = 0;
      onState("open");
      await readEvents(response, (event) => {
        lastId = event.id ?? lastId;
        onEvent(event);
      });
      retry(null);
    } catch (error) {
      if (!signal.aborted) retry(error);
    }
  }

  function retry(error) {
    const isFinal = error instanceof ApiError && error.status >= 400 && error.status < 500 &&
      error.status !== 429;
    if (closed) return;
    onState(isFinal ? "failed" : "connecting", error);
    if (isFinal) return;
    failures += 1;
    timer = setTimeout(connect, Math.min(500 * 2 ** failures, RETRY_MS_MAX));
  }

  function onVisibility() {
    clearTimeout(timer);
    controller?.abort();
    if (document.hidden) onState("paused");
    else connect();
  }

  document.addEventListener("visibilitychange", onVisibility);
  connect();
  return () => {
    closed = true;
    clearTimeout(timer);
    controller?.abort();
    document.removeEventListener("visibilitychange", onVisibility);
  };
}
