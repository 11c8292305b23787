import { html, useState } from "../preact.js";
import { ask, topicPath } from "../api.js";
import { bytes } from "../format.js";
import { Dialog, Problem } from "../ui.js";

// Content that cannot be edited as text, or is too long, is sent unchanged unless the user enters something else.
const isText = (content) => content?.text !== undefined && !content.truncated;
const asText = (content) => (isText(content) ? content.text : "");
const hint = (content) => (content && !isText(content) ? `${bytes(content.bytes)}${content.text === undefined ? " of binary data" : ""}: sent as it is, unless you write something here` : "");

// A header as a line. Without `=`, its value is null.
function asLine({ name, value }) {
  if (value === null) return name;
  return `${name}=${isText(value) ? value.text.replaceAll("\n", "\\n") : `(${bytes(value.bytes)}, sent as it is)`}`;
}

function asHeader(line) {
  const at = line.indexOf("=");
  return at < 0 ? { name: line.trim(), value: null } : { name: line.slice(0, at).trim(), value: { text: line.slice(at + 1) } };
}

export function Produce({ topic, like, onClose }) {
  const before = { key: asText(like?.key), noKey: like ? like.key === null : true, value: asText(like?.value), tombstone: like?.value === null, lines: (like?.headers ?? []).map(asLine) };
  const [key, setKey] = useState(before.key);
  const [noKey, setNoKey] = useState(before.noKey);
  const [value, setValue] = useState(before.value);
  const [tombstone, setTombstone] = useState(before.tombstone);
  const [headers, setHeaders] = useState(before.lines.join("\n"));
  const [partition, setPartition] = useState("");
  const [timestamp, setTimestamp] = useState("");
  const [error, setError] = useState(null);
  const [sent, setSent] = useState(null);
  const send = async (event) => {
    event.preventDefault();
    const lines = headers.split("\n").filter((each) => each.trim());
    // The broker copies the parts that were not edited from the record itself, byte by byte.
    const edited = {
      key: !like || key !== before.key || noKey !== before.noKey,
      value: !like || value !== before.value || tombstone !== before.tombstone,
      headers: !like || headers !== before.lines.join("\n"),
    };
    const kept = (line) => like?.headers[before.lines.indexOf(line)];
    try {
      const body = {
        ...(like && { like: { partition: like.partition, offset: like.offset } }),
        ...(edited.key && { key: noKey ? null : { text: key } }),
        ...(edited.value && { value: tombstone ? null : { text: value } }),
        ...(edited.headers && { headers: lines.map((line) => kept(line) ?? asHeader(line)) }),
        ...(partition !== "" && { partition: Number(partition) }),
        ...(timestamp !== "" && { timestamp: new Date(timestamp).getTime() }),
      };
      setSent(await ask(topicPath(topic, "records"), { method: "POST", body }));
      setError(null);
    } catch (failure) {
      setError(failure);
      setSent(null);
    }
  };
  return html`
    <${Dialog} title=${`Produce to ${topic}`} onClose=${onClose}>
      <form class="form" onSubmit=${send}>
        <${Problem} error=${error} />
        ${sent && html`<p class="notice" role="status">Written to partition ${sent.partition} at offset ${sent.offset}.</p>`}
        <div class="row">
          <label class="grow">Key<input disabled=${noKey} placeholder=${hint(like?.key)} value=${key} onInput=${(event) => setKey(event.target.value)} /></label>
          <span><input id="no-key" type="checkbox" checked=${noKey} onChange=${(event) => setNoKey(event.target.checked)} /> <label for="no-key" class="inline">No key</label></span>
        </div>
        <label>Value<textarea disabled=${tombstone} placeholder=${hint(like?.value)} value=${value} onInput=${(event) => setValue(event.target.value)}></textarea></label>
        <span><input id="tombstone" type="checkbox" checked=${tombstone} onChange=${(event) => setTombstone(event.target.checked)} /> <label for="tombstone" class="inline">Tombstone (null value)</label></span>
        <label>Headers, one name=value a line; a name alone has no value<textarea value=${headers} onInput=${(event) => setHeaders(event.target.value)}></textarea></label>
        <div class="row">
          <label>Partition<input type="number" min="0" placeholder="by key" value=${partition} onInput=${(event) => setPartition(event.target.value)} /></label>
          <label>Timestamp<input type="datetime-local" step="0.001" value=${timestamp} onInput=${(event) => setTimestamp(event.target.value)} /></label>
        </div>
        <footer>
          <button type="button" onClick=${onClose}>Close</button>
          <button class="first">Send</button>
        </footer>
      </form>
    <//>
  `;
}
