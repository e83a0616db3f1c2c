// API keys: made, rotated and revoked by administrators. The text of a key is shown once.

import { get, post } from "./api.js";
import { make } from "./dom.js";
import { ago, askInDialog, button, copyButton, empty, field, heading, input, select, showInDialog, table, toast } from "./parts.js";

const ROLES = [
  ["submitter", "submits jobs, sees and cancels its own"],
  ["worker", "claims and runs jobs"],
  ["operator", "sees all jobs and inputs, cancels, reruns, resolves, forgets keys"],
  ["admin", "everything, also limits and API keys"],
  ["metrics", "reads /metrics of all tenants; given by those who have the role themselves"],
];
const OVERLAPS = [
  ["0", "at once"],
  ["3600", "in an hour"],
  ["86400", "in a day"],
  ["604800", "in a week"],
];

function showText(text, title) {
  showInDialog(title, make("p", {}, "This is the only time that it is shown. Store it where secrets are stored."), make("pre", { id: "new-key" }, text), make("div", { class: "row" }, copyButton(text)));
}

async function act(request, refresh, done) {
  try {
    done(await request());
  } catch (error) {
    toast(error.message, "bad");
  }
  await refresh();
}

async function create({ refresh }) {
  const values = await askInDialog({
    title: "New API key",
    content: [
      field("Name", input("name", "", { required: true, maxlength: "92" }), "The program that will use it."),
      make(
        "fieldset",
        {},
        make("legend", {}, "Roles"),
        ROLES.map(([role, text]) => make("label", { class: "check" }, make("input", { type: "checkbox", name: "roles[]", value: role, checked: role === "submitter" }), make("span", {}, make("b", {}, role), ` ${text}`))),
      ),
      field("User", input("user", "", { maxlength: "100", placeholder: "a user of its own" }), "Its jobs count for this user."),
    ],
    action: "Create",
  });
  if (!values) return;
  if (!values["roles[]"]) return toast("Choose at least one role.", "bad");
  await act(() => post("/api/api-keys", { name: values.name, roles: values["roles[]"], ...(values.user ? { user: values.user } : {}) }), refresh, (made) => showText(made.text, `The API key ${made.apiKey.name}`));
}

async function rotate(key, { refresh }) {
  const values = await askInDialog({
    title: `Rotate ${key.name}?`,
    content: [make("p", {}, "The key gets a new text; its name, roles and user stay."), field("The old text ends", select("overlap", OVERLAPS, "86400"))],
    action: "Rotate",
  });
  if (values) await act(() => post(`/api/api-keys/${key.id}/rotate`, { overlapSeconds: Number(values.overlap) }), refresh, (made) => showText(made.text, `The new text of ${key.name}`));
}

async function revoke(key, { refresh }) {
  const agreed = await askInDialog({
    title: `Revoke ${key.name}?`,
    content: [make("p", {}, "It becomes invalid for good, in every process at once, with all sessions made from it. If you signed in with it, you are signed out.")],
    action: "Revoke",
    danger: true,
  });
  if (agreed) await act(() => post(`/api/api-keys/${key.id}/revoke`), refresh, () => toast(`${key.name} is revoked.`));
}

function view({ apiKeys }, context) {
  const rows = [...apiKeys].reverse().map((one) => ({
    key: one.id,
    cells: [
      [make("b", {}, one.name), make("span", { class: "soft mono small" }, ` ${one.id}`)],
      one.roles.map((role) => make("span", { class: "chip" }, role)),
      one.user ?? make("span", { class: "soft" }, "its own"),
      [ago(one.createdAt), make("span", { class: "soft" }, ` by ${one.createdBy}`)],
      one.revokedAt ? make("span", { class: "bad" }, "revoked ", ago(one.revokedAt)) : one.oldSecretUntil && Date.parse(one.oldSecretUntil) > Date.now() ? make("span", { class: "soft" }, "old text ends ", ago(one.oldSecretUntil)) : "valid",
      one.revokedAt
        ? ""
        : make("span", { class: "row" }, button("Rotate…", () => rotate(one, context), { class: "quiet tiny", "data-action": "rotate" }), button("Revoke…", () => revoke(one, context), { class: "quiet bad tiny", "data-action": "revoke" })),
    ],
  }));
  const columns = [["Name", "name"], ["Roles"], ["User", "name wide"], ["Created", "wide"], ["State"], [""]];
  return [
    heading("API keys", make("span", { class: "row end" }, button("New API key…", () => create(context), { id: "new-api-key" }))),
    context.session.authentication ? null : make("p", { class: "notice calm" }, "This server asks for no credential: keys have an effect once the setting `auth` is on."),
    rows.length ? table(columns, rows) : empty("No API key yet", "Make one for each program, with the roles that it needs."),
  ];
}

export default { title: () => "API keys", load: () => get("/api/api-keys"), view };
