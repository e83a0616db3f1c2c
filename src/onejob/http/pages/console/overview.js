// The overview: what needs attention, submissions over time, jobs by state and type, workers, the store.

import { get } from "./api.js";
import { make } from "./dom.js";
import { duration } from "./format.js";
import { ago, CALLBACK_TYPE, countedAt, counted, empty, heading, jobUrl, number, panel, plot, state, STATES, table } from "./parts.js";

const MINUTE = 60000;
const DURABILITY = { process: "jobs are kept in memory only", disk: "jobs survive a crash", quorum: "jobs survive the loss of a machine" };
const PLOTS = [
  { title: "Created", hint: "new keys, new jobs", names: ["created"], kind: "accent" },
  { title: "Replayed", hint: "retries, answered with the same job", names: ["replayed"], kind: "blue" },
  { title: "Conflicts", hint: "same key, another body", names: ["conflict"], kind: "amber" },
  { title: "Refused", hint: "quotas, rejections, failures", names: ["refused", "rejected", "failed"], kind: "red" },
];

async function load() {
  const [overview, workers, failed] = await Promise.all([get("/api/overview"), get("/api/workers"), get("/api/jobs?state=failed&limit=6")]);
  return { overview, workers: workers.workers, failed: failed.jobs };
}

function view({ overview, workers, failed }, { query, path }) {
  const byHour = query.get("range") === "day";
  const total = Object.values(overview.states).reduce((sum, count) => sum + count, 0);
  return [
    heading(
      "Overview",
      make("span", { class: "chips" }, make("span", { class: "chip" }, overview.engine), make("span", { class: "chip", title: overview.caveat || null }, DURABILITY[overview.durability] ?? overview.durability)),
      make(
        "nav",
        { class: "switch", "aria-label": "Range" },
        make("a", { href: path, "aria-current": byHour ? null : "true" }, "Hour"),
        make("a", { href: `${path}?range=day`, "aria-current": byHour ? "true" : null }, "Day"),
      ),
    ),
    attention(overview, workers),
    make("div", { class: "plots" }, PLOTS.map((one) => plotPanel(one, overview, byHour))),
    total ? byState(overview, total) : firstSteps(),
    make(
      "div",
      { class: "columns" },
      panel("Types", overview.types.length ? typesTable(overview) : empty("No job yet", "A type is here as soon as a job of it is submitted.")),
      make(
        "div",
        { class: "stack" },
        panel("Workers", workers.length ? workersList(workers) : empty("No worker was heard of within a minute", "Start one: see docs/workers.md.")),
        panel("Latest failures", failed.length ? failedList(failed) : empty("No failed job", "Jobs whose attempts are used up are listed here.")),
      ),
    ),
  ];
}

function plotPanel({ title, hint, names, kind }, overview, byHour) {
  const series = names.map((name) => overview.submissions[name]).filter(Boolean).map((one) => (byHour ? one.hours : one.minutes));
  const counts = series[0]?.map((_, index) => series.reduce((sum, one) => sum + one[index], 0)) ?? Array(byHour ? 24 : 60).fill(0);
  const sum = counts.reduce((all, one) => all + one, 0);
  return make(
    "section",
    { class: "panel", "data-plot": title.toLowerCase() },
    make("h2", {}, title),
    make("p", { class: "figure" }, number(sum)),
    plot(counts, { name: title.toLowerCase(), kind, stepMs: byHour ? 60 * MINUTE : MINUTE, now: Date.parse(overview.now) }),
    make("p", { class: "soft small" }, `${hint}; last ${byHour ? "24 hours" : "60 minutes"}`),
  );
}

