import { html, useState } from "../preact.js";
import { useAnswer } from "../api.js";
import { count } from "../format.js";
import { Link, path } from "../router.js";
import { State, Table, Waiting } from "../ui.js";

export function Groups() {
  const answer = useAnswer("/groups", { every: 5000 });
  const [text, setText] = useState("");
  const shown = (answer.data ?? []).filter((each) => each.group.toLowerCase().includes(text.toLowerCase()));
  return html`
    <h1>Groups</h1>
    <div class="bar">
      <input class="grow" type="search" aria-label="Filter by name" placeholder="Filter by name" value=${text} onInput=${(event) => setText(event.target.value)} />
    </div>
    <${Waiting} answer=${answer}>
      ${() => html`
        <${Table}
          label="Groups"
          rows=${shown}
          link=${(row) => path("groups", row.group)}
          empty=${answer.data.length ? "No group matches." : "No group has joined or committed yet."}
          columns=${[
            { name: "Group", value: (row) => row.group, show: (row) => html`<${Link} to=${path("groups", row.group)} class="mono">${row.group}<//>` },
            { name: "Kind", value: (row) => row.kind },
            { name: "State", value: (row) => row.state, show: (row) => html`<${State} state=${row.state} />` },
            { name: "Lag", number: true, value: (row) => row.lag, show: (row) => count(row.lag) },
            { name: "Coordinator", number: true, value: (row) => row.coordinator },
          ]}
        />
      `}
    <//>
  `;
}
