// A live picture of replicas, with actions on the brokers that hold them.
import { html, useState } from "../preact.js";
import { ask, useAnswer } from "../api.js";
import { count } from "../format.js";
import { Link, path } from "../router.js";
import { ReplicaPicture } from "../replica_picture.js";
import { Missing, Problem, Waiting } from "../ui.js";

export function Replicas({ missing, powers, readOnly }) {
  if (missing === undefined) return html`<p class="loading">Loading…</p>`;
  return html`<h1>Replicas</h1>${missing ? html`<${Missing} reason=${missing}>The high watermark and the log end offset of every replica, live.<//>` : html`<${Live} canMove=${!powers && !readOnly} />`}`;
}

function Live({ canMove }) {
  const [text, setText] = useState("");
  const answer = useAnswer("/replicas", { every: 500 });
  const [error, setError] = useState(null);
  const move = (partition) => (broker) =>
    ask("/powers/cluster/move_leader", { method: "POST", body: { topic: partition.topic, partition: partition.partition, to: broker } }).then(() => (setError(null), answer.reload()), setError);
  return html`
    <${Problem} error=${error} />
    <${Waiting} answer=${answer}>
      ${(data) => {
        const shown = data.partitions.filter((each) => `${each.topic}-${each.partition}`.includes(text)).slice(0, 40);
        const hidden = data.partitions.length - shown.length + data.left_out;
        return html`
          <div class="bar">
            <input class="grow" type="search" aria-label="Filter by topic" placeholder="Filter by topic" value=${text} onInput=${(event) => setText(event.target.value)} />
            <span class="legend"><i class="committed"></i>committed <i class="ahead"></i>not yet committed <i class="hw"></i>high watermark</span>
          </div>
          ${!data.partitions.length && html`<div class="panel"><p class="empty">There are no topics yet.</p></div>`}
          <div class="tiles">
            ${shown.map(
              (each) => html`
                <section class="panel tile" key=${`${each.topic}-${each.partition}`}>
                  <h2><${Link} to=${path("topics", each.topic, "partitions", each.partition)} class="mono">${each.topic}-${each.partition}<//> <span class="soft small">leader epoch ${each.leader_epoch}</span> ${each.leader < 0 && html`<span class="tag bad">no leader</span>`}</h2>
                  <${ReplicaPicture} partition=${each} onMove=${canMove && each.replicas.length > 1 && move(each)} />
                </section>
              `,
            )}
          </div>
          ${hidden > 0 && html`<p class="soft">${count(hidden)} more partitions are not shown. Filter by topic to see them.</p>`}
        `;
      }}
    <//>
  `;
}
