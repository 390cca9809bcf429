// Elements out of data. Text is only ever set as text: nothing that a run, a worker or a prompt says becomes markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

// A function among the attributes listens to the event of that name; null, undefined and false leave one out.
function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  build(document.createElementNS(SVG, tag), attributes, children);

// Writes only what differs: a node that is left alone keeps selection and focus, and is not read out again.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A value, or the word for one that is not known. `why` tells what the missing value means.
export function setValue(node, text, missing = "unknown", why = "not known") {
  const known = text !== null && text !== undefined;
  setText(node, known ? text : missing);
  node.classList.toggle("unknown", !known);
  if (known) node.removeAttribute("title");
  else if (node.title !== why) node.title = why;
}

// Makes the children of `parent` match `items`, each kept under its key, so that focus survives an update.
export function sync(parent, items, keyOf, make, update) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const wanted = new Set(items.map((item) => String(keyOf(item))));
  const kept = new Map();
  for (const child of Array.from(parent.children)) {
    if (wanted.has(child.dataset.key)) kept.set(child.dataset.key, child);
    else child.remove();
  }
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let node = kept.get(key);
    if (!node) {
      node = make(item);
      node.dataset.key = key;
    }
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
    update?.(node, item);
  }
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}
