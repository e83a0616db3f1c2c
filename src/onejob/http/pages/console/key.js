// The story of a key: who came first, each repetition and conflict, its job, its window, and what it would be answered now.

import { ApiError, get, getOr, getText, post, queryOf, remove } from "./api.js";
import { make } from "./dom.js";
import { clock, indentJson } from "./format.js";
import { ago, askInDialog, button, counted, empty, facts, field, heading, input, jobUrl, keyUrl, number, pager, panel, state, table, toast } from "./parts.js";

const PAGE_SIZE = 50;
const ANSWERS = {
  created: "A new job would be created.",
  replayed: "It would be answered with the same job, and nothing would be done twice.",
  conflict: "It would be refused: the key belongs to another body.",
  in_progress: "It would wait: somebody holds the key.",
  rejected: "It would be answered with the rejection that is stored.",
  refused: "It would be refused by a limit.",
};

let policy = null; // the rules of this server
let kept = { path: "" }; // of the key that is shown: its input, and the last dry run

async function load(context) {
  const { params, query, may, path, session } = context;
  const user = query.get("user");
  if (kept.path !== path) kept = { path, input: undefined, answer: null };
  policy ??= await get("/api/idempotency-policy");
  const history = await get(`/api/keys/${encodeURIComponent(params.key)}${queryOf({ scope: params.scope, user })}`);
  if (kept.input === undefined && history.job && may("inspect")) {
    kept.input = await getOr(null, `/api/jobs/${history.job.id}/input`, getText);
    if (kept.input !== null && may("submit") && isOwnKey(history, session)) kept.answer = await dryRun(history, kept.input);
  }
  return { history, input: kept.input ?? null, answer: kept.answer };
}

// Where each user has its own keys, a dry run would look at those of the reader.
const isOwnKey = (history, session) => policy.scope.sharedBy !== "user" || history.user === session.user;

// The same submission again, with a body as text, so that no number is rounded on the way.
async function dryRun(history, inputText) {
  const rest = JSON.stringify({ type: history.job?.type ?? history.scope, scope: history.scope === history.job?.type ? undefined : history.scope });
  const body = `${rest.slice(0, -1)},"input":${inputText}}`;
  try {
    JSON.parse(inputText);
  } catch (error) {
    return { problem: `The input is not JSON: ${error.message}` };
  }
  try {
    const response = await fetch("/api/jobs?dryRun=true", {
      method: "POST",
      headers: { "X-Onejob-Console": "1", "Content-Type": "application/json", "Idempotency-Key": JSON.stringify(history.key) },
      body,
      cache: "no-store",
    });
    const answer = await response.json();
    return response.ok ? answer : { problem: answer.detail };
  } catch (error) {
    return { problem: "This server does not answer." };
  }
}

function view({ history, input: inputText, answer }, context) {
  const { job } = history;
  return [
    heading(
      history.key,
      make("span", { class: "big" }, state(history.status)),
      make("span", { class: "row end" }, context.may("forget") ? button("Forget…", () => forget(history, context), { class: "quiet bad", id: "forget" }) : null),
    ),
    make("p", { class: "lead", id: "story" }, story(history)),
    make(
      "div",
      { class: "columns even" },
      make("div", { class: "stack" }, panel("Timeline", timeline(history))),
      make(
        "div",
        { class: "stack" },
        panel(
          "Key",
          facts([
            ["Scope", history.scope],
            ["First used by", `${history.actor}, for ${history.user}`],
            ["Repetitions", make("span", { id: "hits" }, history.hits ? [number(history.hits), ", the last ", ago(history.lastHitAt)] : "none")],
            ["Conflicts", make("span", { id: "conflicts", class: history.conflicts ? "bad" : null }, number(history.conflicts))],
            history.heldUntil ? ["Held until", [clock(history.heldUntil), " (", ago(history.heldUntil), ")"]] : null,
            ["Window ends", [clock(history.expiresAt), " (", ago(history.expiresAt), ")"]],
            job ? ["Job", [state(job.state), " ", make("a", { href: jobUrl(job.id) }, job.type), " ", make("code", { class: "soft" }, `…${job.id.slice(-12)}`)]] : ["Job", "none"],
            job?.error ? ["Error", make("span", { class: "bad" }, job.error)] : null,
          ]),
        ),
        tryPanel(history, inputText, answer, context),
      ),
    ),
  ];
}

function story(history) {
  const first = ["First submitted ", ago(history.firstSeen), ` by ${history.actor}. `];
  if (history.status === "pending") return [...first, history.heldUntil ? "Its submission is under way." : "Its submission was not finished; the next one takes it over."];
  if (history.status === "rejected") return [...first, "It was rejected for good, and every retry is told so."];
  const repeats = history.hits ? repetitions(history.hits) : "It was not repeated";
  const conflicts = history.conflicts ? `, and ${counted(history.conflicts, "submission")} with another body ${history.conflicts === 1 ? "was" : "were"} refused.` : ".";
  return [...first, repeats, conflicts];
}

function repetitions(hits) {
  return `${counted(hits, "repetition")} ${hits === 1 ? "was" : "were"} answered with the same job`;
}

