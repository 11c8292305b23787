// One subject: its versions, a comparison of two versions, and a new version that is checked before registration.
import { html, useState } from "../preact.js";
import { ask, useAnswer } from "../api.js";
import { difference } from "../diff.js";
import { time } from "../format.js";
import { go, Link, path } from "../router.js";
import { Confirm, Problem, Waiting } from "../ui.js";
import { SCHEMA_TYPES } from "./schemas.js";

const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];

const subjectPath = (subject, ...rest) => ["/schemas", encodeURIComponent(subject), ...rest].join("/");

function Difference({ before, after }) {
  const lines = difference(before.text, after.text);
  const changed = lines.filter(([sign]) => sign !== " ").length;
  return html`
    <p class="soft">Version ${before.version} to ${after.version}: ${changed ? `${changed} lines differ` : "no difference"}.</p>
    <pre class="diff">${lines.map(([sign, line]) => html`<div class=${{ "+": "added", "-": "removed" }[sign] ?? ""}>${sign} ${line}</div>`)}</pre>
  `;
}

function Versions({ versions }) {
  const last = versions.at(-1);
  const [shown, setShown] = useState(null);
  const [other, setOther] = useState(null);
  const current = versions.find((each) => each.version === shown) ?? last;
  const before = versions.find((each) => each.version === other);
  const choose = (set) => (event) => set(event.target.value ? Number(event.target.value) : null);
  return html`
    <div class="bar fields">
      <label>Version
        <select value=${current.version} onChange=${choose(setShown)}>
          ${[...versions].reverse().map((each) => html`<option value=${each.version}>${each.version}</option>`)}
        </select>
      </label>
      <label>Compare with
        <select value=${other ?? ""} onChange=${choose(setOther)}>
          <option value="">nothing</option>
          ${versions.filter((each) => each !== current).map((each) => html`<option value=${each.version}>${each.version}</option>`)}
        </select>
      </label>
      <span class="soft">${current.type}, id ${current.id}, ${time(current.registered)}</span>
    </div>
    ${current.references.length > 0 &&
    html`<p>Uses ${current.references.map((each, index) => html`${index ? ", " : ""}<${Link} to=${path("schemas", each.subject)} class="mono">${each.name}<//> (${each.subject}, version ${each.version})`)}</p>`}
    ${before && before !== current ? html`<${Difference} before=${before} after=${current} />` : html`<pre class="schema">${current.text}</pre>`}
  `;
}

// The compatibility level of the subject, and a menu to change it.
function Rules({ subject, data, readOnly, onChanged }) {
  const [problem, setProblem] = useState(null);
  const inherited = data.own_compatibility === null;
  const choose = async (event) => {
    setProblem(null);
    try {
      await ask(subjectPath(subject, "compatibility"), { method: "POST", body: { level: event.target.value } });
    } catch (failure) {
      setProblem(failure);
    }
    onChanged();
  };
  if (readOnly) return html`<span>Compatibility ${data.compatibility}, mode ${data.mode}</span>`;
  return html`
    <label>Compatibility
      <select value=${data.own_compatibility ?? ""} onChange=${choose}>
        <option value="">${inherited ? `${data.compatibility}, as for all` : "as for all"}</option>
        ${LEVELS.map((each) => html`<option>${each}</option>`)}
      </select>
    </label>
    <span class="soft">mode ${data.mode}</span>
    <${Problem} error=${problem} />
  `;
}

function NewVersion({ subject, latest, onRegistered }) {
  const [text, setText] = useState(latest?.text ?? "");
  const [type, setType] = useState(latest?.type ?? SCHEMA_TYPES[0]);
  const [checked, setChecked] = useState(null);
  const [problem, setProblem] = useState(null);
  const [done, setDone] = useState(null);
  const body = { schema: text, type, references: latest?.references ?? [] };
  const change = (set) => (event) => (set(event.target.value), setChecked(null), setDone(null));
  const send = async (place, use) => {
    setProblem(null);
    setDone(null);
    try {
      use(await ask(subjectPath(subject, ...place), { method: "POST", body }));
    } catch (failure) {
      setProblem(failure);
    }
  };
  const check = (event) => (event.preventDefault(), send(["check"], setChecked));
  const register = () => send([], (answer) => (setDone(answer), setChecked(null), onRegistered()));
  return html`
    <h2>${latest ? "A new version" : "The first version"}</h2>
    <form class="form" onSubmit=${check}>
      <label>Type
        <select value=${type} onChange=${change(setType)}>${SCHEMA_TYPES.map((each) => html`<option>${each}</option>`)}</select>
      </label>
      <label>Schema<textarea class="mono" rows="14" spellcheck="false" value=${text} onInput=${change(setText)}></textarea></label>
      <${Problem} error=${problem} />
      ${checked && checked.compatible && html`<p class="notice good" role="status">It can be registered.</p>`}
      ${checked &&
      !checked.compatible &&
      html`<div class="notice bad" role="alert">It is not compatible:<ul>${checked.messages.map((each) => html`<li>${each}</li>`)}</ul></div>`}
      ${done && html`<p class="notice good" role="status">Version ${done.version} has id ${done.id}.</p>`}
      <div class="bar">
        <button disabled=${!text.trim()}>Check</button>
        <button type="button" disabled=${!checked?.compatible} onClick=${register}>Register</button>
      </div>
    </form>
  `;
}

export function Subject({ subject, readOnly }) {
  const answer = useAnswer(subjectPath(subject));
  const [deleting, setDeleting] = useState(false);
  const isNew = answer.error?.status === 404 && answer.error.message.includes("40401");
  const remove = async () => {
    await ask(subjectPath(subject), { method: "DELETE" });
    go("/schemas");
  };
  return html`
    <p class="crumbs"><${Link} to="/schemas">Schemas<//></p>
    <h1 class="mono">${subject}</h1>
    ${isNew
      ? html`<p>There is no such subject yet.</p>${!readOnly && html`<${NewVersion} subject=${subject} onRegistered=${answer.reload} />`}`
      : html`
          <${Waiting} answer=${answer}>
            ${(data) => html`
              <div class="bar fields">
                <${Rules} subject=${subject} data=${data} readOnly=${readOnly} onChanged=${answer.reload} />
                <span class="grow"></span>
                ${!readOnly && html`<button class="danger" onClick=${() => setDeleting(true)}>Delete</button>`}
              </div>
              <${Versions} versions=${data.versions} />
              ${!readOnly && html`<${NewVersion} key=${data.versions.length} subject=${subject} latest=${data.versions.at(-1)} onRegistered=${answer.reload} />`}
            `}
          <//>
        `}
    ${deleting && html`<${Confirm} title="Delete the subject" text="New clients can no longer register or find its versions. Records that use them can still be read." action="Delete" typed=${subject} onConfirm=${remove} onClose=${() => setDeleting(false)} />`}
  `;
}
