// Sends dead letters back to the topics they came from, after a preview.
import { html, useState } from "../preact.js";
import { ask, topicPath } from "../api.js";
import { count, plural } from "../format.js";
import { Dialog, Problem } from "../ui.js";

export function Redrive({ topic, only, onClose, onDone }) {
  const [to, setTo] = useState("");
  const [found, setFound] = useState(null);
  const [moved, setMoved] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const run = async (preview) => {
    setBusy(true);
    try {
      let from_offsets;
      let total = 0;
      for (;;) {
        const body = { preview, ...(to && { to }), ...(only && { only }), ...(from_offsets && { from_offsets }) };
        const answer = await ask(topicPath(topic, "redrive"), { method: "POST", body });
        total += answer.to.reduce((sum, each) => sum + each.records, 0);
        if (preview) setFound(answer);
        else setMoved(total);
        if (preview || !answer.next_offsets) break;
        from_offsets = answer.next_offsets;
      }
      setError(null);
      if (!preview) onDone?.();
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  const sendable = found?.to.length > 0;
  return html`
    <${Dialog}
      title=${only ? "Send this record back" : `Send the records of ${topic} back`}
      onClose=${onClose}
      footer=${html`
        <button onClick=${onClose}>${moved === null ? "Cancel" : "Close"}</button>
        ${moved === null && html`<button disabled=${busy} onClick=${() => run(true)}>Preview</button><button class="first" disabled=${busy || !sendable} onClick=${() => run(false)}>Send</button>`}
      `}
    >
      <div class="form">
        <${Problem} error=${error} />
        <div>Each record goes to the topic that its headers name, without the headers that were added with the dead letter. The dead letters stay where they are.</div>
        <label>For records that do not say where they came from<input placeholder="topic; left out if empty" value=${to} onInput=${(event) => (setTo(event.target.value), setFound(null))} /></label>
        ${moved !== null && html`<p class="notice good" role="status">${plural(moved, "record")} sent.</p>`}
        ${moved === null && found &&
        html`<ul class="plain-list" aria-label="Preview">
          ${found.to.map((each) => html`<li><b>${count(each.records)}</b> to <span class="mono">${each.topic}</span></li>`)}
          ${found.without_origin > 0 && html`<li class="soft">${plural(found.without_origin, "record")} without an origin: left out</li>`}
          ${!sendable && !found.without_origin && html`<li class="soft">There are no records.</li>`}
          ${found.next_offsets && html`<li class="soft">… and more: the preview counts the first 10,000.</li>`}
        </ul>`}
      </div>
    <//>
  `;
}