function timeline(history) {
  const conflicts = history.recentConflicts.map((one) => ({ at: one.at, what: "conflict: another body under this key", actor: one.actor, paths: one.paths, kind: "high" }));
  const events = history.events.length ? history.events : [{ at: history.firstSeen, what: "submitted", actor: history.actor, detail: "" }];
  const past = [...events, ...conflicts];
  if (history.hits && history.lastHitAt) past.push({ at: history.lastHitAt, what: `until then, ${repetitions(history.hits)}`, actor: "", kind: "ok" });
  past.sort((one, other) => Date.parse(one.at) - Date.parse(other.at));
  const hidden = history.conflicts - history.recentConflicts.length;
  return make(
    "ol",
    { class: "timeline", id: "timeline" },
    past.map((one) =>
      make(
        "li",
        { class: one.kind ?? (/fail|lost|laps/.test(one.what) ? "bad" : /success/.test(one.what) ? "ok" : null) },
        make("b", {}, one.what),
        one.actor ? make("span", { class: "soft" }, ` by ${one.actor}`) : null,
        clock(one.at),
        one.detail ? make("p", {}, one.detail) : null,
        one.paths?.length ? make("p", {}, "differs at ", one.paths.map((path, index) => [index ? ", " : "", make("code", {}, path)])) : null,
      ),
    ),
    hidden > 0 ? make("li", { class: "soft" }, `${counted(hidden, "earlier conflict")} ${hidden === 1 ? "is" : "are"} only counted`) : null,
    make("li", { class: "ahead" }, make("b", {}, "the window ends"), clock(history.expiresAt), make("p", {}, "From then on the key makes a new job.")),
  );
}

function tryPanel(history, inputText, answer, { may, refresh, session }) {
  const title = "What a submission would be answered now";
  if (!may("submit") || !history.job) return null;
  if (!isOwnKey(history, session)) return panel(title, make("p", { class: "soft" }, `Each user has its own keys here: only ${history.user} can try this one.`));
  const ask = async (event) => {
    event.preventDefault();
    kept.answer = await dryRun(history, event.target.elements.input.value);
    await refresh();
  };
  return panel(
    title,
    make("p", { class: "soft small" }, "A dry run: nothing is changed, and nothing is counted."),
    answer ? answerNotice(answer) : null,
    make(
      "form",
      { onsubmit: ask, id: "dry-run" },
      field("Input", make("textarea", { name: "input", rows: "6", spellcheck: "false", "data-keep": "" }, inputText === null ? "null" : indentJson(inputText))),
      make("div", { class: "row" }, make("button", { class: "quiet" }, "Try")),
    ),
  );
}

function answerNotice(answer) {
  if (answer.problem) return make("p", { class: "notice", id: "answer" }, answer.problem);
  const { outcome } = answer.idempotency;
  return make(
    "p",
    { class: `answer ${outcome}`, id: "answer" },
    make("b", {}, outcome.replace("_", " ")),
    ` ${ANSWERS[outcome] ?? ""}`,
    answer.paths?.length ? [" The bodies differ at ", answer.paths.map((path, index) => [index ? ", " : "", make("code", {}, path)]), "."] : null,
    (answer.warnings ?? []).map((one) => ` ${one.message}`),
  );
}

async function forget(history, { go }) {
  const agreed = await askInDialog({
    title: "Forget this key?",
    content: [make("p", {}, "Its job stays. The next submission of the key makes a new job: a client that still retries the old one then does the work twice.")],
    action: "Forget it",
    danger: true,
  });
  if (!agreed) return;
  try {
    await remove(`/api/keys/${encodeURIComponent(history.key)}${queryOf({ scope: history.scope, user: history.user })}`);
    toast("The key is forgotten.");
    go(history.job ? jobUrl(history.job.id) : "/keys");
  } catch (error) {
    toast(error instanceof ApiError ? error.message : String(error), "bad");
  }
}

export function keysTable(keys) {
  const rows = keys.map((one) => ({
    key: `${one.scope} ${one.user} ${one.key}`,
    cells: [
      make("a", { href: keyUrl(one), class: "mono", title: one.key }, one.key),
      one.scope,
      state(one.status),
      one.job ? state(one.job.state) : "",
      number(one.hits),
      make("span", { class: one.conflicts ? "bad" : "soft" }, number(one.conflicts)),
      ago(one.firstSeen),
      ago(one.expiresAt),
    ],
  }));
  return table([["Key", "name"], ["Scope", "name wide"], ["Status"], ["Job"], ["Repeated", "count"], ["Conflicts", "count"], ["First used", "count wide"], ["Window ends", "count wide"]], rows);
}

export const keys = {
  title: () => "Keys",
  load: ({ query }) => get(`/api/keys${queryOf({ scope: query.get("scope"), cursor: query.get("cursor"), limit: PAGE_SIZE })}`),
  view({ keys: found, next }, { path, query, go }) {
    const submit = (event) => {
      event.preventDefault();
      go(path + queryOf(Object.fromEntries(new FormData(event.target.closest("form")))));
    };
    return [
      heading("Keys"),
      make("form", { class: "filters", onsubmit: submit, onchange: submit, "aria-label": "Filter" }, field("Scope", input("scope", query.get("scope") ?? "", { placeholder: "any: the job type" }))),
      found.length ? keysTable(found) : empty("No key here", "Submissions with an Idempotency-Key are listed while their window is open."),
      pager(path, query, next),
    ];
  },
};

export default { title: ({ params }) => `Key ${params.key}`, load, view };
