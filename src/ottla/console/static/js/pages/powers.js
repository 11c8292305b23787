// Failures on purpose: faults, scenarios, the clock, and brokers and links that fail.
import { html, useState } from "../preact.js";
import { ask, useAnswer } from "../api.js";
import { count } from "../format.js";
import { Link } from "../router.js";
import { Confirm, Missing, Problem, Table } from "../ui.js";

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
const VERBS = { running: ["kill", "stop", "pause"], fenced: ["kill", "stop", "pause"], paused: ["resume", "kill"], starting: ["kill"], down: ["start"] };

const SCENARIOS = {
  "A broker that is slow for a while": "- delay: {api: Produce, ms: 800, times: 3}\n- delay: {api: Fetch, ms: 800, times: 3}\n",
  "A leader that moved": "- error: {api: Produce, error: NOT_LEADER_OR_FOLLOWER, times: 2}\n",
  "A coordinator that is not there": "- error: {api: FindCoordinator, error: COORDINATOR_NOT_AVAILABLE, times: 3}\n",
  "A topic with some records": "- create: {topic: demo, partitions: 3}\n- append: {topic: demo, records: [one, two, three]}\n",
};
const CLUSTER_SCENARIOS = {
  ...SCENARIOS,
  "A broker dies and comes back": "- kill: {broker: 1}\n- sleep: {seconds: 3}\n- start: {broker: 1}\n",
  "A network that is cut for a while": "- partition_network: {sides: [[1], [2, 3]]}\n- sleep: {seconds: 3}\n- heal\n",
};

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

