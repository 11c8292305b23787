// Ctrl-K: find a topic, a group, a transactional id, a broker or a page by part of its name.
import { html, useEffect, useMemo, useState } from "./preact.js";
import { useAnswer } from "./api.js";
import { PAGES } from "./pages.js";
import { go, path } from "./router.js";
import { Dialog } from "./ui.js";

const SHOWN_MAX = 50;

export function Search({ onClose }) {
  const topics = useAnswer("/topics");
  const groups = useAnswer("/groups");
  const transactions = useAnswer("/transactions");
  const overview = useAnswer("/overview");
  const schemas = useAnswer("/schemas");
  const tours = useAnswer("/tours");
  const [text, setText] = useState("");
  const [picked, setPicked] = useState(0);
  const all = useMemo(
    () => [
      ...(topics.data ?? []).map((each) => ({ kind: "topic", name: each.name, to: path("topics", each.name) })),
      ...(groups.data ?? []).map((each) => ({ kind: "group", name: each.group, to: path("groups", each.group) })),
      ...(transactions.data ?? []).map((each) => ({ kind: "transaction", name: each.transactional_id, to: path("transactions", each.transactional_id) })),
      ...(overview.data?.brokers ?? []).map((each) => ({ kind: "broker", name: `${each.broker} ${each.address}`, to: path("brokers", each.broker) })),
      ...(schemas.data?.subjects ?? []).map((each) => ({ kind: "schema", name: each.subject, to: path("schemas", each.subject) })),
      ...(tours.data ?? []).map((each) => ({ kind: "tour", name: each.title, to: path("learn", each.name) })),
      ...PAGES.filter((each) => each.title).map((each) => ({ kind: "page", name: each.title, to: each.path })),
    ],
    [topics.data, groups.data, transactions.data, overview.data, schemas.data, tours.data],
  );
  const found = all.filter((each) => each.name.toLowerCase().includes(text.toLowerCase())).slice(0, SHOWN_MAX);
  const open = (entry) => {
    onClose();
    go(entry.to);
  };
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setPicked(Math.max(0, Math.min(found.length - 1, picked + step)));
    } else if (event.key === "Enter" && found[picked]) {
      open(found[picked]);
    }
  };
  useEffect(() => document.getElementById(`found-${picked}`)?.scrollIntoView({ block: "nearest" }), [picked]);
  return html`
    <${Dialog} title="Search" onClose=${onClose}>
      <div class="palette">
        <input
          autofocus
          role="combobox"
          aria-expanded="true"
          aria-controls="found"
          aria-activedescendant=${found.length ? `found-${picked}` : undefined}
          aria-label="Name of a topic, group, transaction, broker, schema or page"
          placeholder="Topic, group, transaction, broker, schema or page"
          value=${text}
          onKeyDown=${keys}
          onInput=${(event) => (setText(event.target.value), setPicked(0))}
        />
        <ul id="found" role="listbox" aria-label="Found">
          ${found.map(
            (entry, index) => html`
              <li id=${`found-${index}`} role="option" aria-selected=${index === picked ? "true" : "false"}>
                <a href=${entry.to} onClick=${(event) => (event.preventDefault(), open(entry))}>
                  <span class="mono">${entry.name}</span><span class="soft">${entry.kind}</span>
                </a>
              </li>
            `,
          )}
        </ul>
        ${!found.length && html`<p class="empty">Nothing matches.</p>`}
      </div>
    <//>
  `;
}
