// Requests to the service. Server-sent events are read with fetch, because EventSource cannot send a token.

import { h } from "./dom.js";

let askForToken = null;

export function onUnauthorized(ask) {
  askForToken = ask;
}

function headers(more = {}) {
  const token = sessionStorage.getItem("token");
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

async function answer(method, path, body) {
  const options = { method, headers: headers() };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(path, options);
  if (response.status === 401 && askForToken && (await askForToken())) return answer(method, path, body);
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw Object.assign(new Error(problem.detail || response.statusText), { status: response.status });
}

export async function request(method, path, body) {
  const response = await answer(method, path, body);
  return response.status === 204 ? null : response.json();
}

// Download a file. A plain link cannot send the token, so the file is fetched first.
export async function save(path, name) {
  const file = URL.createObjectURL(await (await answer("GET", path)).blob());
  h("a", { href: file, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(file), 60000);
}

export const get = (path) => request("GET", path);

export function streamPath(key, rest = "") {
  return `/streams/${encodeURIComponent(key)}${rest}`;
}

// Follow a stream until stopped; after a disconnection, resume after the last observation.
export function follow(key, start, { observation, event, state }) {
  const control = new AbortController();
  let last = start - 1;
  let wait = 500;

  async function connect() {
    const response = await fetch(streamPath(key, `/live?from=${last + 1}`), {
      headers: headers({ "last-event-id": String(last) }),
      signal: control.signal,
    });
    if (!response.ok) throw new Error(`live: ${response.status}`);
    state("live");
    wait = 500;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const messages = text.split("\n\n");
      text = messages.pop();
      messages.forEach(handle);
    }
  }

  function handle(message) {
    const fields = Object.fromEntries(
      message.split("\n").filter((line) => line.includes(": ") && !line.startsWith(":"))
        .map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]),
    );
    if (fields.event === "observation") {
      last = Number(fields.id);
      observation(JSON.parse(fields.data));
    } else if (fields.event === "event") event(JSON.parse(fields.data));
    else if (fields.event === "gone") state("gone");
  }

  async function loop() {
    while (!control.signal.aborted) {
      try {
        await connect();
      } catch (error) {
        if (control.signal.aborted) return;
      }
      state("reconnecting");
      await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(5000, 2 * wait);
    }
  }

  loop();
  return () => control.abort();
}
