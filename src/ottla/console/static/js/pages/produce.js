import { html, useState } from "../preact.js";
import { ask, topicPath } from "../api.js";
import { Dialog, Problem } from "../ui.js";

const asText = (content) => content?.text ?? "";
const asLines = (headers) => (headers ?? []).map((each) => `${each.name}=${asText(each.value)}`).join("\n");

export function Produce({ topic, like, onClose }) {
  const [key, setKey] = useState(asText(like?.key));
  const [noKey, setNoKey] = useState(like ? like.key === null : true);
  const [value, setValue] = useState(asText(like?.value));
  const [tombstone, setTombstone] = useState(like?.value === null);
  const [headers, setHeaders] = useState(asLines(like?.headers));
  const [partition, setPartition] = useState("");
  const [timestamp, setTimestamp] = useState("");
  const [error, setError] = useState(null);
  const [sent, setSent] = useState(null);
  const binary = like && [like.key, like.value].some((each) => each && each.text === undefined);
  const send = async (event) => {
    event.preventDefault();
    const lines = headers.split("\n").filter((each) => each.trim());
    const wrong = lines.find((each) => !each.includes("="));
    if (wrong) return setError(new Error(`"${wrong}" is not name=value`));
    try {
      const body = {
        key: noKey ? null : { text: key },
        value: tombstone ? null : { text: value },
        headers: lines.map((each) => ({ name: each.slice(0, each.indexOf("=")).trim(), value: { text: each.slice(each.indexOf("=") + 1) } })),
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
        ${binary && html`<p class="notice">The record has binary data, which cannot be edited as text.</p>`}
        ${sent && html`<p class="notice" role="status">Written to partition ${sent.partition} at offset ${sent.offset}.</p>`}
        <div class="row">
          <label class="grow">Key<input disabled=${noKey} value=${key} onInput=${(event) => setKey(event.target.value)} /></label>
          <span><input id="no-key" type="checkbox" checked=${noKey} onChange=${(event) => setNoKey(event.target.checked)} /> <label for="no-key" class="inline">No key</label></span>
        </div>
        <label>Value<textarea disabled=${tombstone} value=${value} onInput=${(event) => setValue(event.target.value)}></textarea></label>
        <span><input id="tombstone" type="checkbox" checked=${tombstone} onChange=${(event) => setTombstone(event.target.checked)} /> <label for="tombstone" class="inline">Tombstone (null value)</label></span>
        <label>Headers, one name=value a line<textarea value=${headers} onInput=${(event) => setHeaders(event.target.value)}></textarea></label>
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
