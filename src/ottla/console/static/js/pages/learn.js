// Guided tours through Kafka. Each runs on its own small cluster inside the console and shows live data.
import { html, useEffect, useRef, useState } from "../preact.js";
import { ask, groupPath, topicPath, useAnswer } from "../api.js";
import { count } from "../format.js";
import { Rebalances } from "../group_history.js";
import { ReplicaPicture } from "../replica_picture.js";
import { Link, path } from "../router.js";
import { Problem, State, Table, Waiting } from "../ui.js";
import { Batches, CompactionPicture, Picture, Steps } from "./storage.js";
import { HeldBack, TransactionTimeline } from "./transactions.js";

const BASE = "/sandbox";
const LIVE = { every: 1000 };

function Replicas({ topic, partition }) {
  const one = partition === undefined ? "" : `&partition=${partition}`;
  const answer = useAnswer(`${BASE}/replicas?topic=${encodeURIComponent(topic)}${one}`, LIVE);
  return html`<${Waiting} answer=${answer}>
    ${(data) => data.partitions.map((each) => html`<section class="panel tile" key=${each.partition}><h3 class="mono">${each.topic}-${each.partition}</h3><${ReplicaPicture} partition=${each} /></section>`)}
  <//>`;
}

function Messages({ topic }) {
  const answer = useAnswer(`${BASE}${topicPath(topic, "records")}?from=oldest&limit=8`, LIVE);
  return html`<${Waiting} answer=${answer}>
    ${(data) => html`<${Table}
      label="Records"
      rows=${data.records}
      columns=${[
        { name: "Partition", number: true, value: (row) => row.partition },
        { name: "Offset", number: true, value: (row) => row.offset },
        { name: "Key", show: (row) => html`<span class="mono">${row.key?.text ?? "–"}</span>` },
        { name: "Value", show: (row) => html`<span class="mono">${row.value?.text ?? "null"}</span>` },
      ]}
    />`}
  <//>`;
}

function Storage({ topic, partition = 0 }) {
  const answer = useAnswer(BASE + topicPath(topic, "partitions", partition, "storage"), LIVE);
  return html`<${Waiting} answer=${answer}>${(data) => html`<${Picture} data=${data} />`}<//>`;
}

function StoredBatches({ topic, partition = 0 }) {
  const answer = useAnswer(BASE + topicPath(topic, "partitions", partition, "storage"), LIVE);
  return html`<${Waiting} answer=${answer}>${(data) => html`<${Batches} base=${BASE} topic=${topic} partition=${partition} data=${data} />`}<//>`;
}

function LookUp({ topic, partition, offset, time }) {
  const query = time === undefined ? `offset=${offset}` : `time=${time}`;
  const answer = useAnswer(BASE + topicPath(topic, "partitions", partition, `lookup?${query}`));
  return html`<${Waiting} answer=${answer}>${(data) => html`<${Steps} answer=${data} />`}<//>`;
}

function Compaction({ topic, partition }) {
  const answer = useAnswer(BASE + topicPath(topic, "partitions", partition, "compaction"), LIVE);
  return html`<${Waiting} answer=${answer}>${(data) => html`<${CompactionPicture} data=${data} />`}<//>`;
}

function Group({ group }) {
  const answer = useAnswer(BASE + groupPath(group), LIVE);
  return html`<${Waiting} answer=${answer}>
    ${(data) => html`
      <section class="panel tile">
        <h3><span class="mono">${group}</span> <${State} state=${data.state} /></h3>
        ${data.members.map(
          (each) => html`<div class="member" key=${each.member_id}>
            <b>${each.member_id}</b>
            <span class="cells">${each.partitions.map((one) => html`<span class=${`cell hue-${one.partition}`}>${one.partition}</span>`)}${!each.partitions.length && html`<span class="soft">no partitions</span>`}</span>
          </div>`,
        )}
        ${!data.members.length && data.offsets.map((each) => html`<div>${each.topic}-${each.partition}: committed <b>${count(each.committed)}</b>, lag <b>${count(each.lag)}</b></div>`)}
      </section>
    `}
  <//>`;
}

function Held({ topic }) {
  const answer = useAnswer(BASE + topicPath(topic, "transactions"), LIVE);
  return html`<${Waiting} answer=${answer}>
    ${(rows) => rows.map((each) => html`<section class="panel tile" key=${each.partition}><h3 class="mono">${topic}-${each.partition}</h3><${HeldBack} partition=${each} plain /></section>`)}
  <//>`;
}

