// The console: finds the page of a path, loads and shows it, and renews it while the tab is visible.

import { ApiError, get, post, remove, UNREACHABLE } from "./api.js";
import apiKeys from "./api_keys.js";
import callbacks from "./callbacks.js";
import { at, make, renew } from "./dom.js";
import { clock, renewAges } from "./format.js";
import job from "./job.js";
import jobs, { lost } from "./jobs.js";
import key, { keys } from "./key.js";
import overview from "./overview.js";
import { button, empty, field, heading, input, showInDialog, toast } from "./parts.js";
import quotas, { reservations } from "./quotas.js";
import search from "./search.js";
import sequences from "./sequences.js";
import types, { schedules, workers } from "./types.js";

const RENEW_MS = 5000;
const BACKOFF_MS_MAX = 30000;

// Every page: its path, its name in the menu, the permission it needs, and the second key of its shortcut.
const PAGES = [
  { path: "/", page: overview, name: "Overview", needs: "oversee", shortcut: "o" },
  { path: "/jobs", page: jobs, name: "Jobs", shortcut: "j" },
  { path: "/lost", page: lost, name: "Lost jobs", needs: "resolve", shortcut: "l" },
  { path: "/keys", page: keys, name: "Keys", shortcut: "k" },
  { path: "/types", page: types, name: "Types", needs: "oversee", shortcut: "t", group: "Running" },
  { path: "/workers", page: workers, name: "Workers", needs: "oversee", shortcut: "w" },
  { path: "/schedules", page: schedules, name: "Schedules", needs: "oversee", shortcut: "e" },
  { path: "/callbacks", page: callbacks, name: "Callbacks", shortcut: "c" },
  { path: "/quotas", page: quotas, name: "Quotas", shortcut: "q", group: "Limits" },
  { path: "/reservations", page: reservations, name: "Reservations", shortcut: "r" },
  { path: "/sequences", page: sequences, name: "Sequences", needs: "oversee", shortcut: "s" },
  { path: "/api-keys", page: apiKeys, name: "API keys", needs: "administer", shortcut: "a", group: "Access" },
  { path: "/jobs/:id", page: job },
  { path: "/keys/:scope/:key", page: key },
  { path: "/search", page: search },
];

let session = null;
let shown = null; // the page that is shown, with its parameters and its data
let ticket = 0; // of the latest load: an older one that ends later is dropped
let failures = 0;
let timer = 0;
let paused = false;
let awaitsShortcut = false;

const may = (permission) => !permission || session.permissions.includes(permission);

function findPage(pathname) {
  for (const entry of PAGES) {
    const names = [];
    const pattern = entry.path.replace(/:(\w+)/g, (_, name) => {
      names.push(name);
      return "([^/]+)";
    });
    const found = pathname.match(new RegExp(`^${pattern}$`));
    if (found) return { entry, params: Object.fromEntries(names.map((name, index) => [name, decodeURIComponent(found[index + 1])])) };
  }
  return null;
}

function go(url, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  open();
}

function open() {
  const found = findPage(location.pathname);
  const path = location.pathname;
  at("side").classList.remove("open");
  at("menu").setAttribute("aria-expanded", "false");
  if (!session) return start();
  if (found && path === "/" && !may("oversee")) return go("/jobs", { replace: true });
  showMenu();
  const query = new URLSearchParams(location.search);
  const isSamePage = shown?.path === path;
  shown = { path, entry: found?.entry, context: { path, query, params: found?.params ?? {}, session, may, go, refresh }, data: null };
  if (!isSamePage) {
    window.scrollTo(0, 0);
    at("main").classList.add("loading");
  }
  at("search-text").value = path === "/search" ? (query.get("q") ?? "") : "";
  return refresh();
}

