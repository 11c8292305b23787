// A record as a command or as code, ready to paste.
import { html, useState } from "./preact.js";

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function base64(content) {
  if (content.base64 !== undefined) return content.base64;
  return btoa(Array.from(new TextEncoder().encode(content.text), (each) => String.fromCharCode(each)).join(""));
}

// A Python literal: text unchanged, other bytes in base64.
function python(content) {
  if (content === null) return "None";
  if (content.text === undefined) return `base64.b64decode("${content.base64}")`;
  const quoted = JSON.stringify(content.text).replaceAll(/[\u007f-\uffff]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
  // Surrogate pairs of JavaScript are not characters in Python.
  return /\\ud[89a-f]/.test(quoted) ? `base64.b64decode("${base64(content)}")` : `${quoted}.encode()`;
}

const needsBase64 = (record) => [record.key, record.value, ...record.headers.map((each) => each.value)].some((each) => python(each ?? null).startsWith("base64"));

// kcat skips empty lines and ends a message at a newline: an empty value needs a key delimiter, other values another delimiter.
function kcat(record, topic, bootstrap) {
  const headers = record.headers.map((each) => ` -H ${shell(each.value === null ? each.name : `${each.name}=${each.value.text ?? ""}`)}`).join("");
  const target = `kcat -P -b ${bootstrap} -t ${topic} -p ${record.partition}${headers}`;
  const key = record.key === null ? "" : ` -k ${shell(record.key.text ?? "")}`;
  const isBinary = (content) => content !== null && content.text === undefined;
  const notes = [
    isBinary(record.key) && "the key is binary: kcat takes keys as text only",
    record.headers.some((each) => isBinary(each.value)) && "a header is binary: kcat takes headers as text only",
  ];
  const note = notes.filter(Boolean).map((each) => `# ${each}\n`).join("");
  if (!record.value?.bytes) return `${note}printf '%s\\037' ${shell(record.key?.text ?? "")} | ${target} -K '\\x1f' -D '\\x1e'${record.value === null ? " -Z" : ""}`;
  if (isBinary(record.value) || record.value.text.includes("\x1e")) return `${note}printf %s ${shell(base64(record.value))} | base64 -d > value.bin\n${target}${key} value.bin`;
  return `${note}printf %s ${shell(record.value.text)} | ${target}${key} -D '\\x1e'`;
}

function headersOf(record) {
  return record.headers.length ? `[${record.headers.map((each) => `(${JSON.stringify(each.name)}, ${python(each.value)})`).join(", ")}]` : null;
}

function producer(record, topic, bootstrap) {
  const headers = headersOf(record);
  return [
    ...(needsBase64(record) ? ["import base64", ""] : []),
    "from confluent_kafka import Producer",
    "",
    `producer = Producer({"bootstrap.servers": "${bootstrap}"})`,
    "producer.produce(",
    `    ${JSON.stringify(topic)},`,
    `    value=${python(record.value)},`,
    `    key=${python(record.key)},`,
    ...(headers ? [`    headers=${headers},`] : []),
    `    partition=${record.partition},`,
    `    timestamp=${record.timestamp},`,
    ")",
    "producer.flush()",
  ].join("\n");
}

function pytest(record, topic) {
  const name = topic.replaceAll(/\W+/g, "_");
  const headers = headersOf(record);
  const given = `(${python(record.key)}, ${python(record.value)}${headers ? `, ${headers}` : ""})`;
  return [
    ...(needsBase64(record) ? ["import base64", ""] : []),
    "",
    `def test_${name}_offset_${record.offset}(kafka):`,
    `    topic = kafka.topic(${JSON.stringify(topic)})`,
    `    topic.create(${record.partition + 1})`,
    `    topic.append([${given}], partition=${record.partition}, timestamp_ms=${record.timestamp})`,
    "",
    "    # Let your code read from kafka.bootstrap here, and check what it did.",
    `    assert len(topic.records()) == 1`,
  ].join("\n");
}

const WAYS = { kcat, Python: producer, pytest };

export function CopyAs({ record, topic, bootstrap }) {
  const [shown, setShown] = useState(null);
  const [copied, setCopied] = useState(false);
  const cut = [record.key, record.value, ...record.headers.map((each) => each.value)].some((each) => each?.truncated);
  const text = shown && WAYS[shown](record, topic, bootstrap);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
    } catch {
      setCopied(false); // the user can select the text instead
    }
  };
  return html`
    <div class="bar tight">
      <span class="soft">Copy as</span>
      ${Object.keys(WAYS).map((each) => html`<button aria-pressed=${shown === each ? "true" : "false"} onClick=${() => (setShown(shown === each ? null : each), setCopied(false))}>${each}</button>`)}
    </div>
    ${shown &&
    html`<div class="code">
      ${cut && html`<p class="notice">The record is too long for this: only its beginning is here.</p>`}
      <pre aria-label=${`The record as ${shown}`}>${text}</pre>
      <button onClick=${copy}>${copied ? "Copied" : "Copy"}</button>
    </div>`}
  `;
}
