// Replicas drawn to scale: the end of each log, its high watermark, and which replicas are in sync.
import { html } from "./preact.js";
import { count } from "./format.js";

export function ReplicaPicture({ partition, onMove }) {
  const known = partition.replicas.filter((each) => each.end_offset !== null);
  const high = Math.max(1, ...known.map((each) => each.end_offset));
  const low = Math.max(0, Math.min(...known.map((each) => each.high_watermark), high) - Math.max(10, Math.round(high * 0.02)));
  const span = Math.max(1, high - low);
  const share = (offset) => `${Math.max(0, (100 * (offset - low)) / span)}%`;
  return html`
    <div class="replicas" role="group" aria-label=${`${partition.topic}-${partition.partition}: leader ${partition.leader}, in sync ${partition.in_sync.join(", ") || "none"}`}>
      ${partition.replicas.map((each) => {
        const leads = each.broker === partition.leader;
        const inSync = partition.in_sync.includes(each.broker);
        return html`
          <div class=${`replica ${each.running ? "" : "down"}`} key=${each.broker}>
            <span class="replica-name">
              Broker ${each.broker}
              ${leads ? html` <span class="tag good">leader</span>` : inSync ? html` <span class="tag">in sync</span>${onMove && html` <button class="plain small" aria-label=${`Move the leader to broker ${each.broker}`} onClick=${() => onMove(each.broker)}>lead</button>`}` : html` <span class="tag bad">out of sync</span>`}
            </span>
            ${each.end_offset === null
              ? html`<span class="soft small">${each.running ? "has no log yet" : "down"}</span>`
              : html`
                  <svg height="22" width="100%" aria-hidden="true">
                    <rect class="track" x="0" y="3" width="100%" height="16" rx="3" />
                    <rect class="committed" x="0" y="3" height="16" rx="3" width=${share(each.high_watermark)} />
                    <rect class="ahead" x=${share(each.high_watermark)} y="3" height="16" width=${`${(100 * (each.end_offset - each.high_watermark)) / span}%`} />
                    <line class="hw" x1=${share(each.high_watermark)} x2=${share(each.high_watermark)} y1="0" y2="22" />
                  </svg>
                `}
            <span class="replica-numbers small">${each.end_offset !== null && html`HW <b>${count(each.high_watermark)}</b> LEO <b>${count(each.end_offset)}</b>`}</span>
          </div>
        `;
      })}
    </div>
  `;
}
