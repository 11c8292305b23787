// Records of a topic: one page from a chosen position, or a live tail.
import { html, useEffect, useRef, useState } from "../preact.js";
import { ask, refusal, stream, topicPath } from "../api.js";
import { bytes, count, time } from "../format.js";
import { Content } from "../content.js";
import { download } from "../download.js";
import { note } from "../router.js";
import { Problem } from "../ui.js";
import { CopyAs } from "../copy_as.js";
import { Produce } from "./produce.js";
import { Redrive } from "./redrive.js";

const TAIL_KEPT = 500;
const TAIL_DRAWN = 100;
const TAIL_PAUSE_MS = 250;
const TAIL_RETRY_MS = 1000;

const text = (content) => (content === null ? "" : content.text ?? "");

function Short({ content }) {
  if (content === null) return html`<span class="soft">null</span>`;
  if (content.decoded?.value !== undefined) return html`<span class="cut mono">${JSON.stringify(content.decoded.value).slice(0, 300)}</span>`;
  if (content.text === undefined) return html`<span class="soft">${bytes(content.bytes)} of binary data</span>`;
  return html`<span class="cut mono">${content.text.slice(0, 300)}</span>`;
}

const ORIGIN = /^(ottla\.origin\.topic|kafka_dlt-original-topic|__connect\.errors\.topic|_dlq\.topic|original-topic)$/;

function Row({ topic, record, readOnly, bootstrap }) {
  const [open, setOpen] = useState(false);
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  const isDeadLetter = record.headers.some((each) => ORIGIN.test(each.name));
  return html`
    <tr class="link" onClick=${(event) => !event.target.closest("button") && setOpen(!open)}>
      <td><button class="plain" aria-expanded=${open ? "true" : "false"} aria-label="Details" onClick=${() => setOpen(!open)}>${open ? "▾" : "▸"}</button></td>
      <td class="number" data-name="partition">${record.partition}</td>
      <td class="number" data-name="offset">${count(record.offset)}</td>
      <td class="mono">${time(record.timestamp)}</td>
      <td class="key"><${Short} content=${record.key} /></td>
      <td class="value">${record.value === null ? html`<span class="tag warn">tombstone</span>` : html`<${Short} content=${record.value} />`}</td>
    </tr>
    ${open &&
    html`
      <tr>
        <td colspan="6" class="detail-cell">
          <div class="detail">
            <div><h3>Key</h3><${Content} content=${record.key} address=${whole(topic, record, "key")} /></div>
            <div><h3>Value</h3><${Content} content=${record.value} address=${whole(topic, record, "value")} /></div>
            ${record.headers.length > 0 &&
            html`<div>
              <h3>Headers</h3>
              ${record.headers.map((header) => html`<div class="mono"><span class="soft">${header.name}:</span> ${header.value === null ? "null" : header.value.text ?? `${bytes(header.value.bytes)} of binary data`}</div>`)}
            </div>`}
            <div class="bar tight">
              ${!readOnly && html`<button onClick=${() => setDialog("resend")}>Send again, edited</button>`}
              ${!readOnly && isDeadLetter && html`<button onClick=${() => setDialog("redrive")}>Send back to its topic</button>`}
              <${CopyAs} record=${record} topic=${topic} bootstrap=${bootstrap} />
            </div>
          </div>
          ${dialog === "resend" && html`<${Produce} topic=${topic} like=${record} onClose=${close} />`}
          ${dialog === "redrive" && html`<${Redrive} topic=${topic} only=${{ partition: record.partition, offset: record.offset }} onClose=${close} />`}
        </td>
      </tr>
    `}
  `;
}

const whole = (topic, record, part) =>
  topicPath(topic, "partitions", record.partition, "records", record.offset) + `?part=${part}`;

function Records({ topic, records, readOnly, empty, bootstrap }) {
  if (!records.length) return html`<div class="panel"><p class="empty">${empty}</p></div>`;
  return html`
    <div class="panel" tabindex="0" role="region" aria-label="Records">
      <table class="records">
        <thead>
          <tr>
            <th scope="col"><span class="visually-hidden">Details</span></th>
            <th scope="col" class="number">Partition</th>
            <th scope="col" class="number">Offset</th>
            <th scope="col">Time</th>
            <th scope="col">Key</th>
            <th scope="col">Value</th>
          </tr>
        </thead>
        <tbody>
          ${records.map((record) => html`<${Row} key=${placeOf(record)} topic=${topic} record=${record} readOnly=${readOnly} bootstrap=${bootstrap} />`)}
        </tbody>
      </table>
    </div>
  `;
}

