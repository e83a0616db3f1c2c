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

function age(text) {
  const seconds = Math.round((Date.now() - Date.parse(text)) / 1000);
  const size = Math.abs(seconds);
  if (size < 2) return "now";
  const [count, unit] =
    size < 90 ? [size, "s"] : size < 5400 ? [Math.round(size / 60), "min"] : size < 129600 ? [Math.round(size / 3600), "h"] : [Math.round(size / 86400), "d"];
  return seconds < 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`;
}

const moment = (text) => make("time", { datetime: text, title: new Date(text).toLocaleString() }, age(text));
