// Transactions: the open ones, the records that they hold back, and their history.
import { html, useMemo, useState } from "../preact.js";
import { ask, useAnswer } from "../api.js";
import { count, plural, time, waited } from "../format.js";
import { Link, path } from "../router.js";
import { Confirm, Missing, Table, Waiting } from "../ui.js";

const STATES = { Ongoing: "warn", PrepareCommit: "warn", PrepareAbort: "warn", CompleteCommit: "good", CompleteAbort: "bad" };
export const TransactionState = ({ state }) => html`<span class=${`tag ${STATES[state] ?? ""}`}>${state}</span>`;

// Steps become spans: a transaction runs from its start to the step that ends it.
export function spans(events) {
  const running = new Map();
  const found = [];
  for (const each of events) {
    const open = running.get(each.transactional_id);
    if (each.state === "Ongoing") {
      if (open) Object.assign(open, { partitions: each.partitions });
      else {
        const span = { id: each.transactional_id, start: each.start_ms ?? each.at_ms, end: null, outcome: "open", partitions: each.partitions, epoch: each.producer_epoch };
        running.set(each.transactional_id, span);
        found.push(span);
      }
    } else if (open && each.state.startsWith("Prepare")) {
      open.prepared = each.at_ms;
      open.outcome = each.state === "PrepareCommit" ? "committed" : "aborted";
    } else if (open && each.state.startsWith("Complete")) {
      open.end = each.at_ms;
      open.outcome = each.state === "CompleteCommit" ? "committed" : "aborted";
      running.delete(each.transactional_id);
    }
  }
  return found;
}

const ROW = 26;
const LANES_MAX = 40;

// One lane per transactional id, drawn to scale.
export function TransactionTimeline({ events, now, plain }) {
  const all = useMemo(() => spans(events), [events]);
  const lanes = [...new Set(all.map((each) => each.id))].slice(-LANES_MAX);
  const shown = all.filter((each) => lanes.includes(each.id)).slice(-400);
  if (!shown.length) return html`<div class="panel"><p class="empty">No transaction has begun since the broker started.</p></div>`;
  const first = Math.min(...shown.map((each) => each.start));
  const last = Math.max(now, ...shown.map((each) => each.end ?? each.start));
  const span = Math.max(1, last - first);
  const at = (ms) => `${(100 * (ms - first)) / span}%`;
  return html`
    <div class="panel lanes" role="group" aria-label=${`Timeline of ${plural(shown.length, "transaction")} of ${plural(lanes.length, "transactional id")}`}>
      ${lanes.map(
        (id) => html`
          <div class="lane" key=${id}>
            ${plain ? html`<span class="lane-name mono">${id}</span>` : html`<${Link} to=${path("transactions", id)} class="lane-name mono">${id}<//>`}
            <svg height=${ROW} width="100%" aria-hidden="true">
              ${shown
                .filter((each) => each.id === id)
                .map(
                  (each) => html`<rect class=${`span ${each.outcome}`} x=${at(each.start)} y="5" rx="3" height=${ROW - 10} width=${`max(4px, ${(100 * ((each.end ?? last) - each.start)) / span}%)`}>
                    <title>${`${each.outcome}, began ${time(each.start)}, ${each.end === null ? "still open" : `took ${waited(each.end - each.start)}`}: ${each.partitions.join(", ")}`}</title>
                  </rect>`,
                )}
            </svg>
          </div>
        `,
      )}
      <div class="lane axis"><span class="lane-name"></span><div><span>${time(first).slice(11, 19)}</span><span>${time(last).slice(11, 19)}</span></div></div>
      <p class="legend"><i class="span committed"></i>committed <i class="span aborted"></i>aborted <i class="span open"></i>open</p>
    </div>
  `;
}

