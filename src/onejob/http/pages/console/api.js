// Requests to the API of this server. What is not a success is thrown as an ApiError.

const TIMEOUT_MS = 20000;
export const UNREACHABLE = 0; // the status of a request without a response

export class ApiError extends Error {
  constructor(status, detail, code = "") {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

async function send(method, path, { body, key, signal } = {}) {
  const headers = { "X-Onejob-Console": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = JSON.stringify(key);
  const signals = [AbortSignal.timeout(TIMEOUT_MS), ...(signal ? [signal] : [])];
  let response;
  let text;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: AbortSignal.any(signals), cache: "no-store" });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(UNREACHABLE, "This server does not answer.");
  }
  if (response.ok) return text;
  let problem = {};
  try {
    problem = JSON.parse(text);
  } catch (error) {
    problem.detail = `The server answered with status ${response.status}.`;
  }
  throw new ApiError(response.status, problem.detail, problem.error?.code);
}

export const getText = (path, options) => send("GET", path, options);
export const get = async (path, options) => JSON.parse(await send("GET", path, options));
export const post = async (path, body, options) => JSON.parse(await send("POST", path, { ...options, body }));
export const put = async (path, body) => JSON.parse(await send("PUT", path, { body }));
export const remove = async (path, options) => JSON.parse(await send("DELETE", path, options));

// The answer, or a fallback where there is no such thing.
export async function getOr(fallback, path, ask = get) {
  try {
    return await ask(path);
  } catch (error) {
    if (error.status === 404 || error.status === 403) return fallback;
    throw error;
  }
}

export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `console-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

export function queryOf(values) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  return query.size ? `?${query}` : "";
}
