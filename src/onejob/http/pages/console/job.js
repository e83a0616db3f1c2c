// One job: its state, what happened to it, its input and result, its log lines as they arrive.

import { get, getOr, getText } from "./api.js";
import { make } from "./dom.js";
import { clock, duration, indentJson, none } from "./format.js";
import { ACTIONS, actionsFor, actOnJob } from "./jobs.js";
import { ago, button, CALLBACK_TYPE, copyButton, counted, facts, heading, jobUrl, keyUrl, number, panel, state, table } from "./parts.js";

const LOG_PAGE = 500;
const LOG_LINES_MAX = 1000;
const SHOWN_CHARS_MAX = 100000;
const ENDED = ["success", "failed", "cancelled", "lost"];

let kept = { id: "" }; // of the job that is shown: its input, whether it has sites, and the log lines so far

async function load({ params, may }) {
  const { id } = params;
  if (kept.id !== id) kept = { id, input: undefined, hasSites: true, lines: [], next: 0 };
  const details = await get(`/api/jobs/${encodeURIComponent(id)}/details`);
  const { job } = details;
  const path = `/api/jobs/${job.id}`;
  const isCallback = job.type === CALLBACK_TYPE;
  const [result, steps, { sites }, failures] = await Promise.all([
    job.state === "success" && !isCallback ? getOr(null, `${path}/result`, getText) : null,
    getOr({ steps: [] }, `${path}/steps`),
    kept.hasSites ? getOr({ sites: [] }, `${path}/sites`) : { sites: [] },
    may("inspect") ? getOr({ failures: [] }, `${path}/failures`) : { failures: [] },
    kept.input === undefined && may("inspect") ? getOr(null, `${path}/input`, getText).then((text) => (kept.input = text)) : null,
    details.logLines > kept.next ? loadLog(path) : null,
  ]);
  kept.hasSites = sites.length > 0;
  return { details, job, result, sites, steps: steps.steps, failures: failures.failures, input: kept.input ?? null, lines: kept.lines };
}

async function loadLog(path) {
  for (;;) {
    const page = await get(`${path}/logs?offset=${kept.next}&limit=${LOG_PAGE}`);
    kept.lines = [...kept.lines, ...page.lines.map((line, index) => [page.offset + index, line])].slice(-LOG_LINES_MAX);
    kept.next = page.next;
    if (page.next >= page.total) return;
  }
}

function view(data, context) {
  const { job, details } = data;
  const actions = actionsFor(job, context);
  return [
    heading(
      job.type,
      make("span", { class: "big" }, state(job.state)),
      make("span", { class: "row end" }, actions.map(([name]) => button(ACTIONS[name].label, () => actOnJob(name, job, context), { class: ACTIONS[name].danger ? "quiet bad" : "quiet", "data-action": name }))),
    ),
    make("p", { class: "row soft" }, make("code", { id: "job-id" }, job.id), copyButton(job.id)),
    job.error ? make("p", { class: "notice", id: "job-error" }, job.error) : null,
    progress(job),
    make(
      "div",
      { class: "columns even" },
      make("div", { class: "stack" }, panel("Job", jobFacts(job, details)), sitesPanel(data.sites), stepsPanel(data.steps), panel("Timeline", timeline(data))),
      make("div", { class: "stack" }, payload("Input", data.input, context), job.state === "success" ? payload("Result", data.result, context) : null, log(data), callback(details)),
    ),
  ];
}

function jobFacts(job, details) {
  const ran = job.startedAt && job.endedAt ? (Date.parse(job.endedAt) - Date.parse(job.startedAt)) / 1000 : null;
  const waited = job.startedAt ? (Date.parse(job.startedAt) - Date.parse(job.runAt ?? job.createdAt)) / 1000 : null;
  return facts([
    ["Key", job.key ? make("a", { href: keyUrl(job), class: "mono" }, job.key) : "none: a retry of its submission would make another job"],
    job.key ? ["Scope", job.scope] : null,
    ["Submitted", [clock(job.createdAt), " (", ago(job.createdAt), ") by ", job.actor]],
    ["User", make("a", { href: `/jobs?user=${encodeURIComponent(job.user)}` }, job.user)],
    job.runAt && !job.startedAt ? ["Runs", [clock(job.runAt), " (", ago(job.runAt), ")"]] : null,
    ["Attempts", `${job.attempts} of ${details.attemptsMax}, ${job.delivery.replaceAll("_", " ")}`],
    details.worker && !ENDED.includes(job.state) ? ["Worker", [details.worker, details.leaseUntil ? [", lease ends ", ago(details.leaseUntil)] : null]] : null,
    job.startedAt ? ["Started", [clock(job.startedAt), waited !== null && waited >= 0 && job.attempts <= 1 ? ` after ${duration(waited)}` : ""]] : null,
    job.endedAt ? ["Ended", [clock(job.endedAt), ran !== null && ran >= 0 ? ` after ${duration(ran)}` : ""]] : null,
    details.timeoutSeconds ? ["Timeout", duration(details.timeoutSeconds)] : null,
    job.priority ? ["Priority", String(job.priority)] : null,
    details.estimatedCost ? ["Estimated cost", number(details.estimatedCost)] : null,
    Object.keys(job.labels).length ? ["Labels", Object.entries(job.labels).map(([name, value]) => make("a", { class: "chip", href: `/jobs?label=${encodeURIComponent(`${name}=${value}`)}` }, `${name}=${value}`))] : null,
    details.deleteAfter ? ["Deleted", ago(details.deleteAfter)] : null,
  ]);
}

