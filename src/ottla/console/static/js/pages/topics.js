import { html, useEffect, useRef, useState } from "../preact.js";
import { ask, useAnswer } from "../api.js";
import { bytes, count } from "../format.js";
import { go, Link, path } from "../router.js";
import { Dialog, Problem, Table, Waiting } from "../ui.js";

function health(topic) {
  if (topic.offline) return html`<span class="tag bad">${count(topic.offline)} without a leader</span>`;
  if (topic.under_replicated) return html`<span class="tag warn">${count(topic.under_replicated)} under-replicated</span>`;
  return html`<span class="tag good">healthy</span>`;
}

function NewTopic({ onClose }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("1");
  const [replication, setReplication] = useState("");
  const [settings, setSettings] = useState("");
  const [error, setError] = useState(null);
  const create = async (event) => {
    event.preventDefault();
    const configs = {};
    for (const line of settings.split("\n").filter((each) => each.trim())) {
      const at = line.indexOf("=");
      if (at < 0) return setError(new Error(`"${line.trim()}" is not name=value`));
      configs[line.slice(0, at).trim()] = line.slice(at + 1).trim();
    }
    try {
      await ask("/topics", {
        method: "POST",
        body: {
          name,
          ...(partitions && { partitions: Number(partitions) }),
          ...(replication && { replication_factor: Number(replication) }),
          configs,
        },
      });
      onClose();
      go(path("topics", name));
    } catch (failure) {
      setError(failure);
    }
  };
  return html`
    <${Dialog} title="Create a topic" onClose=${onClose}>
      <form class="form" onSubmit=${create}>
        <${Problem} error=${error} />
        <label>Name<input required autofocus value=${name} onInput=${(event) => setName(event.target.value)} /></label>
        <div class="row">
          <label>Partitions<input type="number" min="1" value=${partitions} onInput=${(event) => setPartitions(event.target.value)} /></label>
          <label>Replication factor<input type="number" min="1" placeholder="default" value=${replication} onInput=${(event) => setReplication(event.target.value)} /></label>
        </div>
        <label>Settings, one name=value a line<textarea value=${settings} onInput=${(event) => setSettings(event.target.value)}></textarea></label>
        <footer>
          <button type="button" onClick=${onClose}>Cancel</button>
          <button class="first">Create</button>
        </footer>
      </form>
    <//>
  `;
}

// Records per second of each topic: the growth of its end offsets between two answers.
function useRates(topics) {
  const last = useRef({ now: 0, ends: new Map() });
  const [rates, setRates] = useState(new Map());
  useEffect(() => {
    if (!topics) return;
    const now = performance.now();
    const { now: before, ends } = last.current;
    const seconds = (now - before) / 1000;
    setRates(new Map(topics.filter((each) => ends.has(each.name)).map((each) => [each.name, Math.max(0, (each.end_offsets - ends.get(each.name)) / seconds)])));
    last.current = { now, ends: new Map(topics.map((each) => [each.name, each.end_offsets])) };
  }, [topics]);
  return rates;
}

export function Topics({ readOnly }) {
  const answer = useAnswer("/topics?offsets=true", { every: 5000 });
  const rates = useRates(answer.data);
  const [text, setText] = useState("");
  const [internal, setInternal] = useState(false);
  const [creating, setCreating] = useState(false);
  const shown = (answer.data ?? []).filter(
    (topic) => (internal || !topic.internal) && topic.name.toLowerCase().includes(text.toLowerCase()),
  );
  return html`
    <h1>Topics</h1>
    <div class="bar">
      <input class="grow" type="search" aria-label="Filter by name" placeholder="Filter by name" value=${text} onInput=${(event) => setText(event.target.value)} />
      <span><input id="internal" type="checkbox" checked=${internal} onChange=${(event) => setInternal(event.target.checked)} /> <label for="internal" class="inline">Internal topics</label></span>
      ${!readOnly && html`<button class="first" onClick=${() => setCreating(true)}>Create topic</button>`}
    </div>
    <${Waiting} answer=${answer}>
      ${() => html`
        <${Table}
          label="Topics"
          rows=${shown}
          link=${(row) => path("topics", row.name)}
          empty=${answer.data.length ? "No topic matches." : "There are no topics yet."}
          columns=${[
            { name: "Name", value: (row) => row.name, show: (row) => html`<${Link} to=${path("topics", row.name)} class="mono">${row.name}<//>` },
            { name: "Partitions", number: true, value: (row) => row.partitions, show: (row) => count(row.partitions) },
            { name: "Replicas", number: true, value: (row) => row.replication_factor },
            { name: "Records", number: true, value: (row) => row.end_offsets - row.start_offsets, show: (row) => (row.end_offsets === null ? "–" : count(row.end_offsets - row.start_offsets)) },
            { name: "Records/s", number: true, value: (row) => rates.get(row.name) ?? -1, show: (row) => (rates.has(row.name) ? count(Math.round(rates.get(row.name))) : "–") },
            { name: "Size", number: true, value: (row) => row.bytes, show: (row) => bytes(row.bytes) },
            { name: "Health", value: (row) => row.offline * 1e6 + row.under_replicated, show: health },
          ]}
        />
      `}
    <//>
    ${creating && html`<${NewTopic} onClose=${() => setCreating(false)} />`}
  `;
}
