// Trouble on purpose: faults, the clock, and brokers that stop.
import { html, useState } from "../preact.js";
import { ask, useAnswer } from "../api.js";
import { count } from "../format.js";
import { Missing, Problem, Table } from "../ui.js";

const FAULTS = {
  error: ["Answer with an error", ["api", "error"]],
  delay: ["Answer late", ["api", "ms"]],
  drop: ["Drop the connection", ["api"]],
  black_hole: ["Never answer", ["api"]],
  disk_full: ["The disk is full", []],
  rebalance: ["A group rebalances", ["group"]],
};
const NAMES = { api: "API", error: "Error", ms: "Milliseconds", group: "Group", times: "Times" };
const USUAL = { api: "Produce", error: "NOT_LEADER_OR_FOLLOWER", ms: "500" };
const ADVANCES = [["+1 s", { seconds: 1 }], ["+10 s", { seconds: 10 }], ["+1 min", { minutes: 1 }], ["+1 h", { hours: 1 }], ["+1 day", { days: 1 }]];

const STATES = { running: "good", down: "bad" };
const VERBS = { running: ["kill", "stop", "pause"], fenced: ["kill", "stop", "pause"], paused: ["resume", "kill"], down: ["start"] };

function NewFault({ act }) {
  const [kind, setKind] = useState("error");
  const [given, setGiven] = useState({ ...USUAL, times: "1" });
  const fields = [...FAULTS[kind][1], ...(kind === "rebalance" ? [] : ["times"])];
  const make = (event) => {
    event.preventDefault();
    const body = { kind };
    for (const name of fields) if (given[name]) body[name] = name === "ms" || name === "times" ? Number(given[name]) : given[name];
    act("/powers/faults", body);
  };
  return html`
    <form class="bar" onSubmit=${make}>
      <label>Fault<select value=${kind} onChange=${(event) => setKind(event.target.value)}>${Object.entries(FAULTS).map(([name, [title]]) => html`<option value=${name}>${title}</option>`)}</select></label>
      ${fields.map((name) => html`<label>${NAMES[name]}<input value=${given[name] ?? ""} size=${name === "error" ? 28 : 10} onInput=${(event) => setGiven({ ...given, [name]: event.target.value })} /></label>`)}
      <button class="first">Set fault</button>
    </form>
  `;
}

function Brokers({ state, act, readOnly }) {
  const steer = (verb, broker) => act(`/powers/cluster/${verb}`, broker === undefined ? {} : { broker });
  return html`
    <${Table}
      label="Brokers"
      rows=${Object.entries(state.brokers).map(([number, each]) => ({ number: Number(number), state: each }))}
      columns=${[
        { name: "Broker", number: true, value: (row) => row.number },
        { name: "State", value: (row) => row.state, show: (row) => html`<span class=${`tag ${STATES[row.state] ?? "warn"}`}>${row.state}</span>` },
        { name: "Do", show: (row) => !readOnly && html`<div class="bar tight">${VERBS[row.state].map((verb) => html`<button aria-label=${`${verb} broker ${row.number}`} onClick=${() => steer(verb, row.number)}>${verb}</button>`)}</div>` },
      ]}
    />
    ${!readOnly && html`<div class="bar"><button onClick=${() => steer("heal")}>Heal the network</button><button onClick=${() => steer("elect_preferred")}>Elect preferred leaders</button></div>`}
  `;
}

export function Powers({ missing, powers, readOnly }) {
  if (missing === undefined) return html`<p class="loading">Loading…</p>`;
  if (missing || powers) return html`<h1>Powers</h1><${Missing} reason=${missing || powers}>Faults, the virtual clock, and brokers that stop and start.<//>`;
  return html`<${Known} readOnly=${readOnly} />`;
}

function Known({ readOnly }) {
  const answer = useAnswer("/powers", { every: 2000 });
  const [error, setError] = useState(null);
  const act = async (path, body, method = "POST") => {
    try {
      await ask(path, { method, body });
      setError(null);
    } catch (failure) {
      setError(failure);
    }
    answer.reload();
  };
  const data = answer.data;
  return html`
    <h1>Powers</h1>
    <${Problem} error=${error ?? answer.error} />
    ${data &&
    html`
      <h2>Faults</h2>
      ${!readOnly && html`<${NewFault} act=${act} />`}
      <${Table}
        label="Faults"
        rows=${data.faults}
        empty="No fault is set."
        columns=${[
          { name: "Number", number: true, value: (row) => row.id },
          { name: "Fault", value: (row) => row.text },
          { name: "Fired", number: true, value: (row) => row.fired, show: (row) => count(row.fired) },
          { name: "State", value: (row) => String(row.active), show: (row) => html`<span class=${`tag ${row.active ? "warn" : ""}`}>${row.active ? "in force" : "over"}</span>` },
          { name: "", show: (row) => !readOnly && row.active && html`<button class="plain" aria-label=${`Remove fault ${row.id}`} onClick=${() => act(`/powers/faults/${row.id}`, undefined, "DELETE")}>Remove</button>` },
        ]}
      />
      ${!readOnly &&
      html`<h2>Clock</h2>
        <div class="bar">${ADVANCES.map(([name, step]) => html`<button onClick=${() => act("/powers/clock", step)}>${name}</button>`)}</div>`}
      <h2>${data.cluster ? "Brokers" : "Broker"}</h2>
      ${data.cluster
        ? html`<${Brokers} state=${data.state} act=${act} readOnly=${readOnly} />`
        : html`<div class="bar">
            <span class=${`tag ${data.state.running ? "good" : "bad"}`}>${data.state.running ? "running" : "down"}</span>
            ${!readOnly && (data.state.running ? ["restart", "down", "kill"] : ["up"]).map((verb) => html`<button onClick=${() => act(`/powers/broker/${verb}`, {})}>${verb}</button>`)}
          </div>`}
    `}
  `;
}
