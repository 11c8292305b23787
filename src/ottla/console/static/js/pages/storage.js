// A partition drawn to scale, and the steps in which a broker finds an offset or a time in it.
import { html, useState } from "../preact.js";
import { ask, topicPath, useAnswer } from "../api.js";
import { bytes, count, plural, time } from "../format.js";
import { Link, path } from "../router.js";
import { Missing, Problem, Table, Waiting } from "../ui.js";

const MARKS = [
  ["start_offset", "Start offset", "the first record that readers may see"],
  ["last_stable_offset", "Last stable offset", "readers of committed records stop here"],
  ["high_watermark", "High watermark", "all in-sync replicas have what is below"],
  ["end_offset", "Log end offset", "the next record gets this offset"],
];

export function Picture({ data, found }) {
  const low = data.segments[0].base_offset;
  const span = Math.max(1, data.end_offset - low);
  const at = (offset) => `${(100 * (offset - low)) / span}%`;
  return html`
    <div class="panel picture">
      <svg role="img" aria-label=${`${plural(data.segments.length, "segment")}, offsets ${low} to ${data.end_offset}`} width="100%" height="92">
        ${data.segments.map(
          (each) => html`
            <rect class=${each.active ? "segment active" : "segment"} x=${at(each.base_offset)} y="20" width=${`${(100 * (each.next_offset - each.base_offset)) / span}%`} height="34">
              <title>${`${String(each.base_offset).padStart(20, "0")}.log, ${bytes(each.bytes)}`}</title>
            </rect>
            ${each.entries.map((offset) => html`<line class="entry" x1=${at(offset)} x2=${at(offset)} y1="56" y2="64" />`)}
          `,
        )}
        ${data.start_offset > low && html`<rect class="deleted" x="0" y="20" width=${at(data.start_offset)} height="34"><title>deleted: below the start offset</title></rect>`}
        ${MARKS.map(([name], index) => html`<line class=${`mark mark-${index}`} x1=${at(data[name])} x2=${at(data[name])} y1="8" y2="76" />`)}
        ${found && html`<line class="found" x1=${at(found.offset ?? found.base_offset)} x2=${at(found.offset ?? found.base_offset)} y1="2" y2="86" />`}
      </svg>
      <ul class="marks">
        ${MARKS.map(([name, title, meaning], index) => html`<li title=${meaning}><i class=${`mark-${index}`}></i>${title} <b>${count(data[name])}</b></li>`)}
        <li><i class="entry"></i>entry of the index</li>
      </ul>
    </div>
  `;
}

function Probes({ probes, kind }) {
  if (!probes?.length) return null;
  const shown = (key) => (kind === "timeindex" ? time(key) : `offset ${count(key)}`);
  return html`<ol class="probes">
    ${probes.map((each) => html`<li>entry ${count(each.slot)}: ${shown(each.key)} <span class="soft">${each.goes === "right" ? "at or before: look right" : "after: look left"}</span></li>`)}
  </ol>`;
}

const TITLES = { segments: "Segment", timeindex: ".timeindex", index: ".index", scan: "Scan of the log" };

export function Steps({ answer }) {
  return html`
    <ol class="panel steps" aria-label="Steps of the look-up">
      ${answer.steps.map(
        (each) => html`
          <li>
            <b>${TITLES[each.where]}</b> <span>${each.text}</span>
            <${Probes} probes=${each.probes} kind=${each.where} />
            ${each.batches?.length > 0 &&
            html`<ol class="probes">
              ${each.batches.slice(-20).map((batch) => html`<li>byte ${count(batch.position)}: offsets ${count(batch.base_offset)} to ${count(batch.last_offset)} <span class="soft">${bytes(batch.bytes)}, up to ${time(batch.max_timestamp)}</span></li>`)}
            </ol>`}
          </li>
        `,
      )}
      <li>
        ${answer.found
          ? html`<b>Found</b> ${answer.found.offset === undefined ? `in the batch with offsets ${count(answer.found.base_offset)} to ${count(answer.found.last_offset)}` : `offset ${count(answer.found.offset)}, written ${time(answer.found.timestamp)}`}`
          : html`<b>Not found</b>`}
      </li>
    </ol>
  `;
}

