// Access control: ACLs, quotas and SCRAM users.
import { html, useState } from "../preact.js";
import { ask, useAnswer } from "../api.js";
import { count } from "../format.js";
import { Confirm, Dialog, Empty, Form, Problem, Table, Tabs, Waiting } from "../ui.js";

const RESOURCES = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
const OPERATIONS = ["ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"];
const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];

function Acls({ readOnly }) {
  const answer = useAnswer("/acls", { every: 5000 });
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  if (answer.error && /SECURITY_DISABLED/.test(answer.error.message)) {
    return html`<${Empty} title="ACLs are off">This cluster has no authorizer, so everybody may do everything. Set <code>authorizer.class.name</code> to turn ACLs on.<//>`;
  }
  return html`
    <${Waiting} answer=${answer}>
      ${(data) => html`
        ${!readOnly && html`<div class="bar"><button class="first" onClick=${() => setDialog("new")}>Add ACL</button></div>`}
        <${Table}
          label="ACLs"
          rows=${data}
          empty="There are no ACLs: only super users may do anything."
          columns=${[
            { name: "Principal", value: (row) => row.principal, show: (row) => html`<span class="mono">${row.principal}</span>` },
            { name: "May", value: (row) => row.permission, show: (row) => html`<span class=${`tag ${row.permission === "ALLOW" ? "good" : "bad"}`}>${row.permission.toLowerCase()}</span>` },
            { name: "Operation", value: (row) => row.operation },
            { name: "Resource", value: (row) => `${row.resource_type} ${row.resource_name}`, show: (row) => html`${row.resource_type.toLowerCase().replaceAll("_", " ")} <span class="mono">${row.resource_name}${row.pattern_type === "PREFIXED" ? "…" : ""}</span>` },
            { name: "Host", value: (row) => row.host, show: (row) => html`<span class="mono">${row.host}</span>` },
            { name: "", show: (row) => !readOnly && html`<button class="plain danger" onClick=${() => setDialog(row)}>Delete</button>` },
          ]}
        />
        ${dialog === "new" && html`<${NewAcl} onClose=${close} onDone=${answer.reload} />`}
        ${dialog && dialog !== "new" && html`<${Confirm}
          title="Delete the ACL"
          text=${html`<span class="mono">${dialog.principal}</span> loses the rule “${dialog.permission.toLowerCase()} ${dialog.operation.toLowerCase()}” on <span class="mono">${dialog.resource_name}</span>.`}
          action="Delete ACL"
          onConfirm=${async () => (await ask("/acls/delete", { method: "POST", body: dialog }), answer.reload())}
          onClose=${close}
        />`}
      `}
    <//>
  `;
}

function NewAcl({ onClose, onDone }) {
  const fields = [
    { name: "principal", label: "Principal", value: "User:", required: true },
    { name: "permission", label: "Permission", options: ["ALLOW", "DENY"] },
    { name: "operation", label: "Operation", options: OPERATIONS, value: "READ" },
    { name: "resource_type", label: "Resource", options: RESOURCES },
    { name: "resource_name", label: "Name", required: true, placeholder: "orders, or * for all" },
    { name: "pattern_type", label: "Pattern", options: ["LITERAL", "PREFIXED"] },
    { name: "host", label: "Host", value: "*", required: true },
  ];
  const send = async (body) => (await ask("/acls", { method: "POST", body }), onDone(), onClose());
  return html`<${Dialog} title="Add an ACL" onClose=${onClose}><${Form} fields=${fields} action="Add" onSubmit=${send} onCancel=${onClose} /><//>`;
}

const entityText = (entity) => Object.entries(entity).map(([kind, name]) => `${kind} ${name ?? "(default)"}`).join(", ");

