// Numbers, times and JSON as people read them.

import { make } from "./dom.js";

const SECOND = 1000;
const UNITS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

export const number = (value) => Number(value).toLocaleString();
export const counted = (count, noun, plural = `${noun}s`) => `${number(count)} ${count === 1 ? noun : plural}`;

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const [size, unit] = UNITS.find(([size], index) => seconds >= size * (index === 3 ? 1 : 1.5)) ?? UNITS[3];
  return `${Math.round(seconds / size)} ${unit}`;
}

export function age(text, now = Date.now()) {
  const seconds = (now - Date.parse(text)) / SECOND;
  if (Math.abs(seconds) < 1.5) return "now";
  const size = duration(Math.max(1, Math.round(Math.abs(seconds)))).replace(".0", "");
  return seconds < 0 ? `in ${size}` : `${size} ago`;
}

const utc = (text) => `${new Date(text).toISOString().replace("T", " ").replace(/\.\d+Z/, "")} UTC`;

function local(text) {
  const time = new Date(text);
  const isToday = time.toDateString() === new Date().toDateString();
  const day = isToday ? {} : { day: "numeric", month: "short", year: time.getFullYear() === new Date().getFullYear() ? undefined : "numeric" };
  return time.toLocaleString(undefined, { ...day, hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

// How long ago, renewed every second; the reader's time and UTC on hover.
export const ago = (text) => (text ? make("time", { datetime: text, title: `${local(text)} · ${utc(text)}`, "data-age": "" }, age(text)) : none());

// The time in the reader's zone; UTC on hover.
export const clock = (text) => (text ? make("time", { datetime: text, title: utc(text) }, local(text)) : none());

export const none = (text = "–") => make("span", { class: "soft" }, text);

export function renewAges() {
  for (const time of document.querySelectorAll("time[data-age]")) {
    const text = age(time.dateTime);
    if (time.textContent !== text) time.textContent = text;
  }
}

// JSON indented as text, because the numbers of an input may be more exact than those of a browser.
export function indentJson(text) {
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  return text.replace(/"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|[{}[\],:]|\s+/g, (token) => {
    if (/^\s/.test(token)) return "";
    if (/^[{[]./s.test(token)) return token[0] + token.at(-1);
    if (token === "{" || token === "[") {
      depth += 1;
      return token + line();
    }
    if (token === "}" || token === "]") {
      depth -= 1;
      return line() + token;
    }
    if (token === ",") return `,${line()}`;
    return token === ":" ? ": " : token;
  });
}
