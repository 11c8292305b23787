import { html } from "../preact.js";
import { useAnswer } from "../api.js";
import { count, plural } from "../format.js";
import { Link, path } from "../router.js";
import { Table, Waiting } from "../ui.js";

const WARNINGS = { "no-leader": "has no leader", "under-replicated": "is under-replicated" };

function Warnings({ warnings }) {
  return warnings.map(
    (each) => html`
      <p class=${each.kind === "no-leader" ? "notice bad" : "notice"}>
        <${Link} to=${path("topics", each.topic)}>${each.topic}<//> ${WARNINGS[each.kind]}:
        ${" "}${each.partitions.length === 1 ? "partition" : "partitions"} ${each.partitions.slice(0, 20).join(", ")}
        ${each.partitions.length > 20 ? ` and ${each.partitions.length - 20} more` : ""}
      </p>
    `,
  );
}

export function Overview() {
  const answer = useAnswer("/overview", { every: 3000 });
  return html`
    <h1>Overview</h1>
    <${Waiting} answer=${answer}>
      ${(data) => html`
        <${Warnings} warnings=${data.warnings} />
        <div class="cards">
          <div class="card"><div class="number">${count(data.brokers.length)}</div><div class="name">brokers</div></div>
          <${Link} class="card" to="/topics"><div class="number">${count(data.topics)}</div><div class="name">topics</div><//>
          <div class="card"><div class="number">${count(data.partitions)}</div><div class="name">partitions</div></div>
          <${Link} class="card" to="/groups"><div class="number">${count(data.groups)}</div><div class="name">groups</div><//>
        </div>
        <h2>Brokers</h2>
        <${Table}
          label="Brokers"
          rows=${data.brokers}
          columns=${[
            { name: "Broker", value: (row) => row.broker, show: (row) => html`${row.broker}${row.broker === data.controller ? html` <span class="tag">controller</span>` : ""}` },
            { name: "Address", value: (row) => row.address, show: (row) => html`<span class="mono">${row.address}</span>` },
            { name: "Rack", value: (row) => row.rack ?? "", show: (row) => row.rack ?? "–" },
            { name: "Leads", number: true, value: (row) => row.leads, show: (row) => count(row.leads) },
            { name: "Replicas", number: true, value: (row) => row.replicas, show: (row) => count(row.replicas) },
          ]}
        />
        <h2>Groups</h2>
        <p>
          ${data.groups
            ? Object.entries(data.group_kinds).map(([kind, number]) => html`<span class="tag">${plural(number, `${kind} group`)}</span> `)
            : html`<span class="soft">No group has joined yet.</span>`}
        </p>
        <p class="soft">Cluster <span class="mono">${data.cluster_id}</span></p>
      `}
    <//>
  `;
}
