import { html, useRef, useState } from "../preact.js";
import { ask, groupPath, useAnswer } from "../api.js";
import { count, waited } from "../format.js";
import { go, Link, path } from "../router.js";
import { Card, Confirm, Dialog, Problem, State, Table, Waiting } from "../ui.js";
import { GroupHistory } from "../group_history.js";
import { Plot } from "../plot.js";

const HISTORY = 300;

// Lag in records and in seconds. Samples from before this page was opened come first.
function useHistory(data) {
  const history = useRef(null);
  const last = useRef(null);
  if (data && !history.current) {
    const before = data.lag_history ?? [];
    history.current = { times: before.map(([at]) => at / 1000), lags: before.map(([, lag]) => lag), seconds: before.map(() => null) };
  }
  const { times, lags, seconds } = history.current ?? { times: [], lags: [], seconds: [] };
  // Added during rendering, so that the plots match the numbers above them.
  if (data && data !== last.current) {
    last.current = data;
    times.push(Date.now() / 1000);
    lags.push(data.lag);
    seconds.push(data.lag_ms === null ? null : data.lag_ms / 1000);
    if (times.length > HISTORY) (times.shift(), lags.shift(), seconds.shift());
  }
  return { records: [times.slice(), lags.slice()], seconds: [times.slice(), seconds.slice()] };
}

function Reset({ group, topics, onClose, onDone }) {
  const [topic, setTopic] = useState(topics[0] ?? "");
  const [partitions, setPartitions] = useState("");
  const [kind, setKind] = useState("earliest");
  const [detail, setDetail] = useState("");
  const [preview, setPreview] = useState(null);
  const [error, setError] = useState(null);
  const to = () => {
    if (kind === "offset" || kind === "shift") return `${kind}:${detail || 0}`;
    if (kind === "time") return `time:${new Date(detail || Date.now()).getTime()}`;
    if (kind === "ago") return `ago:${Math.round(Number(detail || 0) * 60000)}`;
    return kind;
  };
  // Lines of a file as kafka-consumer-groups exports them: topic,partition,offset.
  const given = () =>
    detail
      .split("\n")
      .filter((each) => each.trim())
      .map((each) => {
        const [name, ...numbers] = each.split(",").map((part) => part.trim().replaceAll('"', ""));
        if (!name || numbers.length !== 2 || !numbers.every((part) => /^\d+$/.test(part))) throw new Error(`"${each.trim()}" is not topic,partition,offset`);
        return { topic: name, partition: Number(numbers[0]), offset: Number(numbers[1]) };
      });
  const chosen = () => {
    if (kind === "given") return { offsets: given() };
    if (!topic || !partitions.trim()) return topic ? { topic } : {};
    const numbers = partitions.split(/[\s,]+/).filter(Boolean);
    if (!numbers.every((part) => /^\d+$/.test(part))) throw new Error(`"${partitions}" is not a list of partitions, such as 0, 2`);
    return { topic, partitions: numbers.map(Number) };
  };
  const run = async (isPreview) => {
    try {
      const answer = await ask(groupPath(group, "offsets"), {
        method: "POST",
        body: { to: to(), ...chosen(), preview: isPreview },
      });
      setError(null);
      if (isPreview) setPreview(answer.offsets);
      else (onDone(), onClose());
    } catch (failure) {
      setError(failure);
      setPreview(null);
    }
  };
  return html`
    <${Dialog}
      title="Reset offsets"
      onClose=${onClose}
      footer=${html`
        <button onClick=${onClose}>Cancel</button>
        <button onClick=${() => run(true)}>Preview</button>
        <button class="danger" disabled=${!preview?.length} onClick=${() => run(false)}>Reset</button>
      `}
    >
      <div class="form">
        <${Problem} error=${error} />
        <div class="row">
          ${kind !== "given" && html`<label>Topic<input value=${topic} list="topics" placeholder="all committed" onInput=${(event) => (setTopic(event.target.value), setPreview(null))} /></label>`}
          <datalist id="topics">${topics.map((each) => html`<option value=${each} />`)}</datalist>
          ${kind !== "given" && topic && html`<label>Partitions<input value=${partitions} placeholder="all" onInput=${(event) => (setPartitions(event.target.value), setPreview(null))} /></label>`}
          <label>
            To
            <select value=${kind} onChange=${(event) => (setKind(event.target.value), setDetail(""), setPreview(null))}>
              <option value="earliest">earliest</option>
              <option value="latest">latest</option>
              <option value="offset">offset</option>
              <option value="shift">shift by</option>
              <option value="time">time</option>
              <option value="ago">minutes ago</option>
              <option value="current">current offset</option>
              <option value="given">given offsets</option>
            </select>
          </label>
          ${kind === "ago" && html`<label>Minutes<input type="number" min="0" value=${detail} onInput=${(event) => (setDetail(event.target.value), setPreview(null))} /></label>`}
          ${(kind === "offset" || kind === "shift") && html`<label>Number<input type="number" value=${detail} onInput=${(event) => (setDetail(event.target.value), setPreview(null))} /></label>`}
          ${kind === "time" && html`<label>Time<input type="datetime-local" step="1" value=${detail} onInput=${(event) => (setDetail(event.target.value), setPreview(null))} /></label>`}
        </div>
        ${kind === "given" && html`<label>One line each: topic,partition,offset<textarea value=${detail} onInput=${(event) => (setDetail(event.target.value), setPreview(null))}></textarea></label>`}
        ${preview &&
        html`<${Table}
          label="Preview"
          rows=${preview}
          empty="No offset would change: the group has committed nothing here."
          columns=${[
            { name: "Topic", value: (row) => row.topic },
            { name: "Partition", number: true, value: (row) => row.partition },
            { name: "From", number: true, show: (row) => count(row.from) },
            { name: "To", number: true, show: (row) => count(row.to) },
          ]}
        />`}
      </div>
    <//>
  `;
}

