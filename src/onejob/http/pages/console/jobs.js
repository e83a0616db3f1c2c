// Jobs: filters that are in the URL, a list to page through, and one act on all that match. Lost jobs are such a list.

import { get, newKey, post, queryOf } from "./api.js";
import { make } from "./dom.js";
import { duration, none } from "./format.js";
import { ago, askInDialog, button, CALLBACK_TYPE, countedAt, counted, empty, field, heading, input, jobUrl, keyUrl, number, pager, select, state, STATES, table, toast } from "./parts.js";

const PAGE_SIZE = 50;
const LIVE_STATES = ["preparing", "scheduled", "pending", "running"];
const FILTERS = ["state", "type", "user", "label", "after", "before"];

export const ACTIONS = {
  cancel: { label: "Cancel", verb: "Cancel", done: "cancelled", danger: true, states: LIVE_STATES, text: "Running attempts are stopped at their next heartbeat. Their keys keep answering with the cancelled jobs." },
  rerun: { label: "Rerun", verb: "Run again", done: "set to run again", states: ["failed", "lost"], text: "Each runs again with the same id and input, from its first attempt." },
  "resolve-succeeded": { label: "Mark succeeded", verb: "Mark as succeeded", done: "marked as succeeded", states: ["lost"], text: "Choose this if you know that the work was done." },
  "resolve-failed": { label: "Mark failed", verb: "Mark as failed", done: "marked as failed", danger: true, states: ["lost"], text: "Choose this if you know that the work was not done, and must not be done." },
};

const filterOf = (query) => Object.fromEntries(FILTERS.filter((name) => query.get(name)).map((name) => [name, query.get(name)]));

function apiFilter({ after, before, ...rest }) {
  return { ...rest, ...(after ? { createdAfter: after } : {}), ...(before ? { createdBefore: before } : {}) };
}

async function loadJobs(filter, cursor) {
  return get(`/api/jobs${queryOf({ ...apiFilter(filter), cursor, limit: PAGE_SIZE })}`);
}

async function load({ query, may }) {
  const [page, types] = await Promise.all([loadJobs(filterOf(query), query.get("cursor")), may("oversee") ? get("/api/types") : null]);
  return { jobs: page.jobs, next: page.next, types };
}

function view({ jobs, next, types }, context) {
  const { query, path } = context;
  const filter = filterOf(query);
  return [
    heading("Jobs", types ? countedAt(types.countedAt) : null),
    stateTabs(filter, types, context),
    filterForm(filter, types, context),
    bulkBar(filter, context),
    jobs.length ? jobsTable(jobs, context) : noJobs(filter, next),
    pager(path, query, next),
  ];
}

function noJobs(filter, next) {
  if (next) return empty("Nothing on this page", "The filter matched no job here; there may be some on the next page.");
  if (Object.keys(filter).length) return empty("No job matches", make("p", {}, "Change the filter, or ", make("a", { href: "/jobs" }, "show all jobs"), "."));
  return empty("No job yet", make("p", {}, "Submit one: ", make("a", { href: "/docs#postApiJobs" }, "POST /api/jobs"), " is described and can be tried in the API."));
}

function stateTabs(filter, types, { path }) {
  const chosen = (types?.types ?? []).filter((one) => !filter.type || one.type === filter.type);
  const count = (name) => chosen.reduce((sum, one) => sum + (name ? (one.states[name] ?? 0) : Object.values(one.states).reduce((all, each) => all + each, 0)), 0);
  const tab = (name, label) =>
    make(
      "a",
      { href: path + queryOf({ ...filter, state: name }), "aria-current": (filter.state ?? "") === name ? "true" : null },
      label,
      types && !filter.user && !filter.label && !filter.after && !filter.before ? make("span", { class: "soft tabular" }, ` ${number(count(name))}`) : null,
    );
  return make("nav", { class: "tabs", "aria-label": "States" }, tab("", "all"), STATES.map((name) => tab(name, name)));
}

