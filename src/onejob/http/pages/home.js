const POLL_MS = 2000;
const JOBS_MAX = 12;
const SHOWN_CHARS_MAX = 20000;

let timer = 0;
let shownJobs = ""; // as JSON
let shownIds = new Set();
const showCredential = credentialForm(() => poll());

async function ask(path) {
  const response = await fetch(path, { headers: credential.headers(), cache: "no-store" });
  const body = await response.json();
  return { ok: response.ok, status: response.status, body };
}

// As text, because the numbers of an input may be more exact than those of a browser.
async function askText(path) {
  const response = await fetch(path, { headers: credential.headers(), cache: "no-store" });
  return { ok: response.ok, text: await response.text() };
}

function showStatus(color, text) {
  at("lamp").className = `dot ${color}`;
  at("live").textContent = text;
}

async function poll() {
  clearTimeout(timer);
  try {
    const [stats, jobs] = await Promise.all([ask("/api/stats"), ask(`/api/jobs?limit=${JOBS_MAX}`)]);
    const refused = [stats, jobs].find((response) => !response.ok);
    showRefusal(refused && [401, 403].includes(refused.status) ? refused : null);
    if (refused) {
      showStatus("bad", refused.status === 401 ? "needs a credential" : refused.body.detail);
    } else {
      showStats(stats.body);
      showJobs(jobs.body.jobs);
      showStatus("ok", "live");
    }
  } catch (error) {
    showStatus("bad", "cannot be reached");
  }
  if (!document.hidden) timer = setTimeout(poll, POLL_MS);
}

function showRefusal(refused) {
  showCredential(refused !== null);
  at("inside").hidden = refused !== null;
  const problem = at("credential-problem");
  problem.textContent = refused ? refused.body.detail : "";
  // Before a credential was entered, its absence is not shown as an error.
  problem.className = credential.get() ? "notice" : "soft small";
  const authorization = credential.get() ? ' -H "Authorization: Bearer $CREDENTIAL"' : "";
  at("curl").textContent = [
    "KEY=$(uuidgen)",
    `curl -i ${location.origin}/api/jobs -H "Idempotency-Key: $KEY"${authorization} \\`,
    `     -H "Content-Type: application/json" \\`,
    `     -d '{"type": "hello", "input": {"to": "the world"}}'`,
  ].join("\n");
}

