// Elements, and how a page is renewed in place. All content is inserted as text; nothing is parsed as markup.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = Symbol("handlers");
const VARIABLES = Symbol("variables");

export const at = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) listen(element, name.slice(2), value);
    else if (name === "variables") setVariables(element, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A handler is kept beside its element, so that renewing the page can replace it.
function listen(element, type, handler) {
  const handlers = (element[HANDLERS] ??= {});
  if (!(type in handlers)) element.addEventListener(type, (event) => element[HANDLERS][type]?.(event));
  handlers[type] = handler;
}

// Custom properties of CSS are set by script, because the policy of the page forbids style attributes.
function setVariables(element, variables) {
  element[VARIABLES] = variables;
  for (const [name, value] of Object.entries(variables)) element.style.setProperty(`--${name}`, value);
}

// Renew the children of a place: elements that stay keep their focus, selection, scroll position and what was typed.
export function renew(place, fresh) {
  const nodes = fresh.flat(9).filter((node) => node !== null && node !== undefined && node !== false);
  const keyed = new Map([...place.children].filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]));
  let next = place.firstChild;
  for (const node of nodes) {
    const key = node.dataset?.key;
    const old = key ? keyed.get(key) : next && !next.dataset?.key ? next : null;
    if (!old || old.nodeName !== node.nodeName) {
      place.insertBefore(node, next);
      continue;
    }
    keyed.delete(key);
    if (old === next) next = next.nextSibling;
    else place.insertBefore(old, next);
    renewNode(old, node);
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
}

function renewNode(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "style" && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name === "style" || old.getAttribute(name) === value) continue;
    old.setAttribute(name, value);
    if (name === "value" && old !== document.activeElement) old.value = value;
  }
  setVariables(old, fresh[VARIABLES] ?? {});
  for (const type of Object.keys(old[HANDLERS] ?? {})) old[HANDLERS][type] = undefined;
  for (const [type, handler] of Object.entries(fresh[HANDLERS] ?? {})) listen(old, type, handler);
  if (old.dataset.keep === undefined) renew(old, [...fresh.childNodes]);
}