function attention(overview, workers) {
  const ready = overview.types.filter((one) => one.ready && one.type !== CALLBACK_TYPE);
  const oldest = [...ready].sort((one, other) => other.oldestReadySeconds - one.oldestReadySeconds)[0];
  const served = new Set(workers.flatMap((worker) => worker.types));
  const unserved = workers.length ? ready.filter((one) => !served.has(one.type) && !one.pausedSince) : [];
  const items = [
    overview.states.lost ? ["bad", make("a", { href: "/lost" }, `${counted(overview.states.lost, "lost job")}`), " wait for a decision"] : null,
    ready.length && !workers.length ? ["bad", `${counted(ready.reduce((sum, one) => sum + one.ready, 0), "job")} ready and no worker`] : null,
    unserved.length ? ["bad", `no worker takes ${unserved.map((one) => one.type).join(", ")}`] : null,
    oldest ? [oldest.oldestReadySeconds > 300 ? "high" : "calm", `oldest ready job: ${duration(oldest.oldestReadySeconds)}, type `, make("a", { href: `/jobs?state=pending&type=${encodeURIComponent(oldest.type)}` }, oldest.type)] : ["calm", "no job waits for a worker"],
    ...overview.types.filter((one) => one.pausedSince).map((one) => ["high", make("a", { href: "/types" }, one.type), " is paused"]),
  ].filter(Boolean);
  return make("ul", { class: "attention", "aria-label": "What needs attention" }, items.map(([kind, ...content]) => make("li", { class: kind }, content)));
}

function byState(overview, total) {
  const states = STATES.filter((name) => overview.states[name]);
  return panel(
    null,
    make("div", { class: "head" }, make("h2", {}, "Jobs by state"), countedAt(overview.countedAt)),
    make("div", { class: "stacked", "aria-hidden": "true" }, states.map((name) => make("span", { class: name, variables: { part: `${(overview.states[name] / total) * 100}%` } }))),
    make("ul", { class: "legend" }, states.map((name) => make("li", {}, make("a", { href: `/jobs?state=${name}` }, state(name), make("b", { class: "tabular" }, number(overview.states[name])))))),
  );
}

function typesTable(overview) {
  const rows = overview.types.map((one) => {
    const ended = Object.entries(one.endedLastDay).filter(([name]) => name !== "cancelled");
    const all = ended.reduce((sum, [, count]) => sum + count, 0);
    const good = one.endedLastDay.success ?? 0;
    const failures = all - good;
    return {
      key: one.type,
      cells: [
        [make("a", { href: `/jobs?type=${encodeURIComponent(one.type)}` }, one.type), one.pausedSince ? make("span", { class: "tag" }, "paused") : null],
        number(one.ready),
        one.oldestReadySeconds === null ? "" : duration(one.oldestReadySeconds),
        number(one.states.running ?? 0),
        number(all),
        all ? make("span", { class: failures ? "bad" : "soft" }, `${((failures / all) * 100).toFixed(failures && failures / all < 0.1 ? 1 : 0)} %`) : "",
      ],
    };
  });
  const columns = [["Type", "name"], ["Ready", "count"], ["Oldest", "count wide"], ["Running", "count"], ["Ended, 24 h", "count wide"], ["Failed", "count"]];
  return [table(columns, rows), overview.typesAreComplete ? null : make("p", { class: "soft small" }, "Only the types with the most jobs are listed.")];
}

function workersList(workers) {
  const rows = workers.slice(0, 8).map((worker) => ({
    key: worker.id,
    cells: [make("a", { href: "/workers" }, worker.name || worker.host), `${worker.running} / ${worker.concurrency}`, ago(worker.seenAt)],
  }));
  return table([["Worker", "name"], ["Running", "count"], ["Heard of", "count"]], rows);
}

function failedList(jobs) {
  const rows = jobs.map((job) => ({ key: job.id, cells: [make("a", { href: jobUrl(job.id) }, job.type), make("span", { class: "bad small" }, job.error ?? ""), ago(job.endedAt)] }));
  return table([["Type", "name"], ["Error", "text"], ["Ended", "count"]], rows);
}

function firstSteps() {
  const lines = [
    "KEY=$(uuidgen)",
    `curl -i ${location.origin}/api/jobs -H "Idempotency-Key: $KEY" \\`,
    '     -H "Content-Type: application/json" \\',
    `     -d '{"type": "hello", "input": {"to": "the world"}}'`,
  ];
  return panel(
    "No job yet",
    make("p", {}, "Submit one, and submit it again: the retry is answered with the same job."),
    make("pre", {}, lines.join("\n")),
    make("p", { class: "soft small" }, "Where authentication is on, add a header ", make("code", {}, "Authorization: Bearer $API_KEY"), ". All paths are in ", make("a", { href: "/docs" }, "the API"), "."),
  );
}

export default { title: () => "Overview", load, view };
