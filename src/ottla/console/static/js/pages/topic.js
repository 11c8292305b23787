import { html, useState } from "../preact.js";
import { ask, topicPath, useAnswer } from "../api.js";
import { bytes, count } from "../format.js";
import { go, Link, path } from "../router.js";
import { Confirm, Problem, Table, Waiting } from "../ui.js";
import { Messages } from "./messages.js";
import { Produce } from "./produce.js";

const TABS = [
  ["messages", "Messages"],
  ["partitions", "Partitions"],
  ["settings", "Settings"],
];

function Partitions({ topic }) {
  return html`
    <${Table}
      label="Partitions"
      rows=${topic.partitions}
      columns=${[
        { name: "Partition", number: true, value: (row) => row.partition, show: (row) => html`<${Link} to=${path("topics", topic.name, "partitions", row.partition)}>${row.partition}<//>` },
        { name: "Leader", number: true, value: (row) => row.leader, show: (row) => (row.leader < 0 ? html`<span class="tag bad">none</span>` : row.leader) },
        { name: "Replicas", value: (row) => row.replicas.join(", ") },
        { name: "In sync", value: (row) => row.in_sync.length, show: (row) => html`<span class=${row.in_sync.length < row.replicas.length ? "tag warn" : ""}>${row.in_sync.join(", ") || "none"}</span>` },
        { name: "First offset", number: true, value: (row) => row.start_offset, show: (row) => count(row.start_offset) },
        { name: "End offset", number: true, value: (row) => row.end_offset, show: (row) => count(row.end_offset) },
        { name: "Size", number: true, value: (row) => row.bytes, show: (row) => bytes(row.bytes) },
      ]}
    />
  `;
}

function Setting({ topic, setting, readOnly, onChanged }) {
  const [value, setValue] = useState(null);
  const [error, setError] = useState(null);
  const save = async (next) => {
    try {
      await ask(topicPath(topic), { method: "PATCH", body: { configs: { [setting.name]: next } } });
      setValue(null);
      setError(null);
      onChanged();
    } catch (failure) {
      setError(failure);
    }
  };
  if (value === null) {
    return html`
      <span class="mono">${setting.value ?? "–"}</span>
      ${!setting.default && html` <span class="tag warn">set here</span>`}
      ${!readOnly && html` <button class="plain" aria-label=${`Change ${setting.name}`} onClick=${() => setValue(setting.value ?? "")}>Change</button>`}
      ${!readOnly && !setting.default && html` <button class="plain" onClick=${() => save(null)}>Use default</button>`}
    `;
  }
  return html`
    <form class="bar" onSubmit=${(event) => (event.preventDefault(), save(value))}>
      <input aria-label=${setting.name} value=${value} onInput=${(event) => setValue(event.target.value)} />
      <button class="first">Save</button><button type="button" onClick=${() => setValue(null)}>Cancel</button>
    </form>
    <${Problem} error=${error} />
  `;
}

function Settings({ topic, readOnly, onChanged }) {
  return html`
    <${Table}
      label="Settings"
      rows=${topic.configs}
      columns=${[
        { name: "Name", value: (row) => row.name, show: (row) => html`<span class="mono" title=${row.documentation ?? ""}>${row.name}</span>` },
        { name: "Value", show: (row) => html`<${Setting} topic=${topic.name} setting=${row} readOnly=${readOnly} onChanged=${onChanged} />` },
      ]}
    />
  `;
}

export function Topic({ topic, tab = "messages", readOnly }) {
  const answer = useAnswer(topicPath(topic), { every: 5000 });
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  return html`
    <p class="crumbs"><${Link} to="/topics">Topics<//></p>
    <h1 class="mono">${topic}</h1>
    <div class="bar">
      ${answer.data &&
      html`<span class="soft grow">
        ${count(answer.data.partitions.length)} ${answer.data.partitions.length === 1 ? "partition" : "partitions"},
        ${" "}${count(answer.data.partitions.reduce((sum, each) => sum + Math.max(0, (each.end_offset ?? 0) - (each.start_offset ?? 0)), 0))} offsets,
        ${" "}${bytes(answer.data.partitions.reduce((sum, each) => sum + (each.bytes ?? 0), 0))}
      </span>`}
      ${!readOnly &&
      answer.data &&
      html`
        <button class="first" onClick=${() => setDialog("produce")}>Produce</button>
        <button onClick=${() => setDialog("empty")}>Empty</button>
        <button class="danger" onClick=${() => setDialog("delete")}>Delete</button>
      `}
    </div>
    <nav class="tabs" aria-label="Parts of the topic">
      ${TABS.map(([name, title]) => html`<${Link} to=${path("topics", topic, name)} aria-current=${tab === name ? "page" : undefined}>${title}<//>`)}
    </nav>
    <${Waiting} answer=${answer}>
      ${(data) => {
        if (tab === "partitions") return html`<${Partitions} topic=${data} />`;
        if (tab === "settings") return html`<${Settings} topic=${data} readOnly=${readOnly} onChanged=${answer.reload} />`;
        return html`<${Messages} topic=${data} readOnly=${readOnly} />`;
      }}
    <//>
    ${dialog === "produce" && html`<${Produce} topic=${topic} onClose=${close} />`}
    ${dialog === "empty" &&
    html`<${Confirm}
      title="Empty the topic"
      text=${html`All records of <b class="mono">${topic}</b> are deleted. The topic, its settings and the offsets of groups stay.`}
      action="Delete all records"
      onConfirm=${async () => (await ask(topicPath(topic, "empty"), { method: "POST", body: {} }), answer.reload())}
      onClose=${close}
    />`}
    ${dialog === "delete" &&
    html`<${Confirm}
      title="Delete the topic"
      text=${html`<b class="mono">${topic}</b> and all of its records are deleted. This cannot be undone.`}
      typed=${topic}
      action="Delete topic"
      onConfirm=${async () => (await ask(topicPath(topic), { method: "DELETE" }), go("/topics"))}
      onClose=${close}
    />`}
  `;
}
