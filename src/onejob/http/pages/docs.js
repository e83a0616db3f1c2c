"use strict";

const CREDENTIAL = "onejob.credential";
const at = (id) => document.getElementById(id);

// All content is inserted as text; nothing is parsed as markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// The credential is stored in this tab only, and deleted when the tab is closed.
const credential = {
  get: () => sessionStorage.getItem(CREDENTIAL) || "",
  set: (text) => (text ? sessionStorage.setItem(CREDENTIAL, text) : sessionStorage.removeItem(CREDENTIAL)),
  headers() {
    return this.get() ? { Authorization: `Bearer ${this.get()}` } : {};
  },
};

function credentialForm(onChange) {
  const form = at("credential");
  const field = at("credential-text");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    credential.set(field.value.trim());
    field.value = "";
    onChange();
  });
  at("credential-forget").addEventListener("click", () => {
    credential.set("");
    onChange();
  });
  return (needed) => {
    form.hidden = !needed && !credential.get();
    at("credential-ask").hidden = !needed;
    at("credential-kept").hidden = needed;
  };
}

const SHOWN_CHARS_MAX = 200000;
const DEPTH_MAX = 6;

let spec = null;
let secured = false;
const showCredential = credentialForm(() => showCredential(secured && !credential.get()));

async function begin() {
  try {
    spec = await (await fetch("/openapi.json", { cache: "no-store" })).json();
  } catch (error) {
    at("operations").replaceChildren(make("p", { class: "notice" }, "openapi.json cannot be loaded; is the server up?"));
    return;
  }
  const operations = [];
  for (const [path, methods] of Object.entries(spec.paths)) {
    for (const [method, operation] of Object.entries(methods)) operations.push({ path, method, operation, id: operation.operationId });
  }
  secured = operations.some((one) => one.operation.security);
  showCredential(secured && !credential.get());
  at("about").textContent = spec.info.description;
  at("version").textContent = `onejob ${spec.info.version}`;
  const tags = [...new Set(operations.map((one) => one.operation.tags[0]))];
  const groups = tags.map((tag) => [tag, operations.filter((one) => one.operation.tags[0] === tag)]);
  at("contents").replaceChildren(...groups.flatMap(([tag, all]) => [make("h2", {}, tag), ...all.map(entry)]));
  at("operations").replaceChildren(...groups.flatMap(([tag, all]) => [make("h2", { class: "tag" }, tag), ...all.map(panel)]));
  unfold();
}

function entry(one) {
  return make("a", { href: `#${one.id}` }, verb(one.method), make("span", {}, one.path));
}

const verb = (method) => make("span", { class: `method ${method}` }, method.toUpperCase());

function unfold() {
  const linked = location.hash && at(decodeURIComponent(location.hash.slice(1)));
  if (!linked) return;
  linked.open = true;
  linked.scrollIntoView();
}

function panel(one) {
  const details = make(
    "details",
    { class: "operation panel", id: one.id },
    make("summary", {}, verb(one.method), make("code", {}, one.path), make("span", { class: "soft small" }, one.operation.summary)),
  );
  // The content is made when it is first opened: few are.
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(inside(one));
  });
  return details;
}

function inside(one) {
  const { operation } = one;
  const fields = (operation.parameters || []).map((parameter) => field(one, parameter));
  const content = operation.requestBody && operation.requestBody.content["application/json"];
  const body = content ? make("textarea", { id: `${one.id}-body`, spellcheck: "false" }) : null;
  if (body) body.value = JSON.stringify(skeleton(content.schema), null, 2);
  const place = make("div", { "aria-live": "polite" });
  const form = make(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        send(one, fields, body, place);
      },
    },
    fields.length ? make("h3", {}, "Parameters") : null,
    make("div", { class: "fields" }, fields.map((each) => each.shown)),
    body ? [make("h3", {}, make("label", { for: body.id }, "Body")), body, folded("Schema of the body", make("pre", {}, shape(content.schema)))] : null,
    make("div", { class: "row" }, make("button", {}, "Send"), operation.description ? make("span", { class: "hint" }, operation.description) : null),
    place,
  );
  const responses = Object.entries(operation.responses).map(([status, response]) => {
    const [mediaType, media] = Object.entries(response.content || {})[0] || ["", null];
    return folded(`${status} ${response.description}`, make("pre", {}, media ? `${mediaType}\n${shape(media.schema)}` : "no body"));
  });
  return make("div", { class: "inside" }, form, make("h3", {}, "Responses"), make("div", { class: "answers" }, responses));
}

const folded = (title, ...content) => make("details", { class: "answers" }, make("summary", {}, title), ...content);

function field(one, parameter) {
  const id = `${one.id}-${parameter.in}-${parameter.name}`;
  const schema = resolved(parameter.schema);
  const input = schema.enum
    ? make("select", { id }, make("option", { value: "" }, ""), schema.enum.map((value) => make("option", { value }, value)))
    : make("input", { id, required: parameter.required, autocomplete: "off", spellcheck: "false", placeholder: limits(schema) || null });
  const fresh = parameter.in === "header"
    ? make("button", { type: "button", class: "quiet", onclick: () => (input.value = newKey()) }, "New key")
    : null;
  const name = parameter.required ? `${parameter.name} (${parameter.in}, required)` : `${parameter.name} (${parameter.in})`;
  const shown = make(
    "div",
    {},
    make("label", { for: id }, name),
    fresh ? make("div", { class: "with" }, input, fresh) : input,
    make("p", { class: "hint" }, parameter.description || ""),
  );
  return { parameter, input, shown };
}

