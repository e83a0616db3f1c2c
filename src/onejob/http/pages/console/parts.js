// Parts that several pages have: headings, tables, badges, bars, plots, empty states, dialogs.

import { at, make, makeSvg } from "./dom.js";
import { ago, counted, number } from "./format.js";

export const STATES = ["preparing", "scheduled", "pending", "running", "success", "failed", "lost", "cancelled"];
export const CALLBACK_TYPE = "onejob.callback";
const TOAST_MS = 6000;

export const jobUrl = (id) => `/jobs/${id}`;

export function keyUrl(history) {
  return `/keys/${encodeURIComponent(history.scope)}/${encodeURIComponent(history.key)}?user=${encodeURIComponent(history.user)}`;
}

export const state = (name) => make("span", { class: `state ${name}` }, name);

export const heading = (title, ...rest) => make("div", { class: "heading" }, make("h1", {}, title), ...rest);

export const panel = (title, ...content) => make("section", { class: "panel" }, title ? make("h2", {}, title) : null, ...content);

export const countedAt = (time) => make("span", { class: "soft small" }, time ? ["counted ", ago(time)] : "not counted yet");

export const button = (label, onclick, options = {}) => make("button", { type: "button", ...options, onclick }, label);

export function empty(title, ...advice) {
  return make("div", { class: "empty" }, make("h2", {}, title), advice.map((each) => (typeof each === "string" ? make("p", {}, each) : each)));
}

// Columns are [title, class]; rows are { key, cells }, of which the first link is what j and k move to.
export function table(columns, rows, options = {}) {
  const head = columns.map(([title, kind]) => make("th", { scope: "col", class: kind }, title));
  const body = rows.map((row) =>
    make("tr", { "data-key": row.key, "data-row": "" }, row.cells.map((cell, index) => make("td", { class: columns[index][1] }, cell))),
  );
  return make("div", { class: "table" }, make("table", options, make("thead", {}, make("tr", {}, head)), make("tbody", {}, body)));
}

export function facts(entries) {
  const shown = entries.filter((entry) => entry && entry[1] !== null && entry[1] !== undefined);
  return make("dl", { class: "facts" }, shown.map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

export function pager(path, query, next) {
  const first = new URLSearchParams(query);
  first.delete("cursor");
  const onward = new URLSearchParams(query);
  if (next) onward.set("cursor", next);
  if (!query.get("cursor") && !next) return null;
  return make(
    "nav",
    { class: "pager", "aria-label": "Pages of this list" },
    query.get("cursor") ? make("a", { href: `${path}?${first}` }, "← First page") : null,
    next ? make("a", { href: `${path}?${onward}`, rel: "next", id: "next-page" }, "Next page →") : null,
  );
}

// How much of a limit is used; where it warns, by its colour too.
export function bar(used, limit, { unit = "", warns = true } = {}) {
  if (limit === undefined || limit === null) return make("span", {}, number(used), make("span", { class: "soft" }, " of ∞"));
  const part = limit ? Math.min(used / limit, 1) : 1;
  const kind = !warns || part < 0.8 ? "" : part < 1 ? "high" : "full";
  return make(
    "div",
    { class: `usage ${kind}` },
    make("span", { class: "track", variables: { part: `${part * 100}%` } }),
    make("span", { class: "tabular" }, `${number(used)} / ${number(limit)}${unit}`),
  );
}

// Counts over time as bars; the hover text of each says when and how many.
export function plot(counts, { name, kind, stepMs, now }) {
  const most = Math.max(...counts, 1);
  const bars = counts.map((count, index) => {
    const height = count ? Math.max((count / most) * 38, 1.5) : 0.6;
    const time = new Date(now - (counts.length - 1 - index) * stepMs).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
    return makeSvg("rect", { x: index * 4, y: 40 - height, width: 3, height, rx: 0.6, class: count ? kind : "nothing" }, makeSvg("title", {}, `${time}: ${number(count)} ${name}`));
  });
  return makeSvg("svg", { class: "plot", viewBox: `0 0 ${counts.length * 4} 40`, preserveAspectRatio: "none", role: "img", "aria-label": `${name} over time, at most ${number(most)} in one bar` }, bars);
}

export function toast(text, kind = "ok") {
  const shown = make("p", { class: `toast ${kind}` }, text);
  at("toasts").append(shown);
  setTimeout(() => shown.remove(), TOAST_MS);
}

// Resolves to the values of the form, or to null if the reader goes back.
export function askInDialog({ title, content = [], action, danger = false }) {
  const dialog = at("dialog");
  return new Promise((resolve) => {
    const done = (value) => {
      dialog.onclose = null;
      dialog.close();
      resolve(value);
    };
    const form = make(
      "form",
      {
        method: "dialog",
        onsubmit: (event) => {
          event.preventDefault();
          const data = new FormData(form);
          done(Object.fromEntries([...new Set(data.keys())].map((name) => [name, data.getAll(name).length > 1 || name.endsWith("[]") ? data.getAll(name) : data.get(name)])));
        },
      },
      make("h2", { id: "dialog-title" }, title),
      content,
      make("div", { class: "row end" }, button("Go back", () => done(null), { class: "quiet" }), make("button", { class: danger ? "danger" : null, id: "dialog-action" }, action)),
    );
    dialog.replaceChildren(form);
    dialog.onclose = () => resolve(null);
    dialog.showModal();
  });
}

export function showInDialog(title, ...content) {
  const dialog = at("dialog");
  dialog.onclose = null;
  dialog.replaceChildren(make("h2", { id: "dialog-title" }, title), ...content, make("div", { class: "row end" }, button("Close", () => dialog.close(), { id: "dialog-action" })));
  dialog.showModal();
}

export function field(label, input, hint = null) {
  return make("div", { class: "field" }, make("label", {}, make("span", {}, label), input), hint ? make("p", { class: "hint" }, hint) : null);
}

export const input = (name, value = "", options = {}) => make("input", { name, value, autocomplete: "off", spellcheck: "false", ...options });

export function select(name, choices, chosen, options = {}) {
  return make("select", { name, ...options }, choices.map(([value, text]) => make("option", { value, selected: value === chosen }, text)));
}

export const copyButton = (text) =>
  button("Copy", async () => {
    if (!navigator.clipboard) return toast("The browser copies only over HTTPS; select the text instead.", "bad"); // or on this machine
    await navigator.clipboard.writeText(text);
    return toast("Copied.");
  }, { class: "quiet tiny" });

export { ago, counted, number };
