// Components that several pages use.
import { html, useEffect, useMemo, useRef, useState } from "./preact.js";
import { go, Link } from "./router.js";

export function Problem({ error, children }) {
  if (!error && !children) return null;
  return html`<p class="notice bad" role="alert">${error ? error.message : children}</p>`;
}

export function Waiting({ answer, children }) {
  if (answer.data === null) {
    return answer.error ? html`<${Problem} error=${answer.error} />` : html`<p class="loading">Loading…</p>`;
  }
  return html`<${Problem} error=${answer.error} />${children(answer.data)}`;
}

const ROWS_MAX = 200;

// Columns: {name, value(row), show(row), number}. Long tables are shown in steps, so that the page stays fast.
// With `stacked`, the cells of a row are stacked on a narrow page.
export function Table({ columns, rows, link, label, stacked, empty = "Nothing here." }) {
  const [order, setOrder] = useState({ column: 0, down: false });
  const [most, setMost] = useState(ROWS_MAX);
  const sorted = useMemo(() => {
    const value = columns[order.column].value;
    if (!value) return rows;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const found = [...rows].sort((a, b) => compare(value(a) ?? -1, value(b) ?? -1));
    return order.down ? found.reverse() : found;
  }, [rows, order, columns.length]);
  if (!rows.length) return html`<div class="panel"><p class="empty">${empty}</p></div>`;
  const sort = (index) => setOrder({ column: index, down: order.column === index && !order.down });
  return html`
    <div class="panel" tabindex="0" role="region" aria-label=${label}>
      <table class=${stacked ? "stacked" : ""}>
        <thead>
          <tr>
            ${columns.map(
              (column, index) => html`
                <th
                  scope="col"
                  class=${column.number ? "number" : ""}
                  aria-sort=${order.column === index ? (order.down ? "descending" : "ascending") : "none"}
                >
                  ${column.value
                    ? html`<button type="button" onClick=${() => sort(index)}>
                        ${column.name}${order.column === index ? (order.down ? " ↓" : " ↑") : ""}
                      </button>`
                    : column.name}
                </th>
              `,
            )}
          </tr>
        </thead>
        <tbody>
          ${sorted.slice(0, most).map(
            (row) => html`
              <tr class=${link ? "link" : ""} onClick=${link && ((event) => !event.target.closest("a, button") && go(link(row)))}>
                ${columns.map(
                  (column) =>
                    html`<td class=${column.number ? "number" : ""}>${column.show ? column.show(row) : column.value(row)}</td>`,
                )}
              </tr>
            `,
          )}
        </tbody>
      </table>
      ${sorted.length > most &&
      html`<p class="empty">
        ${most} of ${sorted.length} are shown.
        <button class="plain" onClick=${() => setMost(most * 4)}>Show more</button>
      </p>`}
    </div>
  `;
}

export function Dialog({ title, onClose, children, footer }) {
  const element = useRef();
  useEffect(() => {
    element.current.showModal();
  }, []);
  return html`
    <dialog ref=${element} onClose=${onClose} aria-label=${title}>
      <header>${title}</header>
      ${children}
      ${footer && html`<footer>${footer}</footer>`}
    </dialog>
  `;
}

// Asks for confirmation before data is lost. With `typed`, the user has to type this name.
export function Confirm({ title, text, action, typed, onConfirm, onClose }) {
  const [given, setGiven] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const confirm = async () => {
    setBusy(true);
    try {
      await onConfirm();
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`
    <${Dialog}
      title=${title}
      onClose=${onClose}
      footer=${html`
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="button" class="danger" disabled=${busy || (typed && given !== typed)} onClick=${confirm}>${action}</button>
      `}
    >
      <div class="form">
        <${Problem} error=${error} />
        <div>${text}</div>
        ${typed &&
        html`<label>Type ${typed} to confirm<input value=${given} onInput=${(event) => setGiven(event.target.value)} /></label>`}
      </div>
    <//>
  `;
}

// Text with its `commands` shown as code.
export const coded = (text) => text.split("`").map((part, index) => (index % 2 ? html`<code>${part}</code>` : part));

// A page for which this console has no data, with the reason.
export function Missing({ reason, children }) {
  return html`<div class="panel missing" aria-disabled="true"><p>${children}</p><p class="soft">${coded(reason)}</p></div>`;
}

const STATES = { Stable: "good", Empty: "", Dead: "bad" };
export const State = ({ state }) => html`<span class=${`tag ${STATES[state] ?? "warn"}`}>${state}</span>`;

export function Tabs({ label, base, current, tabs }) {
  return html`<nav class="tabs" aria-label=${label}>${tabs.map(([name, title]) => html`<${Link} to=${`${base}/${name}`} aria-current=${current === name ? "page" : undefined}>${title}<//>`)}</nav>`;
}

export function Card({ to, number, name, note }) {
  const content = html`<div class="number">${number}</div><div class="name">${name}</div>${note ? html`<div class="note">${note}</div>` : ""}`;
  return to ? html`<${Link} class="card" to=${to}>${content}<//>` : html`<div class="card">${content}</div>`;
}

// A placeholder for missing content, which explains what would be here.
export function Empty({ title, children }) {
  return html`<div class="panel blank"><h2>${title}</h2><p>${children}</p></div>`;
}

// A form of plain fields: {name, label, value, options, type, required, placeholder, min}.
export function Form({ fields, action, note, onSubmit, onCancel }) {
  const [given, setGiven] = useState(() => Object.fromEntries(fields.map((each) => [each.name, each.value ?? each.options?.[0] ?? ""])));
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await onSubmit(given);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  const set = (name) => (event) => setGiven({ ...given, [name]: event.target.value });
  return html`
    <form class="form" onSubmit=${submit}>
      <${Problem} error=${error} />
      <div class="row">
        ${fields.map(
          (each) => html`<label class=${each.options ? "" : "grow"}>
            ${each.label}
            ${each.options
              ? html`<select value=${given[each.name]} onChange=${set(each.name)}>${each.options.map((option) => html`<option value=${option}>${option}</option>`)}</select>`
              : html`<input type=${each.type ?? "text"} min=${each.min} step=${each.type === "number" ? "any" : undefined} required=${each.required} placeholder=${each.placeholder} autocomplete="off" value=${given[each.name]} onInput=${set(each.name)} />`}
          </label>`,
        )}
      </div>
      ${note && html`<div class="soft">${note}</div>`}
      <footer>
        ${onCancel && html`<button type="button" onClick=${onCancel}>Cancel</button>`}
        <button class="first" disabled=${busy}>${action}</button>
      </footer>
    </form>
  `;
}
