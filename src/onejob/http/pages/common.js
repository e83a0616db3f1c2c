"use strict";

const CREDENTIAL = "onejob.credential";
const at = (id) => document.getElementById(id);

// Everything that comes from outside goes in as text; nothing is ever parsed as markup.
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// The credential lives in this tab alone and goes with it.
const credential = {
  get: () => sessionStorage.getItem(CREDENTIAL) || "",
  set: (text) => (text ? sessionStorage.setItem(CREDENTIAL, text) : sessionStorage.removeItem(CREDENTIAL)),
  headers() {
    return this.get() ? { Authorization: `Bearer ${this.get()}` } : {};
  },
};

function credentialForm(then) {
  const form = at("credential");
  const field = at("credential-text");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    credential.set(field.value.trim());
    field.value = "";
    then();
  });
  at("credential-forget").addEventListener("click", () => {
    credential.set("");
    then();
  });
  return (wanted) => {
    form.hidden = !wanted && !credential.get();
    at("credential-ask").hidden = !wanted;
    at("credential-kept").hidden = wanted;
  };
}

function age(text) {
  const seconds = Math.round((Date.now() - Date.parse(text)) / 1000);
  const size = Math.abs(seconds);
  if (size < 2) return "now";
  const [count, unit] =
    size < 90 ? [size, "s"] : size < 5400 ? [Math.round(size / 60), "min"] : size < 129600 ? [Math.round(size / 3600), "h"] : [Math.round(size / 86400), "d"];
  return seconds < 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`;
}

const moment = (text) => make("time", { datetime: text, title: new Date(text).toLocaleString() }, age(text));
