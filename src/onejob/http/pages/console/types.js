// Job types, which can be paused; the workers that run them; and the schedules that submit them.

import { get, post } from "./api.js";
import { make } from "./dom.js";
import { duration } from "./format.js";
import { ago, askInDialog, bar, button, CALLBACK_TYPE, countedAt, counted, empty, heading, number, table, toast } from "./parts.js";

const PAUSE_TYPE = "No worker claims jobs of this type from now on. Submissions are accepted and wait, and what runs goes on.";
const PAUSE_SCHEDULE = "No job of it is submitted until it is resumed. What was submitted goes on.";

async function setPaused(path, name, paused, text, { refresh }) {
  if (paused && !(await askInDialog({ title: `Pause ${name}?`, content: [make("p", {}, text)], action: "Pause" }))) return;
  try {
    await post(`${path}/${encodeURIComponent(name)}/${paused ? "pause" : "resume"}`);
    toast(paused ? `${name} is paused.` : `${name} goes on.`);
  } catch (error) {
    toast(error.message, "bad");
  }
  await refresh();
}

function view({ types, countedAt: time }, context) {
  const rows = types.map((one) => {
    const jobs = (name) => make("a", { href: `/jobs?type=${encodeURIComponent(one.type)}&state=${name}`, class: !one.states[name] ? "soft" : ["failed", "lost"].includes(name) ? "bad" : null }, number(one.states[name] ?? 0));
    const isPaused = one.pausedSince !== null;
    return {
      key: one.type,
      cells: [
        make("a", { href: `/jobs?type=${encodeURIComponent(one.type)}` }, one.type),
        number(one.ready),
        one.oldestReadySeconds === null ? "" : duration(one.oldestReadySeconds),
        jobs("running"),
        jobs("failed"),
        jobs("lost"),
        number(Object.values(one.endedLastDay).reduce((sum, count) => sum + count, 0)),
        isPaused ? pausedTag(one.pausedSince, one.pausedBy) : make("span", { class: "soft" }, "open"),
        context.may("resolve") && one.type !== CALLBACK_TYPE
          ? button(isPaused ? "Resume" : "Pause…", () => setPaused("/api/types", one.type, !isPaused, PAUSE_TYPE, context), { class: "quiet tiny", "data-type": one.type })
          : "",
      ],
    };
  });
  const columns = [["Type", "name"], ["Ready", "count"], ["Oldest", "count"], ["Running", "count wide"], ["Failed", "count"], ["Lost", "count wide"], ["Ended, 24 h", "count wide"], ["Claiming", "wide"], [""]];
  return [heading("Types", countedAt(time)), rows.length ? table(columns, rows) : empty("No job type yet", "A type is here as soon as a job of it is submitted.")];
}

const pausedTag = (since, by) => make("span", {}, make("span", { class: "tag" }, "paused"), " ", make("span", { class: "soft small" }, ago(since), ` by ${by}`));

export const schedules = {
  title: () => "Schedules",
  load: () => get("/api/schedules"),
  view({ schedules: all }, context) {
    const rows = all.map((one) => {
      const isPaused = one.pausedAt !== null;
      return {
        key: one.name,
        cells: [
          make("b", {}, one.name),
          make("code", {}, one.timetable),
          make("a", { href: `/jobs?type=${encodeURIComponent(one.type)}` }, one.type),
          one.catchUp ? `the last ${number(one.catchUp)}` : "none",
          ago(one.since),
          isPaused ? pausedTag(one.pausedAt, one.pausedBy) : make("span", { class: "soft" }, "on"),
          context.may("resolve") ? button(isPaused ? "Resume" : "Pause…", () => setPaused("/api/schedules", one.name, !isPaused, PAUSE_SCHEDULE, context), { class: "quiet tiny", "data-schedule": one.name }) : "",
        ],
      };
    });
    const columns = [["Schedule", "name"], ["Timetable", "name"], ["Type", "name"], ["Catches up", "wide"], ["Since", "count wide"], ["State"], [""]];
    return [heading("Schedules"), rows.length ? table(columns, rows) : empty("No schedule", make("p", {}, "A worker registers the schedules of its app when it starts: ", make("code", {}, "@app.every(…)"), ". See docs/schedules.md."))];
  },
};

export const workers = {
  title: () => "Workers",
  load: () => get("/api/workers"),
  view({ workers: all }) {
    const rows = all.map((one) => ({
      key: one.id,
      cells: [
        make("b", {}, one.name || one.host),
        ago(one.seenAt),
        bar(one.running, one.concurrency, { warns: false }),
        one.types.map((type) => make("a", { class: "chip", href: `/jobs?state=running&type=${encodeURIComponent(type)}` }, type)),
        make("span", { class: "mono" }, `${one.host} ${one.pid}`),
        Object.entries(one.ended).map(([end, count]) => `${number(count)} ${end}`).join(", ") || "nothing yet",
        one.version,
        ago(one.startedAt),
      ],
    }));
    const columns = [["Worker", "name"], ["Heartbeat"], ["Running"], ["Types", "wrap"], ["Host, process", "name wide"], ["Ended since start", "wrap wide"], ["Version", "wide"], ["Started", "count wide"]];
    return [
      heading("Workers", make("span", { class: "soft small" }, counted(all.length, "worker"))),
      rows.length
        ? table(columns, rows)
        : empty("No worker was heard of within the last minute", make("p", {}, "Run a module with handlers, ", make("code", {}, "python -m yourapp"), ", or claim jobs over HTTP. See docs/workers.md.")),
    ];
  },
};

export default { title: () => "Types", load: () => get("/api/types"), view };