function showStats(stats) {
  const counts = stats.outcomes;
  for (const outcome of ["created", "replayed", "conflict"]) at(outcome).textContent = counts[outcome].toLocaleString();
  at("waiting").textContent = stats.waiting.toLocaleString();
  const rest = { in_progress: "in progress", rejected: "rejected", refused: "refused", failed: "failed" };
  const others = Object.entries(rest).filter(([outcome]) => counts[outcome]);
  at("others").textContent = others.map(([outcome, text]) => `${counts[outcome].toLocaleString()} ${text}`).join(" · ");
  at("version").textContent = `onejob ${stats.version}`;
  const all = stats.process && stats.process.outcomes;
  at("tenant").textContent = all && all.created !== counts.created ? `of tenant ${stats.tenant} (all tenants: ${all.created.toLocaleString()} created)` : `of tenant ${stats.tenant}`;
  const durability = { process: "jobs are kept in memory only", disk: "jobs survive a crash", quorum: "jobs survive the loss of a machine" };
  const facts = [stats.engine, durability[stats.durability] || stats.durability, `up ${duration(stats.uptimeSeconds)}`];
  const chips = at("facts");
  while (chips.children.length > 1) chips.lastChild.remove();
  chips.append(...facts.map((text) => make("li", { class: "chip" }, text)));
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

function showJobs(jobs) {
  at("jobs-table").hidden = jobs.length === 0;
  at("first").hidden = jobs.length > 0;
  const now = JSON.stringify(jobs);
  if (now === shownJobs) {
    for (const time of document.querySelectorAll("time")) time.textContent = age(time.dateTime);
    return;
  }
  const focused = document.activeElement && document.activeElement.dataset.job;
  at("jobs").replaceChildren(...jobs.map((job) => row(job, shownIds.size > 0 && !shownIds.has(job.id))));
  shownIds = new Set(jobs.map((job) => job.id));
  shownJobs = now;
  const button = focused && [...document.querySelectorAll("[data-job]")].find((each) => each.dataset.job === focused);
  if (button) button.focus();
}

function row(job, fresh) {
  const key = job.key
    ? make("button", { type: "button", class: "link", title: job.key, "data-job": job.id, onclick: () => showHistory(job.key, job.scope) }, job.key)
    : make("span", { class: "soft" }, "none");
  return make(
    "tr",
    { class: fresh ? "fresh" : null },
    make("td", {}, make("span", { class: `state ${job.state}` }, job.state)),
    make("td", { class: "wide", title: job.type }, job.type),
    make("td", { class: "wide" }, key),
    make("td", {}, moment(job.createdAt)),
    make("td", { class: "mono", title: job.id }, `…${job.id.slice(-12)}`),
  );
}

function showHistory(key, scope) {
  at("key").value = key;
  at("scope").value = scope;
  lookUp();
}

async function lookUp() {
  const [key, scope] = [at("key").value, at("scope").value];
  const place = at("history");
  try {
    const response = await ask(`/api/keys/${encodeURIComponent(key)}?scope=${encodeURIComponent(scope)}`);
    if (response.ok) place.replaceChildren(record(response.body));
    else place.replaceChildren(make("p", { class: "notice" }, response.status === 404 ? "This key was not used in this scope, or its window has ended." : response.body.detail));
  } catch (error) {
    place.replaceChildren(make("p", { class: "notice" }, "The server cannot be reached; try again."));
  }
}

function record(history) {
  const { job } = history;
  const facts = [
    ["Answered", `${counted(history.hits, "duplicate")}, ${counted(history.conflicts, "conflict")}`],
    ["By", `${history.actor} for ${history.user}`],
    job ? ["Job", make("span", {}, make("span", { class: `state ${job.state}` }, job.state), ` ${job.type}`)] : null,
    job ? ["Job id", make("code", {}, job.id)] : null,
    job && job.error ? ["Error", job.error] : null,
  ].filter((fact) => fact);
  return make(
    "div",
    { class: "record" },
    make("div", { class: "head" }, make("h3", { class: "mono" }, history.key), make("span", { class: `state ${history.status}` }, history.status)),
    make("dl", { class: "facts" }, facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    make("ol", { class: "timeline", "aria-label": "Events" }, timeline(history)),
    job ? payloads(job) : null,
  );
}

// The input of a job and the messages of its exceptions, which the server shows to operators only.
function payloads(job) {
  const place = make("div", { class: "payloads" });
  const show = async () => {
    try {
      const answers = await Promise.all(["input", "failures"].map((name) => askText(`/api/jobs/${job.id}/${name}`)));
      const refused = answers.find((answer) => !answer.ok);
      if (refused) {
        place.replaceChildren(make("p", { class: "notice" }, JSON.parse(refused.text).detail));
        return;
      }
      const failures = JSON.parse(answers[1].text).failures.map((failure) => `${failure.at} ${failure.what}\n${failure.detail}`);
      place.replaceChildren(make("h4", {}, "Input"), make("pre", {}, clip(answers[0].text)));
      if (failures.length) place.append(make("h4", {}, "Failures"), make("pre", {}, clip(failures.join("\n\n"))));
    } catch (error) {
      place.replaceChildren(make("p", { class: "notice" }, "The server cannot be reached; try again."));
    }
  };
  place.append(make("button", { type: "button", class: "link", id: "payloads", onclick: show }, "Show the input and the failures"));
  return place;
}

const clip = (text) => (text.length > SHOWN_CHARS_MAX ? `${text.slice(0, SHOWN_CHARS_MAX)}… (${text.length.toLocaleString()} characters)` : text);

const counted = (count, noun) => `${count.toLocaleString()} ${noun}${count === 1 ? "" : "s"}`;

function timeline(history) {
  // The events of a job begin with its key; a key without a job has no events.
  const steps = history.events.length ? [] : [{ at: history.firstSeen, what: "key reserved", by: history.actor }];
  for (const event of history.events) steps.push({ at: event.at, what: event.what, by: event.actor, detail: event.detail });
  if (history.lastHitAt) steps.push({ at: history.lastHitAt, what: "last duplicate, answered with the same job" });
  for (const conflict of history.recentConflicts)
    steps.push({ at: conflict.at, what: "conflict, another body under the key", by: conflict.actor, detail: conflict.paths.join(", ") });
  if (history.heldUntil) steps.push({ at: history.heldUntil, what: "lease of the holder ends" });
  steps.push({ at: history.expiresAt, what: "window ends: the key may create a new job" });
  const left = history.eventsTotal - history.events.length;
  const order = steps.map((step, n) => [Date.parse(step.at), n, step]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const items = order.map(([when, , step]) =>
    make(
      "li",
      { class: when > Date.now() ? "ahead" : null },
      step.what,
      step.by ? make("span", { class: "soft" }, ` by ${step.by}`) : null,
      step.detail ? make("span", { class: "soft" }, `: ${step.detail}`) : null,
      moment(step.at),
    ),
  );
  if (left > 0) items.push(make("li", { class: "soft" }, `${left} more events are not kept in full`));
  return items;
}

at("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  lookUp();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
    showStatus("", "paused");
  } else poll();
});

// A link may have a key after the `#`, which browsers do not send to the server.
function followLink() {
  const link = new URLSearchParams(location.hash.slice(1));
  if (link.has("key") && link.has("scope")) showHistory(link.get("key"), link.get("scope"));
}

window.addEventListener("hashchange", followLink);
followLink();
poll();