function filterForm(filter, types, { path, go, may }) {
  const apply = (form) => {
    const data = Object.fromEntries(new FormData(form));
    for (const name of ["after", "before"]) if (data[name]) data[name] = new Date(data[name]).toISOString();
    go(path + queryOf({ state: filter.state, ...data }));
  };
  const submit = (event) => {
    event.preventDefault();
    apply(event.target.closest("form"));
  };
  const names = types ? [...new Set([...types.types.map((one) => one.type), ...(filter.type ? [filter.type] : [])])] : null;
  return make(
    "form",
    { class: "filters", onsubmit: submit, onchange: submit, "aria-label": "Filter" },
    field("Type", names ? select("type", [["", "any"], ...names.map((name) => [name, name])], filter.type ?? "") : input("type", filter.type)),
    may("oversee") ? field("User", input("user", filter.user, { placeholder: "any", size: "12" })) : null,
    field("Label", input("label", filter.label, { placeholder: "name=value", pattern: "[^=]+=.*", title: "name=value", size: "14" })),
    field("Created after", input("after", localTime(filter.after), { type: "datetime-local", step: "1" })),
    field("and before", input("before", localTime(filter.before), { type: "datetime-local", step: "1" })),
    Object.keys(filter).length ? make("a", { href: path, class: "clear" }, "Clear") : null,
    make("button", { class: "visually-hidden" }, "Apply"),
  );
}