// A partition as readers of committed records see it: up to the last stable offset.
export function HeldBack({ partition, plain }) {
  const { last_stable_offset: stable, high_watermark: end, open } = partition;
  const low = Math.max(0, Math.min(stable, ...open.map((each) => each.first_offset)) - Math.max(5, Math.round((end - stable) * 0.4)));
  const width = Math.max(1, end - low);
  const at = (offset) => `${(100 * (offset - low)) / width}%`;
  return html`
    <div class="held">
      <svg width="100%" height="34" role="img" aria-label=${`Last stable offset ${stable}, high watermark ${end}`}>
        <rect class="readable" x="0" y="10" height="14" width=${at(stable)} />
        <rect class="unreadable" x=${at(stable)} y="10" height="14" width=${`${(100 * (end - stable)) / width}%`} />
        ${open.map((each) => html`<line class="opened" x1=${at(each.first_offset)} x2=${at(each.first_offset)} y1="4" y2="30" />`)}
      </svg>
      <div class="soft small">
        last stable offset <b>${count(stable)}</b>, high watermark <b>${count(end)}</b>${end > stable
          ? html`: ${plural(end - stable, "offset")} held back by ${open.map((each, index) => html`${index ? ", " : ""}${each.transactional_id && plain ? html`<span class="mono">${each.transactional_id}</span>` : each.transactional_id ? html`<${Link} to=${path("transactions", each.transactional_id)} class="mono">${each.transactional_id}<//>` : html`producer ${each.producer_id}`}`)}`
          : ": nothing is held back"}
      </div>
    </div>
  `;
}

export function Transactions({ missing }) {
  const answer = useAnswer("/transactions", { every: 2000 });
  const [text, setText] = useState("");
  const rows = (answer.data ?? []).filter((each) => each.transactional_id.toLowerCase().includes(text.toLowerCase()));
  return html`
    <h1>Transactions</h1>
    ${missing === null ? html`<h2 class="first">Timeline</h2><${Timeline} />` : missing && html`<${Missing} reason=${missing}>What happened to each transaction over time.<//>`}
    <h2>Transactional ids</h2>
    <div class="bar"><input class="grow" type="search" aria-label="Filter by id" placeholder="Filter by id" value=${text} onInput=${(event) => setText(event.target.value)} /></div>
    <${Waiting} answer=${answer}>
      ${() => html`<${Table}
        label="Transactional ids"
        rows=${rows}
        link=${(row) => path("transactions", row.transactional_id)}
        empty=${answer.data.length ? "No id matches." : "No producer has used a transaction yet."}
        columns=${[
          { name: "Transactional id", value: (row) => row.transactional_id, show: (row) => html`<${Link} to=${path("transactions", row.transactional_id)} class="mono">${row.transactional_id}<//>` },
          { name: "State", value: (row) => row.state, show: (row) => html`<${TransactionState} state=${row.state} />` },
          { name: "Open for", number: true, value: (row) => row.age_ms, show: (row) => (row.age_ms === null ? "–" : html`<span class=${row.age_ms > row.timeout_ms ? "tag bad" : ""}>${waited(row.age_ms)}</span>`) },
          { name: "Partitions", number: true, value: (row) => row.partitions.length },
          { name: "Producer", number: true, value: (row) => row.producer_id },
          { name: "Coordinator", number: true, value: (row) => row.coordinator },
        ]}
      />`}
    <//>
  `;
}

function Timeline() {
  const answer = useAnswer("/transaction-history", { every: 2000 });
  return html`<${Waiting} answer=${answer}>${(data) => html`<${TransactionTimeline} events=${data.events} now=${data.now_ms} />`}<//>`;
}

export function Transaction({ transaction, readOnly }) {
  const address = `/transactions/${encodeURIComponent(transaction)}`;
  const answer = useAnswer(address, { every: 1000 });
  const [asking, setAsking] = useState(false);
  const data = answer.data;
  return html`
    <p class="crumbs"><${Link} to="/transactions">Transactions<//></p>
    <h1 class="mono">${transaction}</h1>
    <div class="bar">
      <span class="grow">${data && html`<${TransactionState} state=${data.state} /> <span class="soft">producer ${data.producer_id}, epoch ${data.producer_epoch}, timeout ${waited(data.timeout_ms)}</span>`}</span>
      ${data?.start_ms && !readOnly && html`<button class="danger" onClick=${() => setAsking(true)}>Abort</button>`}
    </div>
    <${Waiting} answer=${answer}>
      ${(found) => html`
        ${found.start_ms !== null && html`<p class="lead">Open for ${waited(found.age_ms)}, since ${time(found.start_ms)}.</p>`}
        <h2>Partitions of the transaction</h2>
        ${found.partitions.length
          ? html`<div class="panel form">${found.partitions.map((each) => html`<div><${Link} to=${path("topics", each.topic, "partitions", each.partition)} class="mono">${each.topic}-${each.partition}<//><${HeldBack} partition=${each} /></div>`)}</div>`
          : html`<div class="panel"><p class="empty">No transaction is open, so nothing is held back.</p></div>`}
      `}
    <//>
    ${asking &&
    html`<${Confirm}
      title="Abort the transaction"
      text=${html`The records that <b class="mono">${transaction}</b> has written in it are never read by consumers of committed records. Its producer is fenced: it has to start again.`}
      action="Abort transaction"
      onConfirm=${async () => (await ask(`${address}/abort`, { method: "POST", body: {} }), answer.reload())}
      onClose=${() => setAsking(false)}
    />`}
  `;
}