export function Storage({ topic, partition, missing, readOnly }) {
  return html`
    <p class="crumbs"><${Link} to="/topics">Topics<//> / <${Link} to=${path("topics", topic, "partitions")}>${topic}<//></p>
    <h1 class="mono">${topic}-${partition}</h1>
    ${missing === undefined
      ? html`<p class="loading">Loading…</p>`
      : missing
        ? html`<${Missing} reason=${missing}>The segments of the partition, their index entries, and how an offset is found.<//>`
        : html`<${Known} topic=${topic} partition=${partition} readOnly=${readOnly} />`}
  `;
}

const BATCHES = 60;

// The newest batches. The width of each is its number of offsets.
export function Batches({ topic, partition, data, base = "" }) {
  const answer = useAnswer(base + topicPath(topic, "partitions", partition, `batches?limit=${BATCHES}`), { every: 3000 });
  const [picked, setPicked] = useState(null);
  const batches = answer.data ?? [];
  if (!batches.length) return null;
  const low = batches[0].base_offset;
  const span = Math.max(1, batches.at(-1).last_offset + 1 - low);
  const at = (offset) => `${(100 * (offset - low)) / span}%`;
  const marks = MARKS.filter(([name]) => data[name] >= low && data[name] <= low + span);
  const shown = batches.find((each) => each.base_offset === picked) ?? batches.at(-1);
  return html`
    <h2>Newest batches</h2>
    <div class="panel picture">
      <svg width="100%" height="58" role="img" aria-label=${`${plural(batches.length, "batch", "batches")}, offsets ${low} to ${low + span - 1}`}>
        ${batches.map(
          (each) => html`<rect
            class=${`batch ${each.control ? "control" : each.transactional ? "transactional" : ""} ${each === shown ? "picked" : ""}`}
            x=${at(each.base_offset)} y="14" height="28" width=${`${(100 * (each.last_offset + 1 - each.base_offset)) / span}%`}
            onClick=${() => setPicked(each.base_offset)}
          ><title>${`offsets ${each.base_offset} to ${each.last_offset}, ${bytes(each.bytes)}`}</title></rect>`,
        )}
        ${marks.map(([name]) => html`<line class=${`mark mark-${MARKS.findIndex(([other]) => other === name)}`} x1=${at(data[name])} x2=${at(data[name])} y1="4" y2="54" />`)}
      </svg>
      <p class="soft small">
        Offsets <b>${count(shown.base_offset)}</b> to <b>${count(shown.last_offset)}</b>: ${plural(shown.records ?? 1, "record")}, ${bytes(shown.bytes)} at byte ${count(shown.position)}, compression ${shown.compression ?? "–"},
        leader epoch ${shown.leader_epoch ?? "–"}${shown.producer_id !== null && shown.producer_id !== undefined ? `, producer ${shown.producer_id}` : ""}${shown.control ? ", a transaction marker" : shown.transactional ? ", transactional" : ""}
      </p>
    </div>
  `;
}

const HUES = 12;
const hue = (key) => [...(key ?? "")].reduce((sum, each) => (sum * 31 + each.codePointAt(0)) % 997, 7) % HUES;

// Each record as a cell in the colour of its key: first all records, then those that compaction keeps.
export function CompactionPicture({ data }) {
  const cells = (records) => html`<div class="cells">
    ${records.slice(0, 600).map((each) => html`<span class=${`cell hue-${hue(each.key)} ${each.kept ? "" : "gone"} ${each.tombstone ? "tombstone" : ""}`} title=${`offset ${each.offset}, key ${each.key ?? "none"}${each.tombstone ? ", tombstone" : ""}${each.active ? ", in the active segment" : ""}`}>${each.key === null ? "–" : each.key.length > 10 ? `…${each.key.slice(-8)}` : each.key}</span>`)}
  </div>`;
  return html`
    <div class="panel picture">
      <h3>Before: ${plural(data.records.length, "record")}</h3>
      ${cells(data.records)}
      ${data.kept === data.records.length
        ? html`<p>Compaction has nothing to remove now.</p>`
        : html`<h3>After: ${plural(data.kept, "record")}</h3>${cells(data.records.filter((each) => each.kept))}`}
      <p class="soft small">Each cell is a record, named by its key. Compaction keeps the last record of each key; it leaves the active segment alone.${data.truncated ? " Only the first records are shown." : ""}</p>
    </div>
  `;
}

function Compaction({ topic, partition, readOnly }) {
  const answer = useAnswer(topicPath(topic, "partitions", partition, "compaction"), { every: 10000 });
  const [error, setError] = useState(null);
  const [done, setDone] = useState(null);
  if (!answer.data?.compacted) return null;
  const run = async () => {
    try {
      setDone(await ask(topicPath(topic, "partitions", partition, "compact"), { method: "POST", body: {} }));
      setError(null);
    } catch (failure) {
      setError(failure);
    }
    answer.reload();
  };
  return html`
    <h2>Compaction</h2>
    <${Problem} error=${error} />
    <${CompactionPicture} data=${answer.data} />
    <div class="bar">
      ${!readOnly && html`<button onClick=${run}>Compact now</button>`}
      ${done && html`<span class="soft" role="status">${bytes(done.bytes_before)} became ${bytes(done.bytes_after)}.</span>`}
    </div>
  `;
}

function Known({ topic, partition, readOnly }) {
  const answer = useAnswer(topicPath(topic, "partitions", partition, "storage"), { every: 3000 });
  const [kind, setKind] = useState("offset");
  const [wanted, setWanted] = useState("");
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const search = async (event) => {
    event.preventDefault();
    const value = kind === "time" ? new Date(wanted).getTime() : wanted || 0;
    try {
      setFound(await ask(topicPath(topic, "partitions", partition, `lookup?${kind}=${value}`)));
      setError(null);
    } catch (failure) {
      setFound(null);
      setError(failure);
    }
  };
  return html`
    <${Waiting} answer=${answer}>
      ${(data) => html`
        <${Picture} data=${data} found=${found?.found} />
        <h2>How is it found?</h2>
        <form class="bar" onSubmit=${search}>
          <label>Look for<select value=${kind} onChange=${(event) => (setKind(event.target.value), setWanted(""), setFound(null))}><option value="offset">an offset</option><option value="time">a time</option></select></label>
          ${kind === "offset"
            ? html`<label>Offset<input type="number" min="0" value=${wanted} onInput=${(event) => setWanted(event.target.value)} /></label>`
            : html`<label>Time<input type="datetime-local" step="0.001" required value=${wanted} onInput=${(event) => setWanted(event.target.value)} /></label>`}
          <button class="first">Look up</button>
        </form>
        <${Problem} error=${error} />
        ${found && html`<${Steps} answer=${found} />`}
        <${Batches} topic=${topic} partition=${partition} data=${data} />
        <${Compaction} topic=${topic} partition=${partition} readOnly=${readOnly} />
        <h2>Segments</h2>
        <${Table}
          label="Segments"
          rows=${data.segments}
          columns=${[
            { name: "Segment", value: (row) => row.base_offset, show: (row) => html`<span class="mono">${String(row.base_offset).padStart(20, "0")}.log</span>${row.active ? html` <span class="tag good">active</span>` : ""}` },
            { name: "Offsets", number: true, value: (row) => row.next_offset - row.base_offset, show: (row) => count(row.next_offset - row.base_offset) },
            { name: "Size", number: true, value: (row) => row.bytes, show: (row) => bytes(row.bytes) },
            { name: "Index", number: true, value: (row) => row.index_entries, show: (row) => count(row.index_entries) },
            { name: "Time index", number: true, value: (row) => row.time_index_entries, show: (row) => count(row.time_index_entries) },
            { name: "Newest record", value: (row) => row.max_timestamp, show: (row) => time(row.max_timestamp) },
          ]}
        />
        <p class="soft">An entry goes into the indexes after every ${bytes(data.index_interval_bytes)} of records.</p>
      `}
    <//>
  `;
}
