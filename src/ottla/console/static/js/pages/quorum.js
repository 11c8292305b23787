// The metadata quorum, live: its leader, the progress of each voter and observer, and actions on controllers.
import { html, useState } from "../preact.js";
import { ask, useAnswer } from "../api.js";
import { count, plural, waited } from "../format.js";
import { Link, path } from "../router.js";
import { Card, Confirm, Problem, Table, Waiting } from "../ui.js";

const VERBS = { down: ["start"], paused: ["resume", "kill"] };
const USUAL_VERBS = ["kill", "stop", "pause"];
const STATES = { active: "good", follower: "", observer: "", down: "bad" };

// The display name of a node: the name of its controller, or its number.
const named = (data, node) => data.controllers.find((each) => each.node_id === node)?.name ?? String(node);

function Role({ voter, data }) {
  const state = data.controllers.find((each) => each.node_id === voter.node)?.state ?? (voter.node === data.leader ? "active" : "follower");
  return html`<span class=${`tag ${STATES[state] ?? "warn"}`}>${state === "active" ? "leader" : state}</span>`;
}

// Voters drawn to scale: the end of each copy of the log, and the committed part.
function Voters({ data, onSteer }) {
  const ends = data.voters.map((each) => each.end_offset ?? 0);
  const high = Math.max(1, ...ends);
  const low = Math.max(0, Math.min(data.high_watermark ?? high, ...ends.filter((each) => each > 0)) - Math.max(20, Math.round(high * 0.1)));
  const share = (offset) => `${Math.max(0, Math.min(100, (100 * (offset - low)) / Math.max(1, high - low)))}%`;
  return html`
    <div class="panel picture voters" role="group" aria-label="Voters">
      ${data.voters.map((each) => {
        const controller = data.controllers.find((one) => one.node_id === each.node);
        const down = controller?.state === "down";
        const committed = Math.min(each.end_offset ?? 0, data.high_watermark ?? 0);
        return html`
          <div class=${`voter ${down ? "down" : ""}`} key=${each.node} aria-label=${`Controller ${named(data, each.node)}`} role="group">
            <div class="voter-name"><b>${named(data, each.node)}</b> <${Role} voter=${each} data=${data} /><div class="soft small mono">${controller?.address ?? each.address ?? ""}</div></div>
            <svg height="22" width="100%" aria-hidden="true">
              <rect class="track" x="0" y="3" width="100%" height="16" rx="3" />
              ${each.end_offset !== null &&
              html`<rect class="committed" x="0" y="3" height="16" rx="3" width=${share(committed)} />
                <rect class="ahead" x=${share(committed)} y="3" height="16" width=${`${(100 * (each.end_offset - committed)) / Math.max(1, high - low)}%`} />`}
            </svg>
            <div class="voter-numbers small">${each.end_offset === null ? html`<span class="soft">${down ? "down" : "not heard of"}</span>` : html`offset <b>${count(each.end_offset)}</b>${each.lag === null ? "" : html`, ${each.lag ? html`<span class="tag warn">lag ${count(each.lag)}</span>` : "lag 0"}`}`}<div class="soft">${each.node === data.leader ? "leads the quorum" : each.fetched_ms === null ? "" : `fetched ${waited(each.fetched_ms)} ago`}</div></div>
            ${onSteer && controller && html`<div class="bar tight voter-do">${(VERBS[controller.state] ?? USUAL_VERBS).map((verb) => html`<button aria-label=${`${verb} ${controller.name}`} onClick=${() => onSteer(verb, controller)}>${verb}</button>`)}</div>`}
          </div>
        `;
      })}
    </div>
  `;
}

export function Quorum({ missing, powers, readOnly }) {
  const answer = useAnswer("/quorum", { every: 1000 });
  const [error, setError] = useState(null);
  const [asking, setAsking] = useState(null);
  const act = async (verb, controller) => {
    try {
      await ask(`/powers/cluster/${verb}_controller`, { method: "POST", body: { controller: controller.name } });
      setError(null);
    } catch (failure) {
      setError(failure);
    }
    answer.reload();
  };
  const canSteer = !readOnly && !missing && !powers;
  return html`
    <h1>Quorum</h1>
    <p class="lead">The controllers keep the metadata of the cluster in a log that all of them have. A change counts when a majority has it.</p>
    <${Problem} error=${error} />
    <${Waiting} answer=${answer}>
      ${(data) => {
        const down = data.controllers.filter((each) => each.state === "down").length;
        const both = data.voters.filter((each) => data.brokers.includes(each.node)).length;
        // Without a majority, the quorum stops all changes. The controller can be started again, so one question is enough.
        const steer = (verb, controller) => (["kill", "stop"].includes(verb) && data.voters.length - down - 1 <= data.voters.length / 2 && controller.state !== "down" ? setAsking({ verb, controller }) : act(verb, controller));
        return html`
          ${data.leader === null && html`<p class="notice bad" role="status">No controller leads now. Records are still written and read, but no topic is made or changed and no partition gets another leader until a majority of controllers is up.</p>`}
          <div class="cards">
            <${Card} number=${data.leader === null ? "–" : named(data, data.leader)} name="leader" note=${data.leader === null ? "" : `node ${data.leader}`} />
            <${Card} number=${count(data.epoch)} name="epoch" note=${data.leader === null ? "" : "of this leader"} />
            <${Card} number=${count(data.high_watermark)} name="high watermark" note="committed records" />
            <${Card} number=${`${data.voters.length - down} of ${data.voters.length}`} name="voters up" note=${`a majority is ${Math.floor(data.voters.length / 2) + 1}`} />
            <${Card} number=${count(data.observers.length)} name="observers" note=${both ? `${plural(both, "node is", "nodes are")} broker and controller` : "brokers that follow"} />
          </div>
          <div class="bar spread heading"><h2>Voters</h2><span class="legend"><i class="committed"></i>committed <i class="ahead"></i>not yet committed</span></div>
          <${Voters} data=${data} onSteer=${canSteer && data.controllers.length && steer} />
          <h2>Observers</h2>
          <${Table}
            label="Observers"
            rows=${data.observers}
            empty=${data.leader === null ? "Only a leader knows its observers." : "No other node follows the log."}
            columns=${[
              { name: "Node", value: (row) => row.node, show: (row) => (data.brokers.includes(row.node) ? html`<${Link} to=${path("brokers", row.node)}>Broker ${row.node}<//>` : named(data, row.node)) },
              { name: "Offset", number: true, value: (row) => row.end_offset, show: (row) => count(row.end_offset) },
              { name: "Lag", number: true, value: (row) => row.lag, show: (row) => html`<span class=${row.lag ? "tag warn" : ""}>${count(row.lag)}</span>` },
              { name: "Last fetch", number: true, value: (row) => row.fetched_ms, show: (row) => (row.fetched_ms === null ? "–" : `${waited(row.fetched_ms)} ago`) },
              { name: "Caught up", number: true, value: (row) => row.caught_up_ms, show: (row) => (row.caught_up_ms === null ? "–" : `${waited(row.caught_up_ms)} ago`) },
            ]}
          />
        `;
      }}
    <//>
    ${asking &&
    html`<${Confirm}
      title=${`${asking.verb === "kill" ? "Kill" : "Stop"} ${asking.controller.name}`}
      text="Without it there is no majority: nothing changes in the cluster until it, or another controller, is started again."
      action=${`${asking.verb === "kill" ? "Kill" : "Stop"} it`}
      onConfirm=${() => act(asking.verb, asking.controller)}
      onClose=${() => setAsking(null)}
    />`}
  `;
}