function Quotas({ readOnly }) {
  const answer = useAnswer("/quotas", { every: 5000 });
  const [adding, setAdding] = useState(false);
  const [error, setError] = useState(null);
  const rows = (answer.data ?? []).flatMap((each) => Object.entries(each.quotas).map(([key, value]) => ({ entity: each.entity, key, value })));
  const change = async (entity, quotas) => {
    await ask("/quotas", { method: "POST", body: { entity, quotas } });
    answer.reload();
  };
  const send = async ({ kind, name, key, value }) => {
    await change({ [kind]: name || null }, { [key]: Number(value) });
    setAdding(false);
  };
  const fields = [
    { name: "kind", label: "For", options: ["user", "client-id", "ip"] },
    { name: "name", label: "Name", placeholder: "empty for the default" },
    { name: "key", label: "Quota", options: QUOTAS },
    { name: "value", label: "Limit", type: "number", required: true },
  ];
  return html`
    <${Problem} error=${error} />
    <${Waiting} answer=${answer}>
      ${() => html`
        ${!readOnly && html`<div class="bar"><button class="first" onClick=${() => setAdding(true)}>Set quota</button></div>`}
        <${Table}
          label="Quotas"
          rows=${rows}
          empty="There are no quotas: clients may send and read as fast as they can."
          columns=${[
            { name: "For", value: (row) => entityText(row.entity), show: (row) => html`<span class="mono">${entityText(row.entity)}</span>` },
            { name: "Quota", value: (row) => row.key, show: (row) => html`<span class="mono">${row.key}</span>` },
            { name: "Limit", number: true, value: (row) => row.value, show: (row) => count(row.value) },
            { name: "", show: (row) => !readOnly && html`<button class="plain danger" onClick=${() => change(row.entity, { [row.key]: null }).then(() => setError(null), setError)}>Remove</button>` },
          ]}
        />
      `}
    <//>
    ${adding && html`<${Dialog} title="Set a quota" onClose=${() => setAdding(false)}><${Form} fields=${fields} action="Set" onSubmit=${send} onCancel=${() => setAdding(false)} /><//>`}
  `;
}

function Users({ readOnly }) {
  const answer = useAnswer("/users", { every: 5000 });
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  const send = async (body) => (await ask("/users", { method: "POST", body }), answer.reload(), close());
  const fields = [
    { name: "user", label: "User", required: true },
    { name: "password", label: "Password", type: "password", required: true },
    { name: "mechanism", label: "Mechanism", options: ["SCRAM-SHA-512", "SCRAM-SHA-256"] },
  ];
  return html`
    <${Waiting} answer=${answer}>
      ${(data) => html`
        ${!readOnly && html`<div class="bar"><button class="first" onClick=${() => setDialog("new")}>Add user</button></div>`}
        <${Table}
          label="Users"
          rows=${data}
          empty="There are no SCRAM users."
          columns=${[
            { name: "User", value: (row) => row.user, show: (row) => html`<span class="mono">${row.user}</span>` },
            { name: "Mechanisms", value: (row) => Object.keys(row.mechanisms).join(), show: (row) => Object.entries(row.mechanisms).map(([name, turns]) => html`<span class="tag">${name}, ${count(turns)} iterations</span> `) },
            { name: "", show: (row) => !readOnly && html`<button class="plain danger" onClick=${() => setDialog(row)}>Delete</button>` },
          ]}
        />
      `}
    <//>
    ${dialog === "new" && html`<${Dialog} title="Add a user, or change a password" onClose=${close}><${Form} fields=${fields} action="Save" onSubmit=${send} onCancel=${close} /><//>`}
    ${dialog?.user && html`<${Confirm} title="Delete the user" text=${html`<b class="mono">${dialog.user}</b> cannot log in any more.`} action="Delete user" onConfirm=${async () => (await ask(`/users/${encodeURIComponent(dialog.user)}`, { method: "DELETE" }), answer.reload())} onClose=${close} />`}
  `;
}

const TABS = { acls: Acls, quotas: Quotas, users: Users };

export function Access({ tab = "acls", readOnly }) {
  const Part = TABS[tab] ?? Acls;
  return html`
    <h1>Access</h1>
    <${Tabs} label="Parts of access" base="/access" current=${tab} tabs=${[["acls", "ACLs"], ["quotas", "Quotas"], ["users", "Users"]]} />
    <${Part} readOnly=${readOnly} />
  `;
}
