// Quotas: what users use of their limits, edited by administrators; and the slots that are reserved.

import { get, post, put, queryOf, remove } from "./api.js";
import { make } from "./dom.js";
import { ago, askInDialog, bar, button, empty, facts, field, heading, input, jobUrl, number, pager, panel, select, state, table, toast } from "./parts.js";

const PERIODS = ["day", "week", "month"];

async function load({ query, may }) {
  if (!may("oversee")) return { own: await get("/api/usage") };
  const [page, tenant] = await Promise.all([get(`/api/users${queryOf({ cursor: query.get("cursor"), limit: 100 })}`), may("administer") ? get("/api/quotas") : null]);
  return { users: page.users, next: page.next, tenant };
}

function view({ own, users, next, tenant }, context) {
  if (own) return [heading("Your quota"), panel(null, facts(usageCells(own).map((cell, index) => [["Jobs at once", "Last hour", "Last day", "Money"][index], cell])))];
  const isAdmin = context.may("administer");
  const rows = users.map(({ usage, limits }) => ({
    key: usage.user,
    cells: [
      make("a", { href: `/jobs?user=${encodeURIComponent(usage.user)}` }, usage.user),
      ...usageCells(usage),
      Object.keys(limits).length ? make("span", { class: "tag" }, "own limits") : "",
      isAdmin ? button("Edit…", () => editUser(usage.user, limits, context), { class: "quiet tiny", "data-user": usage.user }) : "",
    ],
  }));
  const columns = [["User", "name"], ["Jobs at once"], ["Last hour"], ["Last day", "wide"], ["Money", "wide"], ["", "wide"], [""]];
  return [
    heading("Quotas", isAdmin ? make("span", { class: "row end" }, button("Limits of a user…", () => editUser("", {}, context), { class: "quiet", id: "set-user" })) : null),
    tenant ? tenantPanel(tenant, context) : null,
    rows.length ? table(columns, rows) : empty("Nothing is counted", "Usage is counted once there is a limit: for all users of the tenant, or for one."),
    pager(context.path, context.query, next),
  ];
}

function usageCells(usage) {
  const { limits, money } = usage;
  const costs = limits.costLimits ?? [];
  const spent = costs.length
    ? costs.map((one) => bar(money.spent[one.period] + money.held, one.amount, { unit: ` per ${one.period}` }))
    : make("span", { class: "soft" }, `${number(money.spent.month)} this month`);
  return [bar(usage.used, limits.maxConcurrent), bar(usage.lastHour, limits.jobsPerHour), bar(usage.lastDay, limits.jobsPerDay), spent];
}

const words = (limits) =>
  [
    limits.maxConcurrent === undefined ? null : `${number(limits.maxConcurrent)} at once`,
    limits.jobsPerHour === undefined ? null : `${number(limits.jobsPerHour)} per hour`,
    limits.jobsPerDay === undefined ? null : `${number(limits.jobsPerDay)} per day`,
    limits.costLimit ? `${number(limits.costLimit.amount)} per ${limits.costLimit.period} (${limits.costLimit.action})` : null,
  ]
    .filter(Boolean)
    .join(", ") || "no limit";

function tenantPanel(tenant, context) {
  return panel(
    null,
    make("div", { class: "head" }, make("h2", {}, "All users of the tenant"), button("Edit…", () => editTenant(tenant, context), { class: "quiet tiny", id: "edit-tenant" })),
    facts([
      ["Default", words(tenant.default)],
      ["Ceiling", words(tenant.ceiling)],
    ]),
  );
}

function limitFields(limits, prefix = "") {
  const whole = { type: "number", min: "0", step: "1", placeholder: "no limit" };
  const cost = limits.costLimit ?? {};
  return make(
    "div",
    { class: "grid" },
    field("Jobs at once", input(`${prefix}maxConcurrent`, limits.maxConcurrent, whole)),
    field("Jobs per hour", input(`${prefix}jobsPerHour`, limits.jobsPerHour, whole)),
    field("Jobs per day", input(`${prefix}jobsPerDay`, limits.jobsPerDay, whole)),
    field("Money", input(`${prefix}amount`, cost.amount, { type: "number", min: "0", step: "any", placeholder: "no limit" })),
    field("per", select(`${prefix}period`, PERIODS.map((one) => [one, one]), cost.period ?? "day")),
    field("if it is reached", select(`${prefix}action`, [["block", "block"], ["warn", "warn"]], cost.action ?? "block")),
  );
}

