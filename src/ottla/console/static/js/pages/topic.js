import { html, useEffect, useRef, useState } from "../preact.js";
import { ask, topicPath, useAnswer } from "../api.js";
import { bytes, count, plural, rate } from "../format.js";
import { go, Link, path } from "../router.js";
import { Settings } from "../settings.js";
import { Confirm, Dialog, Form, State, Table, Tabs, Waiting } from "../ui.js";
import { Messages } from "./messages.js";
import { Produce } from "./produce.js";
import { Redrive } from "./redrive.js";
import { HeldBack } from "./transactions.js";

const TABS = [
  ["messages", "Messages"],
  ["partitions", "Partitions"],
  ["groups", "Consumers"],
  ["transactions", "Transactions"],
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

function Consumers({ topic }) {
  const answer = useAnswer(topicPath(topic, "groups"), { every: 5000 });
  return html`<${Waiting} answer=${answer}>
    ${(rows) => html`<${Table}
      label="Consumers"
      rows=${rows}
      link=${(row) => path("groups", row.group)}
      empty="No group has committed an offset in this topic."
      columns=${[
        { name: "Group", value: (row) => row.group, show: (row) => html`<${Link} to=${path("groups", row.group)} class="mono">${row.group}<//>` },
        { name: "Kind", value: (row) => row.kind },
        { name: "State", value: (row) => row.state, show: (row) => html`<${State} state=${row.state} />` },
        { name: "Partitions", number: true, value: (row) => row.partitions },
        { name: "Lag", number: true, value: (row) => row.lag, show: (row) => count(row.lag) },
      ]}
    />`}
  <//>`;
}

function OpenTransactions({ topic }) {
  const answer = useAnswer(topicPath(topic, "transactions"), { every: 2000 });
  return html`<${Waiting} answer=${answer}>
    ${(rows) => html`<div class="panel form">${rows.map((each) => html`<div key=${each.partition}><b>Partition ${each.partition}</b><${HeldBack} partition=${each} /></div>`)}</div>`}
  <//>`;
}

// Records per second: the growth of the end offsets between two answers.
function useRate(data) {
  const last = useRef(null);
  const [perSecond, setPerSecond] = useState(null);
  useEffect(() => {
    if (!data) return;
    const end = data.partitions.reduce((sum, each) => sum + (each.end_offset ?? 0), 0);
    const now = performance.now();
    if (last.current) setPerSecond(Math.max(0, ((end - last.current.end) * 1000) / (now - last.current.now)));
    last.current = { end, now };
  }, [data]);
  return perSecond;
}

export function Topic({ topic, tab = "messages", readOnly }) {
  const answer = useAnswer(topicPath(topic), { every: 5000 });
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  const data = answer.data;
  const perSecond = useRate(data);
  const change = async (body) => {
    await ask(topicPath(topic), { method: "PATCH", body });
    answer.reload();
  };
  const sum = (value) => data.partitions.reduce((total, each) => total + value(each), 0);
  return html`
    <p class="crumbs"><${Link} to="/topics">Topics<//></p>
    <h1 class="mono">${topic}</h1>
    <div class="bar">
      ${data &&
      html`<span class="soft grow">
        ${plural(data.partitions.length, "partition")}, ${count(sum((each) => Math.max(0, (each.end_offset ?? 0) - (each.start_offset ?? 0))))} offsets,
        ${" "}${bytes(sum((each) => each.bytes ?? 0))}${perSecond !== null && `, ${rate(perSecond)}`}
      </span>`}
      ${!readOnly &&
      data &&
      html`
        <button class="first" onClick=${() => setDialog("produce")}>Produce</button>
        <button onClick=${() => setDialog("partitions")}>Add partitions</button>
        <button onClick=${() => setDialog("redrive")}>Redrive</button>
        <button onClick=${() => setDialog("empty")}>Empty</button>
        <button class="danger" onClick=${() => setDialog("delete")}>Delete</button>
      `}
    </div>
    <${Tabs} label="Parts of the topic" base=${path("topics", topic)} current=${tab} tabs=${TABS} />
    <${Waiting} answer=${answer}>
      ${(found) => {
        if (tab === "partitions") return html`<${Partitions} topic=${found} />`;
        if (tab === "groups") return html`<${Consumers} topic=${topic} />`;
        if (tab === "transactions") return html`<${OpenTransactions} topic=${topic} />`;
        if (tab === "settings") return html`<${Settings} configs=${found.configs} readOnly=${readOnly} onSave=${(configs) => change({ configs })} />`;
        return html`<${Messages} topic=${found} readOnly=${readOnly} bootstrap=${found.bootstrap} />`;
      }}
    <//>
    ${dialog === "produce" && html`<${Produce} topic=${topic} onClose=${close} />`}
    ${dialog === "redrive" && html`<${Redrive} topic=${topic} onClose=${close} />`}
    ${dialog === "partitions" &&
    html`<${Dialog} title="Add partitions" onClose=${close}>
      <${Form}
        fields=${[{ name: "partitions", label: "Partitions in all", type: "number", min: data.partitions.length + 1, value: String(data.partitions.length + 1), required: true }]}
        note="Keys may go to other partitions from then on. Partitions cannot be removed."
        action="Add"
        onSubmit=${async ({ partitions }) => (await change({ partitions: Number(partitions) }), close())}
        onCancel=${close}
      />
    <//>`}
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
