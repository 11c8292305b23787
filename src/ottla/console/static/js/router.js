// The address determines the page to show. Links are ordinary links, but the document is not loaded again.
import { html, signal } from "./preact.js";

export const address = signal(location.pathname + location.search);

export function go(path, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", path);
  address.value = path;
  scrollTo(0, 0);
}

// Stores the state of a page in the address, so that it can be reloaded and shared. Adds no entry to the history.
export function note(query) {
  const path = location.pathname + (query ? `?${query}` : "");
  history.replaceState(null, "", path);
  address.value = path;
}

addEventListener("popstate", () => (address.value = location.pathname + location.search));

export function Link({ to, children, ...rest }) {
  const follow = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${to} onClick=${follow} ...${rest}>${children}</a>`;
}

// A part of a path, decoded. If it is not encoded correctly, it stays unchanged.
export function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function match(pattern, path) {
  const names = [];
  const expression = pattern.replace(/:(\w+)/g, (_, name) => (names.push(name), "([^/]+)"));
  const found = new RegExp(`^${expression}$`).exec(path);
  return found && Object.fromEntries(names.map((name, index) => [name, decoded(found[index + 1])]));
}

export const path = (...parts) => "/" + parts.map(encodeURIComponent).join("/");
