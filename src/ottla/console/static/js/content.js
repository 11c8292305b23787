// The bytes of a key or a value: as a JSON tree, as text, or in hexadecimal. Text is shown, but never executed.
import { html, useMemo, useState } from "./preact.js";
import { ask } from "./api.js";
import { bytes } from "./format.js";

const CHILDREN_MAX = 200;
const OPEN_MAX = 30;
const TEXT_MAX = 100000;
const LOADED_BYTES = 1 << 20;

// An integer that is too large for JavaScript is kept as it was written.
class Exact {
  constructor(source) {
    this.source = source;
  }
}

const exact = (_, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? new Exact(context.source) : value;

function parsed(text) {
  const start = text.trimStart()[0];
  if (start !== "{" && start !== "[") return undefined;
  try {
    return JSON.parse(text, exact);
  } catch {
    return undefined;
  }
}

// A tree that is expanded down to `deep` levels, except for nodes with many entries.
export function Tree({ name, value, depth = 0, deep = 3 }) {
  // Collapsed nodes are not drawn, so that large values stay fast.
  const [open, setOpen] = useState(depth < deep && (depth === 0 || value === null || typeof value !== "object" || Object.keys(value).length <= OPEN_MAX));
  const label = name === undefined ? "" : html`<span class="key">${name}</span>: `;
  if (value instanceof Exact) return html`<div class="leaf">${label}<span class="number">${value.source}</span></div>`;
  if (value === null || typeof value !== "object") {
    return html`<div class="leaf">${label}<span class=${typeof value}>${JSON.stringify(value)}</span></div>`;
  }
  const entries = Array.isArray(value) ? value.map((each, index) => [index, each]) : Object.entries(value);
  const [begin, end] = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return html`<div class="leaf">${label}${begin}${end}</div>`;
  return html`
    <details open=${open} onToggle=${(event) => setOpen(event.target.open)}>
      <summary>${label}${begin} <span class="soft">${entries.length}</span></summary>
      ${open &&
      html`
        ${entries.slice(0, CHILDREN_MAX).map(([key, each]) => html`<${Tree} name=${key} value=${each} depth=${depth + 1} deep=${deep} />`)}
        ${entries.length > CHILDREN_MAX && html`<div class="soft">and ${entries.length - CHILDREN_MAX} more</div>`}
        <div>${end}</div>
      `}
    </details>
  `;
}

function octets(content) {
  if (content.text !== undefined) return new TextEncoder().encode(content.text);
  return Uint8Array.from(atob(content.base64), (each) => each.charCodeAt(0));
}

const HEX_MAX = 16384;

function hexadecimal(content) {
  const begin = content.text === undefined ? { base64: content.base64.slice(0, Math.ceil(HEX_MAX / 3) * 4) } : { text: content.text.slice(0, HEX_MAX) };
  const data = octets(begin).slice(0, HEX_MAX);
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
  const tree = useMemo(() => (shown?.text === undefined ? undefined : parsed(shown.text)), [shown]);
  const [chosen, setChosen] = useState(null);
  if (shown === null) return html`<span class="soft">null</span>`;
  const decoded = shown.decoded;
  const ways = [...(decoded ? ["decoded"] : []), ...(tree === undefined ? [] : ["tree"]), ...(shown.text === undefined ? [] : ["text"]), "hex"];
  const way = chosen && ways.includes(chosen) ? chosen : ways[0];
  const load = () => ask(`${address}&bytes=${LOADED_BYTES}`).then(setLoaded, setProblem);
  return html`
    <div class="bar">
      ${ways.map((each) => html`<button class="plain" aria-pressed=${each === way ? "true" : "false"} onClick=${() => setChosen(each)}>${each}</button>`)}
      <span class="soft">${bytes(shown.bytes)}</span>
      ${shown.truncated && !loaded && html`<button onClick=${load}>Load more</button>`}
      ${shown.bytes > HEX_MAX && html`<a class="button" download href=${`/api/v1${address.replace("?", "/raw?")}`}>Save all of it</a>`}
    </div>
    ${way === "decoded" && html`<div class="soft">${decoded.schema}</div>${decoded.problem ? html`<p class="notice bad">${decoded.problem}</p>` : html`<div class="tree"><${Tree} value=${decoded.value} /></div>`}`}
    ${problem && html`<p class="notice bad">${problem.message}</p>`}
    ${way === "tree" && html`<div class="tree"><${Tree} value=${tree} /></div>`}
    ${way === "text" && html`<pre>${shown.text.slice(0, TEXT_MAX)}</pre>`}
    ${(shown.truncated || (way === "text" && shown.text.length > TEXT_MAX) || (way === "hex" && shown.bytes > HEX_MAX)) && html`<p class="soft">Only the beginning is shown.</p>`}
    ${way === "hex" && html`<pre>${hexadecimal(shown)}</pre>`}
  `;
}