export function Group({ group, readOnly, missing }) {
  const answer = useAnswer(groupPath(group), { every: 2000 });
  const history = useHistory(answer.data);
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  const data = answer.data;
  return html`
    <p class="crumbs"><${Link} to="/groups">Groups<//></p>
    <h1 class="mono">${group}</h1>
    <div class="bar">
      <span class="grow">${data && html`<${State} state=${data.state} /> <span class="soft">${data.kind} group, coordinator ${data.coordinator}${data.assignor ? `, ${data.assignor}` : ""}</span>`}</span>
      ${data && !readOnly && html`<button onClick=${() => setDialog("reset")}>Reset offsets</button><button class="danger" onClick=${() => setDialog("delete")}>Delete</button>`}
    </div>
    <${Waiting} answer=${answer}>
      ${(found) => html`
        <div class="cards">
          <${Card} number=${count(found.members.length)} name=${found.members.length === 1 ? "member" : "members"} />
          <${Card} number=${count(found.lag)} name="records behind" />
          ${found.lag_ms !== null && html`<${Card} number=${waited(found.lag_ms)} name="behind in time" />`}
        </div>
        <div class="two">
          <div><h2>Lag in records</h2><${Plot} data=${history.records} name="lag in records" /></div>
          ${found.lag_ms !== null && html`<div><h2>Lag in seconds</h2><${Plot} data=${history.seconds} name="lag in seconds" /></div>`}
        </div>
        <h2>Rebalances</h2>
        <${GroupHistory} group=${group} missing=${missing} />
        <h2>Offsets</h2>
        <${Table}
          label="Offsets"
          rows=${found.offsets}
          empty="The group has committed nothing."
          columns=${[
            { name: "Topic", value: (row) => `${row.topic} ${String(row.partition).padStart(6, "0")}`, show: (row) => html`<${Link} to=${path("topics", row.topic)} class="mono">${row.topic}<//>` },
            { name: "Partition", number: true, value: (row) => row.partition },
            { name: "Committed", number: true, value: (row) => row.committed, show: (row) => count(row.committed) },
            { name: "End", number: true, value: (row) => row.end, show: (row) => count(row.end) },
            { name: "Lag", number: true, value: (row) => row.lag, show: (row) => count(row.lag) },
            { name: "In time", number: true, value: (row) => row.lag_ms, show: (row) => waited(row.lag_ms) },
            { name: "Member", value: (row) => row.member_id ?? "", show: (row) => html`<span class="mono soft">${row.member_id ?? "–"}</span>` },
          ]}
        />
        <h2>Members</h2>
        <${Table}
          label="Members"
          rows=${found.members}
          empty="The group has no members."
          columns=${[
            { name: "Client", value: (row) => row.client_id },
            { name: "Host", value: (row) => row.host, show: (row) => html`<span class="mono">${row.host}</span>` },
            { name: "Member", value: (row) => row.member_id, show: (row) => html`<span class="mono">${row.member_id}</span>` },
            { name: "Static id", value: (row) => row.instance_id ?? "", show: (row) => row.instance_id ?? "–" },
            { name: "Partitions", value: (row) => row.partitions.length, show: (row) => row.partitions.map((each) => `${each.topic}-${each.partition}`).join(", ") || "–" },
          ]}
        />
      `}
    <//>
    ${dialog === "reset" && html`<${Reset} group=${group} topics=${[...new Set((data?.offsets ?? []).map((each) => each.topic))]} onClose=${close} onDone=${answer.reload} />`}
    ${dialog === "delete" &&
    html`<${Confirm}
      title="Delete the group"
      text=${html`<b class="mono">${group}</b> and its committed offsets are deleted.`}
      action="Delete group"
      onConfirm=${async () => (await ask(groupPath(group), { method: "DELETE" }), go("/groups"))}
      onClose=${close}
    />`}
  `;
}