function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function send(one, fields, body, place) {
  let path = one.path;
  const query = [];
  const headers = {};
  for (const { parameter, input } of fields) {
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value === "") continue;
    else if (parameter.in === "query") query.push(`${parameter.name}=${encodeURIComponent(input.value)}`);
    else headers[parameter.name] = input.value;
  }
  if (query.length) path += `?${query.join("&")}`;
  if (body) headers["Content-Type"] = "application/json";
  const method = one.method.toUpperCase();
  const data = body ? body.value : undefined;
  const stop = new AbortController();
  const line = make("p", { class: "small" }, "Waiting for the response…");
  const text = make("pre", { tabindex: "0" });
  const halt = make("button", { type: "button", class: "quiet", onclick: () => stop.abort() }, "Stop");
  place.replaceChildren(make("h3", {}, "Response"), make("div", { class: "row" }, line, halt), text, folded("As a curl command", make("pre", {}, command(method, path, headers, data))));
  const began = performance.now();
  try {
    const secret = one.operation.security ? credential.headers() : {};
    const response = await fetch(path, { method, headers: { ...headers, ...secret }, body: data, signal: stop.signal, cache: "no-store" });
    line.replaceChildren(make("span", { class: `state ${response.ok ? "ok" : "bad"}` }, `${response.status} ${response.statusText}`), ` in ${Math.round(performance.now() - began)} ms`);
    const lines = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
    place.append(folded("Headers", make("pre", {}, lines)));
    await showBody(response, text);
  } catch (error) {
    if (error.name === "AbortError") line.append(" (stopped)");
    else line.replaceChildren(make("span", { class: "state bad" }, "no response"), ` ${error.message}`);
  }
  halt.remove();
}

// An event stream has no end, so each piece is shown as it arrives.
async function showBody(response, place) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let all = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    all = (all + decoder.decode(value, { stream: true })).slice(-SHOWN_CHARS_MAX);
    place.textContent = all;
  }
  if (/json/.test(response.headers.get("content-type") || "")) {
    try {
      place.textContent = JSON.stringify(JSON.parse(all), null, 2);
    } catch (error) {
      place.textContent = all;
    }
  }
}

function command(method, path, headers, data) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = [`curl -i -X ${method} ${quoted(location.origin + path)}`];
  for (const [name, value] of Object.entries(headers)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (data !== undefined) parts.push(`-d ${quoted(data)}`);
  return parts.join(" \\\n  ");
}

function resolved(schema) {
  const name = schema && schema.$ref && schema.$ref.split("/").pop();
  return name ? spec.components.schemas[name] : schema || {};
}

// The required members and those of any type, with empty values: an example value might be sent by mistake.
function skeleton(schema, depth = 0) {
  const found = resolved(schema);
  if (depth > DEPTH_MAX) return null;
  if (found.enum) return found.enum[0];
  if (found.anyOf) return skeleton(found.anyOf[0], depth + 1);
  if (found.type === "object") {
    const required = found.required || [];
    const kept = Object.entries(found.properties || {}).filter(([name, each]) => required.includes(name) || Object.keys(each).length === 0);
    return Object.fromEntries(kept.map(([name, each]) => [name, skeleton(each, depth + 1)]));
  }
  if (found.type === "array") return [skeleton(found.items, depth + 1)];
  return { string: "", integer: 0, number: 0, boolean: false }[found.type] ?? (found.type ? null : {});
}

function shape(schema, depth = 0) {
  const found = resolved(schema);
  const space = "  ".repeat(depth + 1);
  if (depth > DEPTH_MAX) return "…";
  if (found.anyOf && !found.type) return found.anyOf.map((each) => shape(each, depth)).join(" or ");
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (found.type === "array") return `[${shape(found.items, depth)}]`;
  if (found.type === "object" && found.properties) {
    const required = found.required || [];
    const lines = Object.entries(found.properties).map(([name, each]) => {
      const fallback = each.default !== undefined && each.default !== null ? ` = ${JSON.stringify(each.default)}` : "";
      return `${space}${name}${required.includes(name) ? "" : "?"}: ${shape(each, depth + 1)}${fallback}`;
    });
    return `{\n${lines.join("\n")}\n${"  ".repeat(depth)}}`;
  }
  if (found.type === "object") return `{ name: ${found.additionalProperties ? shape(found.additionalProperties, depth) : "any JSON"} }`;
  const limit = limits(found);
  return (found.type || "any JSON") + (limit ? ` (${limit})` : "");
}

function limits(schema) {
  const { minimum, maximum, minLength, maxLength, format } = schema;
  if (minimum !== undefined && maximum !== undefined) return `${minimum} to ${maximum}`;
  if (maxLength !== undefined) return `${minLength || 0} to ${maxLength} characters`;
  return format || "";
}

window.addEventListener("hashchange", unfold);
begin();
