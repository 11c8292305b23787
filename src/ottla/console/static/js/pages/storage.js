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

function Picture({ data, found }) {
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

function Steps({ answer }) {
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

export function Storage({ topic, partition, missing }) {
  return html`
    <p class="crumbs"><${Link} to="/topics">Topics<//> / <${Link} to=${path("topics", topic, "partitions")}>${topic}<//></p>
    <h1 class="mono">${topic}-${partition}</h1>
    ${missing === undefined
      ? html`<p class="loading">Loading…</p>`
      : missing
        ? html`<${Missing} reason=${missing}>The segments of the partition, their index entries, and how an offset is found.<//>`
        : html`<${Known} topic=${topic} partition=${partition} />`}
  `;
}

function Known({ topic, partition }) {
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