function limitsFrom(values, prefix = "") {
  const limits = {};
  for (const name of ["maxConcurrent", "jobsPerHour", "jobsPerDay"]) if (values[prefix + name] !== "") limits[name] = Number(values[prefix + name]);
  if (values[`${prefix}amount`] !== "") limits.costLimit = { amount: Number(values[`${prefix}amount`]), period: values[`${prefix}period`], action: values[`${prefix}action`] };
  return limits;
}

async function store(request, refresh) {
  try {
    await request();
    toast("The limits are in force.");
  } catch (error) {
    toast(error.message, "bad");
  }
  await refresh();
}

async function editUser(user, limits, { refresh }) {
  const values = await askInDialog({
    title: user ? `Limits of ${user}` : "Limits of a user",
    content: [user ? null : field("User", input("user", "", { required: true, maxlength: "100" })), limitFields(limits), make("p", { class: "hint" }, "They replace the default of the tenant. Without any, the default holds again.")],
    action: "Set",
  });
  if (!values) return;
  const path = `/api/quotas/${encodeURIComponent(user || values.user)}`;
  const chosen = limitsFrom(values);
  await store(() => (Object.keys(chosen).length ? put(path, chosen) : remove(path)), refresh);
}

async function editTenant(tenant, { refresh }) {
  const values = await askInDialog({
    title: "Limits of all users",
    content: [make("h3", {}, "Default, for users without their own"), limitFields(tenant.default, "default."), make("h3", {}, "Ceiling, for every user"), limitFields(tenant.ceiling, "ceiling.")],
    action: "Set",
  });
  if (values) await store(() => put("/api/quotas", { default: limitsFrom(values, "default."), ceiling: limitsFrom(values, "ceiling.") }), refresh);
}

async function release(id, { refresh }) {
  const agreed = await askInDialog({ title: "Release this slot?", content: [make("p", {}, "Whoever holds it can no longer use it for a job.")], action: "Release", danger: true });
  if (!agreed) return;
  try {
    await post(`/api/reservations/${id}/release`);
    toast("The slot is free.");
  } catch (error) {
    toast(error.message, "bad");
  }
  await refresh();
}

export const reservations = {
  title: () => "Reservations",
  load: ({ query, may }) => get(may("oversee") ? `/api/users/reservations${queryOf({ cursor: query.get("cursor"), limit: 500 })}` : "/api/reservations"),
  view({ reservations: slots, next }, context) {
    const rows = slots.map((one) => ({
      key: one.id,
      cells: [
        make("span", { class: "mono", title: one.id }, `…${one.id.slice(-12)}`),
        one.user,
        state(one.state),
        one.jobId ? make("a", { href: jobUrl(one.jobId), class: "mono" }, `…${one.jobId.slice(-12)}`) : "",
        ago(one.createdAt),
        ago(one.expiresAt),
        one.state === "active" && context.may("submit") ? button("Release…", () => release(one.id, context), { class: "quiet tiny", "data-action": "release" }) : "",
      ],
    }));
    const columns = [["Slot", "name"], ["User", "name"], ["State"], ["Job", "wide"], ["Reserved", "count wide"], ["Expires", "count"], [""]];
    return [
      heading("Reservations"),
      make("p", { class: "lead" }, "A reservation holds a slot of a user's quota until its deadline; a submission turns it into a job."),
      rows.length ? table(columns, rows) : empty("No slot is reserved", "A client reserves one with POST /api/reservations before it submits a job."),
      pager(context.path, context.query, next ?? null),
    ];
  },
};

export default { title: () => "Quotas", load, view };