function Past() {
  const answer = useAnswer(`${BASE}/transaction-history`, LIVE);
  return html`<${Waiting} answer=${answer}>${(data) => html`<${TransactionTimeline} events=${data.events} now=${data.now_ms} plain />`}<//>`;
}

const LOOKS = {
  replicas: Replicas,
  messages: Messages,
  storage: Storage,
  batches: StoredBatches,
  group: Group,
  "group-history": ({ group }) => html`<${Rebalances} address=${BASE + groupPath(group, "history")} />`,
  "look-up": LookUp,
  compaction: Compaction,
  "held-back": Held,
  transactions: Past,
};

// Words in backquotes are code; empty lines separate paragraphs.
const paragraphs = (text) =>
  text.split("\n\n").map((part) => html`<p>${part.split("`").map((piece, index) => (index % 2 ? html`<code>${piece}</code>` : piece))}</p>`);

export function Learn() {
  const answer = useAnswer("/tours");
  return html`
    <h1>Learn</h1>
    <p class="lead">Short tours on a live cluster. Each one starts three brokers of its own in memory; your data is not touched.</p>
    <${Waiting} answer=${answer}>
      ${(tours) => html`
        <ol class="tours">
          ${tours.map(
            (each, index) => html`
              <li>
                <${Link} class="card" to=${path("learn", each.name)}>
                  <span class="tour-number" aria-hidden="true">${index + 1}</span>
                  <span class="tour-title">${each.title}</span>
                  <span class="name">${each.summary}</span>
                  <span class="note">${each.steps.length} steps</span>
                <//>
              </li>
            `,
          )}
        </ol>
      `}
    <//>
  `;
}

export function TourPage({ tour }) {
  const tours = useAnswer("/tours");
  const [shown, setShown] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(true);
  const [round, setRound] = useState(0);
  const heading = useRef();
  const go = async (address, body) => {
    setBusy(true);
    try {
      setShown(await ask(address, { method: "POST", body }));
      setError(null);
      heading.current?.focus();
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  useEffect(() => {
    setShown(null);
    go(`/tours/${encodeURIComponent(tour)}/start`, {});
  }, [tour, round]);
  useEffect(() => () => void ask("/tours/stop", { method: "POST", body: {} }).catch(() => {}), []);
  const known = tours.data?.find((each) => each.name === tour);
  const following = tours.data?.[tours.data.indexOf(known) + 1];
  const isLast = shown && shown.step === shown.steps - 1;
  return html`
    <p class="crumbs"><${Link} to="/learn">Learn<//></p>
    <h1>${known?.title ?? "Tour"}</h1>
    <${Problem} error=${error} />
    ${error && html`<p><button onClick=${() => setRound(round + 1)}>Start again</button></p>`}
    ${!shown && !error && html`<p class="loading" role="status">Starting three brokers…</p>`}
    ${shown &&
    html`
      <div class="tour">
        <div class="tour-text">
          ${known && html`<ol class="progress" aria-label="Steps of the tour">${known.steps.map((title, index) => html`<li aria-current=${index === shown.step ? "step" : undefined} class=${index < shown.step ? "done" : ""}><span class="visually-hidden">${title}</span></li>`)}</ol>`}
          <h2 class="first" tabindex="-1" ref=${heading}>${shown.title}</h2>
          ${paragraphs(shown.text)}
          ${shown.notes.length > 0 && html`<h3>What just happened</h3><ul class="notes">${shown.notes.map((each) => html`<li>${each}</li>`)}</ul>`}
          <div class="bar">
            ${!isLast && html`<button class="first" disabled=${busy} onClick=${() => go("/tours/next", { run: shown.run })}>${busy ? "Working…" : "Next step"}</button>`}
            ${isLast && following && html`<${Link} class="button first" to=${path("learn", following.name)}>Next tour: ${following.title}<//>`}
            <button disabled=${busy} onClick=${() => setRound(round + 1)}>Start again</button>
            <span class="soft">Step ${shown.step + 1} of ${shown.steps}</span>
          </div>
        </div>
        <div class="tour-pictures" aria-label="Live pictures">
          ${shown.look.map((look, index) => html`<${LOOKS[look.kind]} key=${`${look.kind} ${look.topic ?? ""} ${index}`} ...${look} />`)}
        </div>
      </div>
    `}
  `;
}
