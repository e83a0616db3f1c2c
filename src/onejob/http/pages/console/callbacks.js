// Callbacks: the calls to the URLs that submitters named for the end of their jobs.

import { get, queryOf } from "./api.js";
import { make } from "./dom.js";
import { none } from "./format.js";
import { ago, empty, heading, jobUrl, number, pager, state, table } from "./parts.js";

const CHOICES = [
  ["", "all"],
  ["preparing", "waiting for the end"],
  ["pending", "due"],
  ["scheduled", "to be tried again"],
  ["success", "delivered"],
  ["failed", "given up"],
];

const load = ({ query }) => get(`/api/callbacks${queryOf({ state: query.get("state"), cursor: query.get("cursor"), limit: 50 })}`);

function view({ callbacks, next }, { path, query }) {
  const chosen = query.get("state") ?? "";
  const rows = callbacks.map(({ job, reportedJobId, url }) => ({
    key: job.id,
    cells: [
      make("a", { href: jobUrl(job.id), class: "quietly" }, state(job.state)),
      url === null ? none("for operators") : make("code", { title: url }, url),
      make("a", { href: jobUrl(reportedJobId), class: "mono" }, `…${reportedJobId.slice(-12)}`),
      number(job.attempts),
      job.state === "scheduled" ? ago(job.runAt) : ago(job.endedAt),
      make("span", { class: "bad small", title: job.error }, job.error ?? ""),
    ],
  }));
  const columns = [["State"], ["To", "name"], ["Of job", "name"], ["Attempts", "count"], ["Next or ended", "count"], ["Error", "text wide"]];
  return [
    heading("Callbacks"),
    make("nav", { class: "tabs", "aria-label": "States" }, CHOICES.map(([value, text]) => make("a", { href: path + queryOf({ state: value }), "aria-current": value === chosen ? "true" : null }, text))),
    rows.length ? table(columns, rows) : empty(chosen ? "No such callback" : "No callback yet", "A submission names a URL in `callback` to be called when its job has ended, if the setting `callbacks` allows it."),
    pager(path, query, next),
  ];
}

export default { title: () => "Callbacks", load, view };