// As an input for local times wants it.
function localTime(text) {
  if (!text) return "";
  const time = new Date(text);
  return new Date(time.getTime() - time.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

export function bulkBar(filter, context) {
  if (!context.may("resolve") || !Object.keys(filter).length || filter.type === CALLBACK_TYPE) return null;
  const possible = Object.entries(ACTIONS).filter(([, action]) => !filter.state || action.states.includes(filter.state));
  if (!possible.length) return null;
  return make(
    "div",
    { class: "row bulk" },
    make("span", { class: "soft small" }, "All that match:"),
    possible.map(([name, action]) => button(`${action.label}…`, () => actOnAll(name, filter, context), { class: action.danger ? "quiet bad tiny" : "quiet tiny", "data-action": name })),
  );
}

async function actOnAll(name, filter, { refresh }) {
  const action = ACTIONS[name];
  const body = { action: name, filter: apiFilter(filter) };
  try {
    const found = await post("/api/jobs/actions", { ...body, dryRun: true });
    if (!found.matched) return toast("No job matches any more.");
    const many = found.more ? `more than ${number(found.matched)} jobs` : counted(found.matched, "job");
    const chosen = Object.entries(filter).map(([key, value]) => `${key} ${value}`).join(", ");
    const agreed = await askInDialog({
      title: `${action.verb}: ${many}?`,
      content: [make("p", {}, `All jobs with ${chosen}. ${action.text}`), make("p", { class: "soft small" }, "Jobs that cannot be changed are left as they are.")],
      action: `${action.label} ${many}`,
      danger: action.danger,
    });
    if (!agreed) return undefined;
    return report(action, await actOnPages(body), refresh);
  } catch (error) {
    return toast(error.message, "bad");
  }
}

// One key for all pages: a page that is sent again after a lost response changes nothing twice.
async function actOnPages(body) {
  const key = newKey();
  const total = { matched: 0, changed: 0, errors: [] };
  let cursor = {};
  do {
    const page = await post("/api/jobs/actions", { ...body, ...cursor }, { key });
    total.matched += page.matched;
    total.changed += page.changed;
    total.errors.push(...page.errors);
    cursor = page.next ? { cursor: page.next } : null;
  } while (cursor);
  return total;
}

function report(action, { matched, changed, errors }, refresh) {
  const rest = matched - changed;
  toast(`${counted(changed, "job")} ${action.done}${rest ? `; ${number(rest)} left as they were${errors.length ? `: ${errors[0]}` : ""}` : ""}.`, errors.length ? "bad" : "ok");
  return refresh();
}

// Act on one job, after a confirmation; a note is kept with the job where the action takes one.
export async function actOnJob(name, job, { refresh }) {
  const action = ACTIONS[name];
  const takesNote = name !== "cancel";
  const agreed = await askInDialog({
    title: `${action.verb}: this job?`,
    content: [make("p", {}, `${job.type}, ${job.id}. ${action.text}`), takesNote ? field("Note, kept with the job", input("note", "", { maxlength: "500" })) : null],
    action: action.label,
    danger: action.danger,
  });
  if (!agreed) return;
  const note = agreed.note ? { note: agreed.note } : {};
  const requests = {
    cancel: ["cancel", undefined],
    rerun: ["rerun", note],
    "resolve-succeeded": ["resolve", { resolution: "succeeded", ...note }],
    "resolve-failed": ["resolve", { resolution: "failed", ...note }],
  };
  const [verb, body] = requests[name];
  try {
    await post(`/api/jobs/${job.id}/${verb}`, body, { key: newKey() });
    toast(`The job was ${action.done}.`);
  } catch (error) {
    toast(error.message, "bad");
  }
  await refresh();
}

export function actionsFor(job, { may }) {
  if (job.type === CALLBACK_TYPE && LIVE_STATES.includes(job.state)) return [];
  return Object.entries(ACTIONS).filter(([name, action]) => action.states.includes(job.state) && may(name === "cancel" ? "cancel" : "resolve"));
}

const actionButtons = (job, context) =>
  make("span", { class: "row" }, actionsFor(job, context).map(([name, action]) => button(action.label, () => actOnJob(name, job, context), { class: action.danger ? "quiet bad tiny" : "quiet tiny", "data-action": name })));

export function jobsTable(jobs, context, { actions = false } = {}) {
  const columns = [["State"], ["Type", "name"], ["Key", "name"], ["User", "name wide"], ["Created", "count"], ["Took", "count wide"], ["Attempts", "count wide"], actions ? ["Decide"] : ["Error", "text wide"]];
  const shown = columns.filter(([title]) => title !== "User" || context.may("oversee"));
  const rows = jobs.map((job) => {
    const cells = {
      State: make("a", { href: jobUrl(job.id), class: "quietly", "aria-label": `${job.state} job ${job.id}` }, state(job.state)),
      Type: make("a", { href: jobUrl(job.id), title: job.id, tabindex: "-1" }, job.type),
      Key: job.key ? make("a", { href: keyUrl(job), class: "mono", title: job.key }, job.key) : none(),
      User: make("span", { title: job.user }, job.user),
      Created: ago(job.createdAt),
      Took: took(job),
      Attempts: number(job.attempts),
      Error: make("span", { class: "bad small", title: job.error }, job.error ?? ""),
      Decide: actions ? actionButtons(job, context) : null,
    };
    return { key: job.id, cells: shown.map(([title]) => cells[title]) };
  });
  return table(shown, rows, { id: "jobs" });
}

function took(job) {
  if (!job.startedAt || !job.endedAt || job.state === "lost") return "";
  return duration(Math.max(Date.parse(job.endedAt) - Date.parse(job.startedAt), 0) / 1000);
}

export const lost = {
  title: () => "Lost jobs",
  load: async ({ query }) => loadJobs({ state: "lost" }, query.get("cursor")),
  view({ jobs, next }, context) {
    return [
      heading("Lost jobs"),
      make("p", { class: "lead" }, "A job that may run at most once is lost if its worker stopped answering after it had begun. Whether the work was done, nobody here knows: look, then decide."),
      jobs.length ? bulkBar({ state: "lost" }, context) : null,
      jobs.length ? jobsTable(jobs, context, { actions: true }) : empty("No lost job", "There is nothing to decide. Jobs are lost only with the delivery at_most_once."),
      pager(context.path, context.query, next),
    ];
  },
};

export default { title: ({ query }) => (query.get("state") ? `Jobs: ${query.get("state")}` : "Jobs"), load, view };