async function refresh() {
  clearTimeout(timer);
  const mine = ++ticket;
  const { entry, context } = shown;
  if (!entry) return showMessage("There is no such page", "Choose one from the menu.");
  if (!may(entry.needs)) return showMessage("Your role does not allow this", `This page needs the permission to ${entry.needs}; you have ${session.permissions.join(", ")}.`);
  try {
    const data = await entry.page.load(context);
    if (mine !== ticket) return undefined;
    shown.data = data;
    failures = 0;
    showPage(entry.page.view(data, context));
    document.title = `${entry.page.title(context, data)} · onejob`;
    showLive("ok", Date.now());
  } catch (error) {
    if (mine !== ticket) return undefined;
    failures += 1;
    showFailure(error);
  }
  return schedule(entry.page.every ?? RENEW_MS);
}

function schedule(everyMs) {
  clearTimeout(timer);
  if (document.hidden || paused) return;
  timer = setTimeout(() => (session ? refresh() : start()), failures ? Math.min(1000 * 2 ** failures, BACKOFF_MS_MAX) : everyMs);
}

function showPage(nodes) {
  const main = at("main");
  main.classList.remove("loading");
  main.removeAttribute("data-trouble");
  renew(main, [nodes].flat(9));
}

const showMessage = (title, ...text) => showPage([empty(title, ...text)]);

function showFailure(error) {
  if (!(error instanceof ApiError)) {
    showLive("bad");
    console.error(error);
    return showMessage("This page has a mistake", String(error));
  }
  if (error.status === 401) return askToSignIn();
  if (error.status === 404) return showMessage("Not found", error.message);
  if (error.status === 403) return showMessage("Your role does not allow this", error.message);
  showLive("bad");
  const isStore = error.status === 503;
  if (isStore || error.status === UNREACHABLE) return showTrouble(isStore ? "The store does not answer" : "This server does not answer", error.message);
  return showMessage("This page cannot be shown", error.message);
}

// What was shown stays, with its age; without anything to show, the trouble is the page.
function showTrouble(title, detail) {
  const advice = "Nothing was lost: what was acknowledged is stored. This page tries again by itself.";
  const main = at("main");
  main.dataset.trouble = title;
  main.classList.remove("loading");
  if (!shown?.data) {
    renew(main, [make("div", { class: "empty trouble", role: "alert" }, make("h2", {}, title), make("p", {}, detail), make("p", {}, advice))]);
    return;
  }
  main.querySelector(".trouble")?.remove();
  main.prepend(make("p", { class: "notice trouble", role: "alert" }, `${title}. ${detail} What you see is from before. ${advice}`));
}

function showLive(kind, since) {
  const live = at("live");
  if (since) live.dataset.since = since;
  live.dataset.kind = paused ? "paused" : kind;
  live.title = paused ? "Paused; press to go on" : "Renewed by itself; press to pause";
  live.textContent = paused ? "paused" : kind === "ok" ? "live" : "no answer";
}

function showMenu() {
  const current = PAGES.find(({ path }) => path === location.pathname) ?? PAGES.find(({ path, name }) => name && path !== "/" && location.pathname.startsWith(`${path}/`));
  const links = PAGES.filter(({ name, needs }) => name && may(needs)).flatMap((entry) => [
    entry.group ? make("h2", {}, entry.group) : null,
    make("a", { href: entry.path, "aria-current": entry === current ? "page" : null, title: `g ${entry.shortcut}` }, entry.name),
  ]);
  renew(at("side"), [links, make("h2", {}, "Server"), make("a", { href: "/docs" }, "API"), may("scrape") ? make("a", { href: "/metrics" }, "Metrics") : null].flat());
  const name = session.user === session.name || !session.name ? session.user : session.name;
  renew(at("who"), [
    make("span", { class: "soft small", title: `tenant ${session.tenant}, user ${session.user}, roles ${session.roles.join(", ")}` }, session.authentication ? name : "no authentication"),
    session.authentication && session.expiresAt ? button("Sign out", signOut, { class: "quiet tiny", id: "sign-out" }) : null,
  ]);
}

async function signOut() {
  try {
    await remove("/api/session");
  } catch (error) {
    if (error.status !== 401) return toast(error.message, "bad");
  }
  session = null;
  shown = null;
  return askToSignIn();
}

