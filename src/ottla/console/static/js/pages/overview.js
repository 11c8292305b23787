import { html, useEffect, useRef, useState } from "../preact.js";
import { useAnswer } from "../api.js";
import { bytes, count, plural, rate, waited } from "../format.js";
import { Plot } from "../plot.js";
import { Link, path } from "../router.js";
import { Card, Table, Waiting } from "../ui.js";

const some = (numbers) => numbers.slice(0, 20).join(", ") + (numbers.length > 20 ? ` and ${numbers.length - 20} more` : "");

const WARNINGS = {
  "no-leader": (each) => html`<${Link} to=${path("topics", each.topic, "partitions")}>${each.topic}<//> has no leader: ${plural(each.partitions.length, "partition")} (${some(each.partitions)})`,
  "under-replicated": (each) => html`<${Link} to=${path("topics", each.topic, "partitions")}>${each.topic}<//> is under-replicated: ${plural(each.partitions.length, "partition")} (${some(each.partitions)})`,
  "lag-grows": (each) => html`Group <${Link} to=${path("groups", each.group)}>${each.group}<//> falls behind: its lag grows and is now ${count(each.lag)}`,
  "hanging-transaction": (each) => html`Transaction <${Link} to=${path("transactions", each.transactional_id)}>${each.transactional_id}<//> hangs: open for ${waited(each.age_ms)}, longer than its timeout`,
};
const SERIOUS = new Set(["no-leader", "hanging-transaction"]);
const SHOWN_MAX = 10;

function Warnings({ warnings }) {
  const [all, setAll] = useState(false);
  const shown = all ? warnings.slice(0, 500) : warnings.slice(0, SHOWN_MAX);
  return html`
    ${shown.map((each) => html`<p class=${SERIOUS.has(each.kind) ? "notice bad" : "notice"}>${WARNINGS[each.kind](each)}</p>`)}
    ${warnings.length > shown.length && html`<p><button class="plain" onClick=${() => setAll(true)}>Show all ${count(warnings.length)} warnings</button></p>`}
  `;
}

const KEPT = 300;

// Records and bytes per second, from the growth of the totals.
function useThroughput(data) {
  const state = useRef({ last: null, times: [], records: [] });
  useEffect(() => {
    if (!data || data.end_offsets === null) return;
    const now = performance.now();
    const { last, times, records } = state.current;
    if (last) {
      const seconds = (now - last.now) / 1000;
      times.push(Date.now() / 1000);
      records.push(Math.max(0, (data.end_offsets - last.end_offsets) / seconds));
      state.current.bytes = Math.max(0, (data.bytes - last.bytes) / seconds);
      if (times.length > KEPT) (times.shift(), records.shift());
    }
    state.current.last = { now, end_offsets: data.end_offsets, bytes: data.bytes };
  }, [data]);
  const { times, records, bytes: perSecond } = state.current;
  return { plot: [times.slice(), records.slice()], records: records.at(-1) ?? null, bytes: perSecond ?? null };
}

export function Overview() {
  const answer = useAnswer("/overview", { every: 2000 });
  const throughput = useThroughput(answer.data);
  return html`
    <h1>Overview</h1>
    <${Waiting} answer=${answer}>
      ${(data) => html`
        <${Warnings} warnings=${data.warnings} />
        <div class="cards">
          <${Card} to="/topics" number=${count(data.topics)} name=${data.topics === 1 ? "topic" : "topics"} note=${plural(data.partitions, "partition")} />
          <${Card} to="/groups" number=${count(data.groups)} name=${data.groups === 1 ? "group" : "groups"} note=${Object.entries(data.group_kinds).map(([kind, number]) => `${number} ${kind}`).join(", ")} />
          <${Card} to="/transactions" number=${count(data.open_transactions)} name=${data.open_transactions === 1 ? "open transaction" : "open transactions"} />
          <${Card} to="/clients" number=${count(data.connections)} name=${data.connections === 1 ? "connection" : "connections"} />
          <${Card} number=${bytes(data.bytes)} name="stored" note=${throughput.bytes ? `${bytes(throughput.bytes)}/s` : ""} />
        </div>
        <h2>Records written per second <span class="soft small">${throughput.records === null ? "" : rate(throughput.records)}</span></h2>
        <${Plot} data=${throughput.plot} name="records a second" height=${140} />
        <h2>Brokers</h2>
        <${Table}
          label="Brokers"
          rows=${data.brokers}
          link=${(row) => path("brokers", row.broker)}
          columns=${[
            { name: "Broker", value: (row) => row.broker, show: (row) => html`<${Link} to=${path("brokers", row.broker)}>${row.broker}<//>${row.broker === data.controller ? html` <span class="tag good">controller</span>` : ""}` },
            { name: "Address", value: (row) => row.address, show: (row) => html`<span class="mono">${row.address}</span>` },
            { name: "Rack", value: (row) => row.rack ?? "", show: (row) => row.rack ?? "–" },
            { name: "Leads", number: true, value: (row) => row.leads, show: (row) => count(row.leads) },
            { name: "In sync", number: true, value: (row) => row.in_sync, show: (row) => html`<span class=${row.in_sync < row.replicas ? "tag warn" : ""}>${count(row.in_sync)} of ${count(row.replicas)}</span>` },
            { name: "Connections", number: true, value: (row) => row.connections, show: (row) => count(row.connections) },
          ]}
        />
        <p class="soft">
          Cluster <span class="mono">${data.cluster_id}</span>, ${data.controller === null ? "no controller" : html`controller <${Link} to="/quorum">node ${data.controller}<//>`}
        </p>
      `}
    <//>
  `;
}
