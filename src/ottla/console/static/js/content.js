// The bytes of a key or a value: as a JSON tree, as text, or in hexadecimal. Text is shown, never run.
import { html, useState } from "./preact.js";
import { ask } from "./api.js";
import { bytes } from "./format.js";

const CHILDREN_MAX = 500;

function parsed(text) {
  const start = text.trimStart()[0];
  if (start !== "{" && start !== "[") return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function Tree({ name, value, depth = 0 }) {
  const label = name === undefined ? "" : html`<span class="key">${name}</span>: `;
  if (value === null || typeof value !== "object") {
    return html`<div class="leaf">${label}<span class=${typeof value}>${JSON.stringify(value)}</span></div>`;
  }
  const entries = Array.isArray(value) ? value.map((each, index) => [index, each]) : Object.entries(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return html`<div class="leaf">${label}${open}${close}</div>`;
  return html`
    <details open=${depth < 3}>
      <summary>${label}${open} <span class="soft">${entries.length}</span></summary>
      ${entries.slice(0, CHILDREN_MAX).map(([key, each]) => html`<${Tree} name=${key} value=${each} depth=${depth + 1} />`)}
      ${entries.length > CHILDREN_MAX && html`<div class="soft">and ${entries.length - CHILDREN_MAX} more</div>`}
      <div>${close}</div>
    </details>
  `;
}

function octets(content) {
  if (content.text !== undefined) return new TextEncoder().encode(content.text);
  return Uint8Array.from(atob(content.base64), (each) => each.charCodeAt(0));
}

const HEX_MAX = 16384;

function hexadecimal(content) {
  const data = octets(content).slice(0, HEX_MAX);
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.slice(at, at + 16)];
    const hex = row.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

export function Content({ content, address }) {
  const [loaded, setLoaded] = useState(null);
  const [problem, setProblem] = useState(null);
  const shown = loaded ?? content;
  const tree = shown?.text === undefined ? undefined : parsed(shown.text);
  const [chosen, setChosen] = useState(null);
  if (shown === null) return html`<span class="soft">null</span>`;
  const ways = [...(tree === undefined ? [] : ["tree"]), ...(shown.text === undefined ? [] : ["text"]), "hex"];
  const way = chosen && ways.includes(chosen) ? chosen : ways[0];
  const load = () => ask(address).then(setLoaded, setProblem);
  return html`
    <div class="bar">
      ${ways.map((each) => html`<button class="plain" aria-pressed=${each === way ? "true" : "false"} onClick=${() => setChosen(each)}>${each}</button>`)}
      <span class="soft">${bytes(shown.bytes)}</span>
      ${shown.truncated && html`<button onClick=${load}>Load all of it</button>`}
    </div>
    ${problem && html`<p class="notice bad">${problem.message}</p>`}
    ${way === "tree" && html`<div class="tree"><${Tree} value=${tree} /></div>`}
    ${way === "text" && html`<pre>${shown.text}</pre>`}
    ${way === "hex" && html`<pre>${hexadecimal(shown)}</pre>`}
  `;
}
