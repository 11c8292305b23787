// Why a group rebalanced: each generation with the events that led to it.
import { html } from "./preact.js";
import { groupPath, useAnswer } from "./api.js";
import { plural, time } from "./format.js";
import { Missing, Problem } from "./ui.js";

const KINDS = { joined: "good", left: "", "timed out": "bad", "changed subscription": "warn", "asked for a rebalance": "warn" };

// The generations, newest first, each with the events since the previous one.
function generations(events) {
  const found = [];
  let causes = [];
  for (const each of events) {
    if (each.kind === "generation") {
      found.push({ ...each, causes });
      causes = [];
    } else {
      causes.push(each);
    }
  }
  if (causes.length) found.push({ kind: "pending", at_ms: causes.at(-1).at_ms, causes });
  return found.reverse();
}

function Cause({ event }) {
  return html`
    <li>
      <span class=${`tag ${KINDS[event.kind] ?? ""}`}>${event.kind}</span>
      ${" "}<span class="mono">${event.member_id}</span>
      ${event.detail && html` <span class="soft">${event.detail}</span>`}
      ${" "}<span class="soft">${time(event.at_ms).slice(11)}</span>
    </li>
  `;
}

export function GroupHistory({ group, missing }) {
  if (missing) return html`<${Missing} reason=${missing}>Each generation of the group, with who joined, left or timed out.<//>`;
  return html`<${Rebalances} address=${groupPath(group, "history")} />`;
}

export function Rebalances({ address }) {
  const answer = useAnswer(address, { every: 2000 });
  const found = generations(answer.data ?? []);
  return html`
    <${Problem} error=${answer.error} />
    ${answer.data && !found.length && html`<div class="panel"><p class="empty">Nothing has happened since the broker started.</p></div>`}
    ${found.length > 0 &&
    html`<ol class="panel history" tabindex="0" aria-label="Rebalances, newest first">
      ${found.map(
        (each) => html`
          <li key=${`${each.at_ms} ${each.generation}`} class=${each.kind}>
            <div>
              <b>${each.kind === "pending" ? "Rebalance under way" : `Generation ${each.generation}`}</b>
              ${" "}<span class="soft">${time(each.at_ms)}${each.kind === "pending" ? "" : `, ${plural(each.members, "member")}`}</span>
            </div>
            ${each.causes.length ? html`<ul>${each.causes.map((event) => html`<${Cause} event=${event} />`)}</ul>` : html`<div class="soft">The topics of the group changed, or it was asked to rebalance.</div>`}
          </li>
        `,
      )}
    </ol>`}
  `;
}
