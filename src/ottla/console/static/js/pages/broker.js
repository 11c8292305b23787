// One broker: its settings and data folders.
import { html } from "../preact.js";
import { ask, useAnswer } from "../api.js";
import { bytes, count } from "../format.js";
import { Link, path } from "../router.js";
import { Settings } from "../settings.js";
import { Table, Tabs, Waiting } from "../ui.js";

export function Broker({ broker, tab = "settings", readOnly }) {
  const address = `/brokers/${encodeURIComponent(broker)}`;
  const answer = useAnswer(address, { every: 10000 });
  const save = async (configs) => {
    await ask(address, { method: "PATCH", body: { configs } });
    answer.reload();
  };
  return html`
    <p class="crumbs"><${Link} to="/">Overview<//> / Brokers</p>
    <h1>Broker ${broker}</h1>
    <${Waiting} answer=${answer}>
      ${(data) => html`
        <p class="lead"><span class="mono">${data.address}</span>${data.rack ? `, rack ${data.rack}` : ""} ${data.controller && html`<span class="tag good">controller</span>`}</p>
        <${Tabs} label="Parts of the broker" base=${path("brokers", broker)} current=${tab} tabs=${[["settings", "Settings"], ["folders", "Data folders"]]} />
        ${tab === "folders"
          ? html`<${Table}
              label="Data folders"
              rows=${data.log_dirs ?? []}
              empty="The broker does not tell about its folders."
              columns=${[
                { name: "Folder", value: (row) => row.path, show: (row) => html`<span class="mono">${row.path}</span>${row.error ? html` <span class="tag bad">offline</span>` : ""}` },
                { name: "Replicas", number: true, value: (row) => row.partitions, show: (row) => count(row.partitions) },
                { name: "Size", number: true, value: (row) => row.bytes, show: (row) => bytes(row.bytes) },
                { name: "Free", number: true, value: (row) => row.usable_bytes, show: (row) => bytes(row.usable_bytes) },
                { name: "Volume", number: true, value: (row) => row.total_bytes, show: (row) => bytes(row.total_bytes) },
              ]}
            />`
          : html`<${Settings} configs=${data.configs} readOnly=${readOnly} onSave=${save} />`}
      `}
    <//>
  `;
}
