// The JSON API. A failure is an Error with the message of the server.
import { useEffect, useState } from "./preact.js";

const PREFIX = "/api/v1";

export async function ask(path, { method = "GET", body, signal } = {}) {
  let response;
  try {
    response = await fetch(PREFIX + path, {
      method,
      signal,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The console does not answer. Is the broker running?");
  }
  const text = await response.text();
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Error(`The console answered ${response.status} without JSON.`);
  }
  if (!response.ok) {
    const error = new Error(found.code ? `${found.error} (${found.code})` : found.error);
    error.status = response.status;
    throw error;
  }
  return found;
}

export const topicPath = (topic, ...rest) => ["/topics", encodeURIComponent(topic), ...rest].join("/");
export const groupPath = (group, ...rest) => ["/groups", encodeURIComponent(group), ...rest].join("/");

// The reason why a stream does not start, because an EventSource does not report it. Null if it would start now.
export async function refusal(path) {
  const stopped = new AbortController();
  try {
    const response = await fetch(PREFIX + path, { signal: stopped.signal });
    return response.ok ? null : new Error((await response.json()).error);
  } catch {
    return new Error("The console does not answer. Is the broker running?");
  } finally {
    stopped.abort();
  }
}
export const stream = (path) => new EventSource(PREFIX + path);

// The answer of a path, requested again every `every` milliseconds. After a failure, the last answer is kept.
export function useAnswer(path, { every = 0 } = {}) {
  const [state, setState] = useState({ data: null, error: null });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const aborted = new AbortController();
    let timer;
    const load = async () => {
      try {
        const data = await ask(path, { signal: aborted.signal });
        setState({ data, error: null, path });
      } catch (error) {
        if (error.name === "AbortError") return;
        setState((old) => ({ data: old.path === path ? old.data : null, error, path }));
      }
      if (every && !aborted.signal.aborted) timer = setTimeout(load, document.hidden ? every * 5 : every);
    };
    load();
    return () => {
      aborted.abort();
      clearTimeout(timer);
    };
  }, [path, every, round]);
  const current = state.path === path ? state : { data: null, error: null };
  return { ...current, reload: () => setRound((old) => old + 1) };
}
