// The clients that are connected now.
import { html, useState } from "../preact.js";
import { useAnswer } from "../api.js";
import { plural, waited } from "../format.js";
import { Missing, Table, Waiting } from "../ui.js";

export function Clients({ missing }) {
  if (missing === undefined) return html`<p class="loading">Loading…</p>`;
  return html`<h1>Clients</h1>${missing ? html`<${Missing} reason=${missing}>Every connection with its client, its listener and its principal.<//>` : html`<${Connected} />`}`;
}

function Connected() {
  const answer = useAnswer("/connections", { every: 2000 });
  const [text, setText] = useState("");
  const rows = (answer.data ?? []).filter((each) => `${each.client} ${each.peer} ${each.principal}`.toLowerCase().includes(text.toLowerCase()));
  const names = new Set(rows.map((each) => each.client));
  return html`
    <div class="bar"><input class="grow" type="search" aria-label="Filter clients" placeholder="Filter by client, address or principal" value=${text} onInput=${(event) => setText(event.target.value)} /></div>
    <${Waiting} answer=${answer}>
      ${() => html`
        ${rows.length > 0 && html`<p class="lead">${plural(rows.length, "connection")} of ${plural(names.size, "client")}</p>`}
        <${Table}
          label="Connections"
          rows=${rows}
          empty=${answer.data.length ? "No client matches." : "No client is connected."}
          columns=${[
            { name: "Client", value: (row) => row.client ?? "", show: (row) => html`<span class="mono">${row.client || "–"}</span>` },
            { name: "Address", value: (row) => row.peer, show: (row) => html`<span class="mono">${row.peer}</span>` },
            { name: "Broker", number: true, value: (row) => row.broker },
            { name: "Listener", value: (row) => row.listener },
            { name: "Principal", value: (row) => row.principal, show: (row) => html`<span class="mono">${row.principal}</span>` },
            { name: "Quiet for", number: true, value: (row) => row.idle_ms, show: (row) => waited(row.idle_ms) },
          ]}
        />
      `}
    <//>
  `;
}
