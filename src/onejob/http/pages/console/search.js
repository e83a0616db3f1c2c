// What a search found: a job by its id, or the same key in several scopes. One result is opened at once.

import { get } from "./api.js";
import { make } from "./dom.js";
import { jobsTable } from "./jobs.js";
import { keysTable } from "./key.js";
import { empty, heading, jobUrl, keyUrl } from "./parts.js";

async function load({ query, go }) {
  const text = query.get("q") ?? "";
  const found = text ? await get(`/api/search?q=${encodeURIComponent(text)}`) : { job: null, keys: [] };
  if (found.job && !found.keys.length) go(jobUrl(found.job.id), { replace: true });
  else if (!found.job && found.keys.length === 1) go(keyUrl(found.keys[0]), { replace: true });
  return { text, ...found };
}

function view({ text, job, keys }, context) {
  return [
    heading(`Found for “${text}”`),
    job ? jobsTable([job], context) : null,
    keys.length ? keysTable(keys) : null,
    job || keys.length
      ? null
      : empty(
          "Nothing found",
          "There is no job with this id, and no key of this name in the scope of a known job type.",
          make("p", {}, "A key in a scope of its own has the address ", make("code", {}, `/keys/SCOPE/${encodeURIComponent(text)}`), "; a key is forgotten when its window ends."),
        ),
  ];
}

export default { title: ({ query }) => `Search ${query.get("q") ?? ""}`, load, view, every: 15000 };