function askToSignIn(problem = "") {
  session = null;
  clearTimeout(timer);
  ticket += 1;
  document.title = "Sign in · onejob";
  renew(at("side"), []);
  renew(at("who"), []);
  showLive("ok");
  const form = make(
    "form",
    { class: "panel sign-in", onsubmit: signIn },
    make("h1", {}, "Sign in"),
    make("p", { class: "soft" }, "With an API key or a token of this server. It becomes a session of twelve hours, which ends early if the key is revoked."),
    field("API key or token", input("credential", "", { type: "password", id: "credential", required: true, maxlength: "8192" })),
    problem ? make("p", { class: "notice", role: "alert" }, problem) : null,
    make("div", { class: "row" }, make("button", {}, "Sign in")),
    make("p", { class: "soft small" }, "No key yet? An administrator makes one with ", make("code", {}, "onejob apikey create NAME --role operator"), "."),
  );
  showPage([form]);
  at("credential").focus();
}

async function signIn(event) {
  event.preventDefault();
  const text = at("credential");
  try {
    session = await post("/api/session", { credential: text.value });
    text.value = "";
    open();
  } catch (error) {
    text.value = "";
    askToSignIn(error.message);
  }
}

async function start() {
  try {
    session = await get("/api/session");
  } catch (error) {
    failures += 1;
    showFailure(error);
    if (error.status !== 401) schedule(RENEW_MS);
    return undefined;
  }
  failures = 0;
  return open();
}

function showHelp() {
  const shortcuts = [
    ["/", "find a job or a key"],
    ["j, k", "next and previous row of a list"],
    ["Enter", "open the row"],
    ["r", "renew the page"],
    ...PAGES.filter(({ name, needs }) => name && session && may(needs)).map(({ name, shortcut }) => [`g ${shortcut}`, name]),
    ["?", "this help"],
  ];
  showInDialog("Keyboard", make("dl", { class: "facts" }, shortcuts.map(([keys, text]) => [make("dt", {}, make("kbd", {}, keys)), make("dd", {}, text)])));
}

function moveInList(step) {
  const links = [...at("main").querySelectorAll("[data-row]")].map((row) => row.querySelector("a, button")).filter(Boolean);
  if (!links.length) return;
  const now = links.findIndex((link) => link.closest("[data-row]").contains(document.activeElement));
  links[Math.min(Math.max(now + step, 0), links.length - 1)].focus();
}

function onKey(event) {
  const isTyping = event.target.closest("input, select, textarea, dialog[open]");
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping) {
    if (event.key === "Escape" && event.target.id === "search-text") event.target.blur();
    return;
  }
  const target = awaitsShortcut && PAGES.find(({ shortcut, needs }) => shortcut === event.key && session && may(needs));
  awaitsShortcut = event.key === "g";
  if (target) return go(target.path);
  const actions = { "/": () => at("search-text").focus(), "?": showHelp, j: () => moveInList(1), k: () => moveInList(-1), r: () => session && shown && refresh() };
  if (!(event.key in actions)) return undefined;
  event.preventDefault();
  return actions[event.key]();
}

function onClick(event) {
  const link = event.target.closest("a[href^='/']");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link.target || !findPage(new URL(link.href).pathname)) return; // the API and its pages are loaded anew
  event.preventDefault();
  go(link.getAttribute("href"));
}

document.addEventListener("click", onClick);
document.addEventListener("keydown", onKey);
window.addEventListener("popstate", open);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (!paused && session && shown) refresh();
  else if (!session && shown === null && failures) start();
});
at("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("search-text").value.trim();
  if (text && session) go(`/search?q=${encodeURIComponent(text)}`);
});
at("menu").addEventListener("click", () => {
  const isOpen = at("side").classList.toggle("open");
  at("menu").setAttribute("aria-expanded", String(isOpen));
});
at("live").addEventListener("click", () => {
  paused = !paused;
  showLive("ok");
  if (paused) clearTimeout(timer);
  else if (session && shown) refresh();
});
setInterval(() => {
  if (document.hidden) return;
  renewAges();
  const { since, kind } = at("live").dataset;
  if (since && kind !== "ok") at("live").title = `Last renewed at ${clock(new Date(Number(since)).toISOString()).textContent}`;
}, 1000);

start();
