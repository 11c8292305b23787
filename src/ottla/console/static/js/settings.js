// A table of settings: the meaning of each, the source of its value, and a form to change it.
import { html, useState } from "./preact.js";
import { Problem, Table } from "./ui.js";

function Setting({ setting, readOnly, onSave }) {
  const [value, setValue] = useState(null);
  const [error, setError] = useState(null);
  const save = async (next) => {
    try {
      await onSave({ [setting.name]: next });
      setValue(null);
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  };
  if (value === null) {
    return html`
      <span class="mono">${setting.sensitive ? "••••••" : (setting.value ?? "–")}</span>
      ${!setting.default && html` <span class="tag warn">${setting.source === "topic" ? "set here" : setting.source}</span>`}
      ${!readOnly && !setting.read_only && html` <button class="plain" aria-label=${`Change ${setting.name}`} onClick=${() => setValue(setting.value ?? "")}>Change</button>`}
      ${!readOnly && !setting.read_only && !setting.default && html` <button class="plain" aria-label=${`Use the default of ${setting.name}`} onClick=${() => save(null)}>Use default</button>`}
      <${Problem} error=${error} />
    `;
  }
  return html`
    <form class="bar tight" onSubmit=${(event) => (event.preventDefault(), save(value))}>
      <input aria-label=${setting.name} value=${value} onInput=${(event) => setValue(event.target.value)} />
      <button class="first">Save</button><button type="button" onClick=${() => setValue(null)}>Cancel</button>
    </form>
    <${Problem} error=${error} />
  `;
}

export function Settings({ configs, readOnly, onSave }) {
  const [text, setText] = useState("");
  const [changed, setChanged] = useState(false);
  const shown = configs.filter((each) => each.name.includes(text.trim().toLowerCase()) && (!changed || !each.default));
  return html`
    <div class="bar">
      <input class="grow" type="search" aria-label="Filter settings" placeholder="Filter settings" value=${text} onInput=${(event) => setText(event.target.value)} />
      <label class="inline"><input type="checkbox" checked=${changed} onChange=${(event) => setChanged(event.target.checked)} /> Only those that are set</label>
    </div>
    <${Table}
      label="Settings"
      stacked
      rows=${shown}
      empty=${changed && !text ? "All settings have their defaults." : "No setting matches."}
      columns=${[
        { name: "Name", value: (row) => row.name, show: (row) => html`<span class=${`mono ${row.default ? "" : "strong"}`}>${row.name}</span>${row.documentation && html`<div class="doc">${row.documentation}</div>`}` },
        { name: "Value", show: (row) => html`<${Setting} setting=${row} readOnly=${readOnly} onSave=${onSave} />` },
      ]}
    />
  `;
}