function progress(job) {
  if (job.progress === null || ENDED.includes(job.state)) return null;
  const value = job.progress;
  const part = typeof value === "number" ? value : typeof value === "object" && typeof value.done === "number" && value.total ? value.done / value.total : null;
  return make(
    "div",
    { class: "progress", id: "progress" },
    part === null ? null : make("progress", { value: Math.min(Math.max(part > 1 ? part / 100 : part, 0), 1), max: "1" }),
    make("code", {}, JSON.stringify(value)),
  );
}

function sitesPanel(sites) {
  if (!sites.length) return null;
  const rows = sites.map((one) => ({
    key: one.site,
    cells: [
      one.site,
      one.state ? [state(one.state), otherJob(one)] : none("no answer yet"),
      one.at ? ago(one.at) : none(),
      one.onItsWay ? `${one.onItsWay} on its way` : "",
      one.error ? make("span", { class: "bad small" }, one.error, " (", ago(one.errorAt), ")") : "",
    ],
  }));
  return panel("Sites", table([["Site", "name"], ["State"], ["Heard"], ["Sent"], ["Error", "text wide"]], rows, { id: "sites" }));
}

function otherJob(one) {
  if (!one.otherJob) return null;
  const line = (...content) => make("div", { class: "small" }, ...content);
  return [
    line(make("code", {}, one.otherJob)),
    one.paths?.length ? line("differs at ", make("code", {}, one.paths.join(", "))) : null,
    one.prevailingJob ? line(one.prevailingJob === one.otherJob ? "prevails: its id is smaller" : "this job prevails: its id is smaller") : null,
    one.cancelCommand ? line(`to cancel the other one, at ${one.cancelAt}: `, make("code", {}, one.cancelCommand))
      : one.prevailingJob && one.prevailingJob !== one.otherJob ? line("it was cancelled, failed, or is lost: the other one remains, so do not cancel that") : null,
  ];
}

function stepsPanel(steps) {
  if (!steps.length) return null;
  const rows = steps.map((one) => ({
    key: one.name,
    cells: [one.name, state(one.state), number(one.runs), one.endedAt ? duration((Date.parse(one.endedAt) - Date.parse(one.beganAt)) / 1000) : ago(one.beganAt)],
  }));
  return panel("Steps", table([["Step", "name"], ["State"], ["Runs", "count"], ["Took", "count"]], rows));
}

function timeline({ details, job, failures }) {
  const { events } = details;
  const entries = [...events];
  const missing = details.eventsTotal - events.length;
  if (job.state === "running" && job.startedAt) entries.push({ at: job.startedAt, what: `attempt ${job.attempts} started`, actor: details.worker ?? "", detail: "" });
  return make(
    "ol",
    { class: "timeline" },
    entries.map((event) => {
      const message = failures.find((failure) => failure.at === event.at && failure.detail !== event.detail);
      const kind = /fail|lost|laps/.test(event.what) ? "bad" : /success/.test(event.what) ? "ok" : "";
      return make("li", { class: kind }, make("b", {}, event.what), event.actor ? make("span", { class: "soft" }, ` by ${event.actor}`) : null, clock(event.at), event.detail ? make("p", {}, event.detail) : null, message ? make("pre", { class: "message" }, message.detail) : null);
    }),
    missing > 0 ? make("li", { class: "soft" }, `${counted(missing, "event")} in between are no longer stored`) : null,
  );
}

function payload(title, text, { may }) {
  const id = title.toLowerCase();
  if (text === null) {
    const why = title === "Result" ? "It has none." : may("inspect") ? "This server hides inputs (hide_payloads)." : "Inputs are for operators.";
    return panel(title, make("p", { class: "soft" }, why));
  }
  const shown = text.length > SHOWN_CHARS_MAX ? `${text.slice(0, SHOWN_CHARS_MAX)}… (${number(text.length)} characters)` : indentJson(text);
  return make("section", { class: "panel" }, make("div", { class: "head" }, make("h2", {}, title), copyButton(text)), make("pre", { id, tabindex: "0" }, shown));
}

function log({ details, lines, job }) {
  if (!details.logLines) return ENDED.includes(job.state) ? null : panel("Log", make("p", { class: "soft" }, "No line yet. Handlers write them with ctx.log."));
  return make(
    "section",
    { class: "panel" },
    make("div", { class: "head" }, make("h2", {}, "Log"), make("span", { class: "soft small" }, counted(details.logLines, "line"))),
    make("pre", { class: "log", id: "log", tabindex: "0" }, lines.map(([index, line]) => make("span", { "data-key": index }, `${line}\n`))),
  );
}

function callback({ callback: found }) {
  if (!found) return null;
  const waits = found.job.state === "preparing";
  return panel(
    "Callback",
    facts([
      ["State", [waits ? "waits for the end of the job" : state(found.job.state === "success" ? "success" : found.job.state)]],
      ["To", found.url ? make("code", {}, found.url) : "for operators only"],
      waits ? null : ["Deliveries", make("a", { href: jobUrl(found.job.id) }, counted(found.job.attempts, "attempt"))],
      found.job.runAt && found.job.state === "scheduled" ? ["Next", ago(found.job.runAt)] : null,
      found.job.error ? ["Error", found.job.error] : null,
    ]),
  );
}

export default { title: (_, { job }) => `${job.type} ${job.id.slice(-12)}`, load, view, every: 2000 };