const placeOf = (record) => `${record.partition}-${record.offset}`;

function place(kind, detail) {
  if (kind === "offset") return `offset:${detail || 0}`;
  if (kind === "time") return `time:${new Date(detail || Date.now()).getTime()}`;
  return kind;
}

const FILTERS = ["key", "value", "header", "json"];

// The values from the address: the position in the format of the API, a partition and filters.
function given() {
  const query = new URLSearchParams(location.search);
  const [from, number = ""] = (query.get("from") ?? "newest").split(":");
  const at = new Date(Number(number));
  const detail = from === "time" && !isNaN(at) ? time(at.getTime()).replace(" ", "T") : number;
  return { from, detail, partition: query.get("partition") ?? "", filters: Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""])) };
}

function exportLines(topic, records) {
  const lines = records.map((record) => JSON.stringify(record)).join("\n") + "\n";
  download(new Blob([lines], { type: "application/x-ndjson" }), `${topic}.jsonl`);
}

export function Messages({ topic, readOnly, bootstrap = "127.0.0.1:9092" }) {
  const [start] = useState(given);
  const [from, setFrom] = useState(start.from);
  const [detail, setDetail] = useState(start.detail);
  const [partition, setPartition] = useState(start.partition);
  const [filters, setFilters] = useState(start.filters);
  const [found, setFound] = useState({ records: [], cursor: null, scanned: 0 });
  const [status, setStatus] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const tailing = useRef(null);

  const query = (extra) => {
    const all = { partition, ...filters, ...extra };
    return new URLSearchParams(Object.entries(all).filter(([, value]) => value !== "" && value !== null)).toString();
  };
  const stop = () => {
    tailing.current?.close();
    tailing.current = null;
    setStatus(null);
  };
  const remember = () => note(query({ from: from === "newest" ? "" : place(from, detail) }));
  const load = async (cursor = null) => {
    stop();
    remember();
    setBusy(true);
    try {
      const page = await ask(topicPath(topic.name, "records") + "?" + query({ from: place(from, detail), cursor }));
      setFound((old) => ({ ...page, records: cursor ? [...old.records, ...page.records] : page.records }));
      setError(null);
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  const tail = () => {
    stop();
    remember();
    setError(null);
    setFound({ records: [], cursor: null, scanned: 0 });
    follow({ seen: 0, matched: 0, skipped: 0, cursor: null });
  };
  const pause = () => {
    tailing.current?.close();
    tailing.current = null;
    setStatus({ ...status, lost: false, paused: true });
  };
  const resume = () => {
    const before = { ...status, paused: false };
    setStatus(before);
    follow(before);
  };
  // `before` is the last status of a lost connection. The new connection continues there, so that no record is missed.
  const follow = (before) => {
    const address = topicPath(topic.name, "tail") + "?" + query({ cursor: before.cursor });
    const events = stream(address);
    tailing.current = events;
    let current = before;
    let waiting = [];
    let timer = 0;
    // Records that arrive together are shown together, so that the page is redrawn only a few times per second.
    const draw = () => {
      timer = 0;
      const arrived = waiting.reverse();
      waiting = [];
      setFound((old) => {
        const known = new Set(old.records.map(placeOf));
        return { ...old, records: [...arrived.filter((each) => !known.has(placeOf(each))), ...old.records].slice(0, TAIL_KEPT) };
      });
    };
    events.addEventListener("record", (event) => {
      waiting.push(JSON.parse(event.data));
      if (waiting.length > TAIL_KEPT) waiting.shift();
      timer ||= setTimeout(draw, TAIL_PAUSE_MS);
    });
    events.addEventListener("status", (event) => {
      const { seen, matched, skipped, cursor } = JSON.parse(event.data);
      current = { seen: before.seen + seen, matched: before.matched + matched, skipped: before.skipped + skipped, cursor };
      setStatus(current);
      setError(null);
    });
    events.addEventListener("problem", (event) => setError(new Error(JSON.parse(event.data).error)));
    events.onerror = async () => {
      events.close();
      if (tailing.current !== events) return;
      setStatus({ ...current, lost: true });
      const refused = await refusal(address);
      if (refused) setError(refused);
      setTimeout(() => tailing.current === events && follow(current), TAIL_RETRY_MS);
    };
  };
  useEffect(() => {
    if (from === "tail") tail();
    else load();
    return stop;
  }, [from, partition, topic.name]);

  const filter = (name, label, placeholder) => html`
    <label class="grow">${label}<input placeholder=${placeholder} value=${filters[name]} onInput=${(event) => setFilters({ ...filters, [name]: event.target.value })} /></label>
  `;
  // The whole topic, not only the records on the page. The broker sends them as it reads them.
  const everything = () => `/api/v1${topicPath(topic.name, "export")}?${query({ from: from === "newest" ? "oldest" : place(from, detail) })}`;
  const again = (event) => {
    event.preventDefault();
    if (from === "tail") tail();
    else load();
  };
  return html`
    <form class="bar" onSubmit=${again}>
      <label>
        From
        <select value=${from} onChange=${(event) => (setDetail(""), setFrom(event.target.value))}>
          <option value="newest">newest</option>
          <option value="oldest">oldest</option>
          <option value="offset">offset</option>
          <option value="time">time</option>
          <option value="tail">live tail</option>
        </select>
      </label>
      ${from === "offset" && html`<label>Offset<input type="number" min="0" value=${detail} onInput=${(event) => setDetail(event.target.value)} /></label>`}
      ${from === "time" && html`<label>Time<input type="datetime-local" step="0.001" value=${detail} onInput=${(event) => setDetail(event.target.value)} /></label>`}
      <label>
        Partition
        <select value=${partition} onChange=${(event) => setPartition(event.target.value)}>
          <option value="">all</option>
          ${topic.partitions.map((each) => html`<option value=${each.partition}>${each.partition}</option>`)}
        </select>
      </label>
      ${filter("key", "Key contains", "")} ${filter("value", "Value contains", "")} ${filter("header", "Header", "name=text")}
      ${filter("json", "JSON", "user.age >= 18")}
      <button class="first" disabled=${busy}>${from === "tail" ? "Apply" : "Search"}</button>
    </form>
    <${Problem} error=${error} />
    ${status &&
    html`<p class="soft" role="status">
      ${status.paused ? "Paused." : status.lost ? "The connection is lost; trying again." : "Live."} ${count(status.seen)} records seen, ${count(status.matched)} match.
      ${status.skipped > 0 && html` <span class="tag warn">${count(status.skipped)} are not shown: they come faster than a page can show</span>`}
      ${found.records.length > TAIL_DRAWN && html` The newest ${TAIL_DRAWN} of the last ${count(found.records.length)} are shown; an export has all of them.`}
      ${" "}${status.paused ? html`<button class="plain" onClick=${resume}>Resume</button>` : html`<button class="plain" onClick=${pause}>Pause</button>`}
    </p>`}
    <${Records}
      topic=${topic.name}
      records=${from === "tail" ? found.records.slice(0, TAIL_DRAWN) : found.records}
      readOnly=${readOnly}
      bootstrap=${bootstrap}
      empty=${busy ? "Searching…" : status?.paused ? "No record came before the pause." : from === "tail" ? "Waiting for new records." : found.scanned ? `None of ${count(found.scanned)} records matches.` : "There are no records here."}
    />
    <div class="bar">
      ${found.cursor && html`<button disabled=${busy} onClick=${() => load(found.cursor)}>${busy ? "Searching…" : "More"}</button>`}
      ${found.records.length > 0 && html`<button onClick=${() => exportLines(topic.name, found.records)}>Export as JSON lines</button>`}
      ${from !== "tail" && html`<a class="button" download href=${everything()}>Export all that match</a>`}
      ${found.scanned > 0 && html`<span class="soft">${count(found.scanned)} records searched</span>`}
    </div>
  `;
}
