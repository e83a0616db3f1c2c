// The clients that number their submissions.

import { get, queryOf } from "./api.js";
import { make } from "./dom.js";
import { ago, empty, heading, number, pager, table } from "./parts.js";

const load = ({ query }) => get(`/api/clients${queryOf({ cursor: query.get("cursor"), limit: 100 })}`);

function view({ clients, next }, { path, query }) {
  const rows = clients.map((one) => ({
    key: `${one.scope} ${one.clientId}`,
    cells: [make("b", { class: "mono" }, one.clientId), one.scope, number(one.lastCommittedSequence), one.owner, [ago(one.lastSeen), one.isIdle ? make("span", { class: "tag" }, "idle") : null]],
  }));
  const columns = [["Client", "name"], ["Scope", "name"], ["Last number", "count"], ["Owner", "name wide"], ["Last seen", "count"]];
  return [
    heading("Sequences"),
    make("p", { class: "lead" }, "A client that numbers its submissions goes on after the last committed number. A gap or a number that was used for something else is refused."),
    rows.length ? table(columns, rows) : empty("No client numbers its submissions", "A client begins with POST /api/clients/{client}/jobs and the number 1."),
    pager(path, query, next),
  ];
}

export default { title: () => "Sequences", load, view };
