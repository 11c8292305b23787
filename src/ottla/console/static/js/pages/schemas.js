// The subjects of the schema registry.
import { html, useState } from "../preact.js";
import { useAnswer } from "../api.js";
import { time } from "../format.js";
import { go, Link, path } from "../router.js";
import { Missing, Table, Waiting } from "../ui.js";

export const SCHEMA_TYPES = ["AVRO", "JSON", "PROTOBUF"];

export function Schemas({ readOnly }) {
  const answer = useAnswer("/schemas", { every: 5000 });
  const [text, setText] = useState("");
  const [name, setName] = useState("");
  if (answer.error?.status === 404 && !answer.data) {
    return html`<h1>Schemas</h1><${Missing} reason=${answer.error.message}>There are no schemas to show.<//>`;
  }
  const rows = (answer.data?.subjects ?? []).filter((each) => each.subject.toLowerCase().includes(text.toLowerCase()));
  const open = (event) => (event.preventDefault(), name.trim() && go(path("schemas", name.trim())));
  return html`
    <h1>Schemas</h1>
    <div class="bar">
      <input class="grow" type="search" aria-label="Filter by subject" placeholder="Filter by subject" value=${text} onInput=${(event) => setText(event.target.value)} />
      ${!readOnly &&
      html`<form class="bar" onSubmit=${open}>
        <input aria-label="Name of a new subject" placeholder="orders-value" value=${name} onInput=${(event) => setName(event.target.value)} />
        <button disabled=${!name.trim()}>New subject</button>
      </form>`}
    </div>
    <${Waiting} answer=${answer}>
      ${(data) => html`
        <p class="soft">Compatibility is ${data.compatibility} unless a subject says otherwise.</p>
        <${Table}
          label="Subjects"
          rows=${rows}
          link=${(row) => path("schemas", row.subject)}
          empty=${data.subjects.length ? "No subject matches." : "Nothing is registered yet."}
          columns=${[
            { name: "Subject", value: (row) => row.subject, show: (row) => html`<${Link} to=${path("schemas", row.subject)} class="mono">${row.subject}<//>` },
            { name: "Type", value: (row) => row.type },
            { name: "Latest version", value: (row) => row.version, number: true },
            { name: "Id", value: (row) => row.id, number: true },
            { name: "Registered", value: (row) => row.registered ?? 0, show: (row) => time(row.registered) },
          ]}
        />
      `}
    <//>
  `;
}
