const POLL_MS = 2000;
const JOBS_MAX = 12;

let timer = 0;
let shown = "";
let known = new Set();
const showCredential = credentialForm(() => poll());

async function ask(path) {
  const response = await fetch(path, { headers: credential.headers(), cache: "no-store" });
  const body = await response.json();
  return { ok: response.ok, status: response.status, body };
}

function lamp(word, text) {
  at("lamp").className = `dot ${word}`;
  at("live").textContent = text;
}

async function poll() {
  clearTimeout(timer);
  try {
    const [stats, jobs] = await Promise.all([ask("/api/stats"), ask(`/api/jobs?limit=${JOBS_MAX}`)]);
    const refused = [stats, jobs].find((answer) => !answer.ok);
    locked(refused && [401, 403].includes(refused.status) ? refused : null);
    if (refused) {
      lamp("bad", refused.status === 401 ? "needs a credential" : refused.body.detail);
    } else {
      showStats(stats.body);
      showJobs(jobs.body.jobs);
      lamp("ok", "live");
    }
  } catch (error) {
    lamp("bad", "cannot be reached");
  }
  if (!document.hidden) timer = setTimeout(poll, POLL_MS);
}

function locked(refused) {
  showCredential(refused !== null);
  at("inside").hidden = refused !== null;
  const problem = at("credential-problem");
  problem.textContent = refused ? refused.body.detail : "";
  // That nobody has said yet who they are is no failure.
  problem.className = credential.get() ? "notice" : "soft small";
  const known = credential.get() ? ' -H "Authorization: Bearer $CREDENTIAL"' : "";
  at("curl").textContent = [
    "KEY=$(uuidgen)",
    `curl -i ${location.origin}/api/jobs -H "Idempotency-Key: $KEY"${known} \\`,
    `     -d '{"type": "hello", "input": {"to": "the world"}}'`,
  ].join("\n");
}

function showStats(stats) {
  const counts = stats.outcomes;
  for (const word of ["created", "replayed", "conflict"]) at(word).textContent = counts[word].toLocaleString();
  at("waiting").textContent = stats.waiting.toLocaleString();
  const rest = { in_progress: "in progress", rejected: "rejected", refused: "refused", failed: "failed" };
  const others = Object.entries(rest).filter(([word]) => counts[word]);
  at("others").textContent = others.map(([word, text]) => `${counts[word].toLocaleString()} ${text}`).join(" · ");
  at("version").textContent = `onejob ${stats.version}`;
  const all = stats.process && stats.process.outcomes;
  at("whose").textContent = all && all.created !== counts.created ? `of tenant ${stats.tenant} (all tenants: ${all.created.toLocaleString()} created)` : `of tenant ${stats.tenant}`;
  const survives = { process: "answers live in memory", disk: "answers survive a crash", quorum: "answers survive a lost machine" };
  const facts = [stats.engine, survives[stats.durability] || stats.durability, `up ${span(stats.uptimeSeconds)}`];
  const chips = at("facts");
  while (chips.children.length > 1) chips.lastChild.remove();
  chips.append(...facts.map((text) => make("li", { class: "chip" }, text)));
}

function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

function showJobs(jobs) {
  at("jobs-table").hidden = jobs.length === 0;
  at("first").hidden = jobs.length > 0;
  const now = JSON.stringify(jobs);
  if (now === shown) {
    for (const time of document.querySelectorAll("time")) time.textContent = age(time.dateTime);
    return;
  }
  const focused = document.activeElement && document.activeElement.dataset.job;
  at("jobs").replaceChildren(...jobs.map((job) => row(job, known.size > 0 && !known.has(job.id))));
  known = new Set(jobs.map((job) => job.id));
  shown = now;
  const again = focused && [...document.querySelectorAll("[data-job]")].find((one) => one.dataset.job === focused);
  if (again) again.focus();
}

function row(job, fresh) {
  const key = job.key
    ? make("button", { type: "button", class: "link", title: job.key, "data-job": job.id, onclick: () => tell(job.key, job.scope) }, job.key)
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

function tell(key, scope) {
  at("key").value = key;
  at("scope").value = scope;
  lookUp();
}

async function lookUp() {
  const [key, scope] = [at("key").value, at("scope").value];
  const place = at("story");
  try {
    const found = await ask(`/api/keys/${encodeURIComponent(key)}?scope=${encodeURIComponent(scope)}`);
    if (found.ok) place.replaceChildren(record(found.body));
    else place.replaceChildren(make("p", { class: "notice" }, found.status === 404 ? "Nobody has used this key in this scope, or its window has passed." : found.body.detail));
  } catch (error) {
    place.replaceChildren(make("p", { class: "notice" }, "The server cannot be reached; try again."));
  }
}

function record(story) {
  const facts = [
    ["Answered", `${counted(story.hits, "repetition")}, ${counted(story.conflicts, "conflict")}`],
    ["By", `${story.actor} for ${story.user}`],
    story.job ? ["Job", make("span", {}, make("span", { class: `state ${story.job.state}` }, story.job.state), ` ${story.job.type}`)] : null,
    story.job ? ["Job id", make("code", {}, story.job.id)] : null,
    story.job && story.job.error ? ["Error", story.job.error] : null,
  ].filter((fact) => fact);
  return make(
    "div",
    { class: "record" },
    make("div", { class: "head" }, make("h3", { class: "mono" }, story.key), make("span", { class: `state ${story.status}` }, story.status)),
    make("dl", { class: "facts" }, facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    make("ol", { class: "timeline", "aria-label": "What happened" }, timeline(story)),
  );
}

const counted = (count, word) => `${count.toLocaleString()} ${word}${count === 1 ? "" : "s"}`;

function timeline(story) {
  // A job's own story begins when its key was taken; a key without a job has only that to tell.
  const steps = story.events.length ? [] : [{ at: story.firstSeen, what: "key taken", by: story.actor }];
  for (const event of story.events) steps.push({ at: event.at, what: event.what, by: event.actor, detail: event.detail });
  if (story.lastHitAt) steps.push({ at: story.lastHitAt, what: "last repetition or conflict" });
  if (story.heldUntil) steps.push({ at: story.heldUntil, what: "lease of the holder ends" });
  steps.push({ at: story.expiresAt, what: "window ends: the key may make a new job" });
  const left = story.eventsTotal - story.events.length;
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
    lamp("", "paused");
  } else poll();
});

// A link may name a key after the `#`, which no browser sends to a server.
function linked() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has("key") && asked.has("scope")) tell(asked.get("key"), asked.get("scope"));
}

window.addEventListener("hashchange", linked);
linked();
poll();