function Scenarios({ cluster, onDone }) {
  const known = cluster ? CLUSTER_SCENARIOS : SCENARIOS;
  const [text, setText] = useState(Object.values(known)[0]);
  const [steps, setSteps] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const run = async (event) => {
    event.preventDefault();
    setBusy(true);
    setSteps(null);
    try {
      setSteps((await ask("/powers/scenario", { method: "POST", body: { text } })).steps);
      setError(null);
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
    onDone();
  };
  return html`
    <form class="panel form" onSubmit=${run}>
      <${Problem} error=${error} />
      <label>Begin with<select onChange=${(event) => (setText(known[event.target.value]), setSteps(null))}>${Object.keys(known).map((name) => html`<option>${name}</option>`)}</select></label>
      <label>Steps, in YAML<textarea value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
      <div class="bar tight"><button class="first" disabled=${busy}>${busy ? "Running…" : "Run scenario"}</button></div>
      ${steps && html`<ol class="probes" aria-label="What the steps did">${steps.map(({ step, verb, ...rest }) => html`<li><b>${verb}</b> <span class="mono soft">${JSON.stringify(rest)}</span></li>`)}</ol>`}
    </form>
  `;
}

function Links({ brokers, network, act }) {
  const [first, setFirst] = useState(String(brokers[0]));
  const [second, setSecond] = useState(String(brokers[1] ?? brokers[0]));
  const [ms, setMs] = useState("200");
  const choice = (value, set, label) => html`<label>${label}<select value=${value} onChange=${(event) => set(event.target.value)}>${[...brokers.map(String), "controller"].map((each) => html`<option value=${each}>${each === "controller" ? "controller" : `broker ${each}`}</option>`)}</select></label>`;
  const node = (name) => (name === "controller" ? name : Number(name));
  const others = [...brokers.map(String)].filter((each) => each !== first).map(Number);
  return html`
    <form class="bar" onSubmit=${(event) => (event.preventDefault(), act("/powers/cluster/slow_link", { first: node(first), second: node(second), ms: Number(ms) }))}>
      ${choice(first, setFirst, "Between")} ${choice(second, setSecond, "and")}
      <label>Milliseconds<input type="number" min="0" value=${ms} size="6" onInput=${(event) => setMs(event.target.value)} /></label>
      <button class="first" disabled=${first === second}>Slow link</button>
      <button type="button" disabled=${first === "controller"} onClick=${() => act("/powers/cluster/partition_network", { sides: [[Number(first)], others] })}>Cut ${first === "controller" ? "the controller" : `broker ${first}`} off</button>
      <button type="button" onClick=${() => act("/powers/cluster/heal", {})}>Heal the network</button>
    </form>
    ${network && Object.values(network).some((each) => each && Object.keys(each).length) && html`<p class="notice">Network: <span class="mono">${JSON.stringify(network)}</span></p>`}
  `;
}

// Wrong clocks: a list of them, and a form to add one.
function Clocks({ nodes, skews, act }) {
  const [chosen, setChosen] = useState(nodes[0]);
  const [seconds, setSeconds] = useState("60");
  const set = (node, ms) => act("/powers/cluster/skew_clock", { node: /^\d+$/.test(node) ? Number(node) : node, ms });
  return html`
    <form class="bar" onSubmit=${(event) => (event.preventDefault(), set(chosen, Math.round(Number(seconds) * 1000)))}>
      <label>Clock of<select value=${chosen} onChange=${(event) => setChosen(event.target.value)}>${nodes.map((each) => html`<option value=${each}>${/^\d+$/.test(each) ? `broker ${each}` : each}</option>`)}</select></label>
      <label>Seconds ahead<input type="number" step="any" value=${seconds} size="8" onInput=${(event) => setSeconds(event.target.value)} /></label>
      <button class="first">Set clock</button>
    </form>
    ${Object.entries(skews).map(([node, ms]) => html`<p class="notice">The clock of ${node} is ${Math.abs(ms) / 1000} s ${ms < 0 ? "behind" : "ahead"}. <button class="plain" aria-label=${`Set the clock of ${node} right`} onClick=${() => set(node, 0)}>Set it right</button></p>`)}
  `;
}

function NewBroker({ act }) {
  const [rack, setRack] = useState("");
  return html`
    <form class="bar" onSubmit=${(event) => (event.preventDefault(), act("/powers/cluster/add_broker", rack ? { rack } : {}))}>
      <label>Rack<input value=${rack} size="8" placeholder="none" onInput=${(event) => setRack(event.target.value)} /></label>
      <button class="first">Add broker</button>
    </form>
  `;
}

function Brokers({ state, act, readOnly }) {
  const numbers = Object.keys(state.brokers).map(Number);
  const [removing, setRemoving] = useState(null);
  const [draining, setDraining] = useState({}); // broker -> the number of replicas when the drain began
  const steer = (verb, broker) => act(`/powers/cluster/${verb}`, broker === undefined ? {} : { broker });
  const drain = (broker) => (setDraining({ ...draining, [broker]: state.replicas[broker] }), steer("drain", broker));
  const both = new Set(Object.values(state.controllers ?? {}).map((each) => each.node_id));
  const canRemove = (row) => row.state === "running" && numbers.length > 1;
  const replicas = (row) => html`${count(state.replicas[row.number])}${draining[row.number] > 0 && html` <progress class="drained" aria-label=${`Broker ${row.number} is drained`} max=${draining[row.number]} value=${draining[row.number] - state.replicas[row.number]}></progress>`}`;
  return html`
    <${Table}
      label="Brokers"
      rows=${numbers.map((number) => ({ number, state: state.brokers[number] }))}
      columns=${[
        { name: "Broker", value: (row) => row.number },
        { name: "State", value: (row) => row.state, show: (row) => html`<span class=${`tag ${STATES[row.state] ?? "warn"}`}>${row.state}</span>` },
        { name: "Replicas", number: true, value: (row) => state.replicas[row.number], show: replicas },
        {
          name: "Do",
          show: (row) =>
            !readOnly &&
            html`<div class="bar tight">
              ${VERBS[row.state].map((verb) => html`<button aria-label=${`${verb} broker ${row.number}`} onClick=${() => steer(verb, row.number)}>${verb}</button>`)}
              ${canRemove(row) && html`<button aria-label=${`drain broker ${row.number}`} disabled=${!state.replicas[row.number]} onClick=${() => drain(row.number)}>drain</button>`}
              ${canRemove(row) && !both.has(row.number) && html`<button aria-label=${`remove broker ${row.number}`} onClick=${() => setRemoving(row.number)}>remove</button>`}
            </div>`,
        },
      ]}
    />
    ${!readOnly && html`<${NewBroker} act=${act} />`}
    <div class="bar">
      <${Link} to="/replicas">See the replicas live<//>
      <${Link} to="/quorum">See the controllers<//>
      ${!readOnly && html`<button onClick=${() => steer("elect_preferred")}>Elect preferred leaders</button>`}
    </div>
    ${!readOnly && html`<h2>Links</h2><${Links} brokers=${numbers} network=${state.network} act=${act} />
      <h2>Wrong clocks</h2>
      <${Clocks} nodes=${[...numbers.map(String), ...Object.keys(state.controllers ?? {}).filter((name) => !numbers.includes(state.controllers[name].node_id))]} skews=${state.clock_skew_ms} act=${act} />`}
    ${removing !== null &&
    html`<${Confirm}
      title=${`Remove broker ${removing}`}
      text="Its replicas move to the other brokers, then it is stopped and unregistered. This can take a while."
      action="Remove it"
      onConfirm=${async () => {
        setDraining({ ...draining, [removing]: state.replicas[removing] });
        await act("/powers/cluster/remove_broker", { broker: removing });
      }}
      onClose=${() => setRemoving(null)}
    />`}
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
  const [resetting, setResetting] = useState(false);
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
    <div class="bar spread"><h1>Powers</h1>${!readOnly && data && html`<button class="danger" onClick=${() => setResetting(true)}>Reset</button>`}</div>
    <${Problem} error=${error ?? answer.error} />
    ${data &&
    html`
      <h2 class="first">${data.cluster ? "Brokers" : "Broker"}</h2>
      ${data.cluster
        ? html`<${Brokers} state=${data.state} act=${act} readOnly=${readOnly} />`
        : html`<div class="bar">
            <span class=${`tag ${data.state.running ? "good" : "bad"}`}>${data.state.running ? "running" : "down"}</span>
            ${!readOnly && (data.state.running ? ["restart", "down", "kill"] : ["up"]).map((verb) => html`<button onClick=${() => act(`/powers/broker/${verb}`, {})}>${verb}</button>`)}
          </div>`}
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
        <div class="bar">${ADVANCES.map(([name, step]) => html`<button onClick=${() => act("/powers/clock", step)}>${name}</button>`)}</div>
        <h2>Scenario</h2>
        <${Scenarios} cluster=${data.cluster} onDone=${answer.reload} />`}
    `}
    ${resetting &&
    html`<${Confirm}
      title="Reset"
      text="All topics, groups and faults are deleted, and the network is healed. Brokers that are down stay down."
      action="Delete everything"
      onConfirm=${async () => (await ask("/powers/reset", { method: "POST", body: {} }), answer.reload())}
      onClose=${() => setResetting(false)}
    />`}
  `;
}
