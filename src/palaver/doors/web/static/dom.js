// Build elements. Every text becomes a text node: nothing here parses markup.

// Characters that are invisible or change the reading direction. They are shown as symbols or numbers.
const HIDDEN = new RegExp([
  String.raw`[\u0000-\u0008\u000b-\u001f\u007f-\u009f]`, // controls, without tab and newline
  String.raw`[\u00ad\u115f\u1160\u180e\u200b\u200c\u2060-\u206f\u3164\ufeff\uffa0]`, // without a width, or blank
  String.raw`[\u061c\u200e\u200f\u2028-\u202e\ufff9-\ufffb]`, // direction, lines and annotations
  String.raw`[\u{e0000}-\u{e007f}]`, // tags
  String.raw`(?<!\p{Extended_Pictographic}\ufe0f?)\u200d`, // joiners, except in an emoji
].join("|"), "gu");

const escaped = (char) => `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`;
const visible = (char) => (char < " " ? String.fromCodePoint(0x2400 + char.charCodeAt(0)) : escaped(char));

export function plain(text) {
  return String(text ?? "").replaceAll("\r\n", "\n").replace(HIDDEN, visible);
}

// For a text on which a person decides: unusual blanks, variant selectors and combining marks are shown as numbers too.
export function exact(text) {
  return plain(text).replace(/[^\n\t\u0020-\u007e]/gu, (char) => (
    /(?!\u2800)[\p{L}\p{N}\p{P}\p{S}]/u.test(char) ? char : escaped(char)
  ));
}

export const oneLine = (text) => plain(String(text ?? "").replace(/\s+/g, " "));

// Return a new element: el("p", { class: "x", onclick: f }, "text", child, null).
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") node[name] = value;
    else if (name.startsWith("data-")) node.setAttribute(name, value); // for code, not shown: kept exact
    else node.setAttribute(name, value === true ? "" : plain(value));
  }
  fill(node, ...children);
  return node;
}

export function fill(parent, ...children) {
  const nodes = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  parent.replaceChildren(...nodes.map((child) => (child instanceof Node ? child : document.createTextNode(plain(child)))));
  return parent;
}

export function button(label, onclick, props = {}) {
  return el("button", { type: "button", ...props, onclick }, label);
}

export const name = (text) => el("bdi", { class: "name" }, oneLine(text));
export const code = (text) => el("code", {}, oneLine(text));

// Times.

const twoDigits = (value) => String(value).padStart(2, "0");

// An imported event can have any 64-bit time, and `toISOString` throws for one that a Date cannot represent.
const isKnown = (time) => !Number.isNaN(time.getTime());

export function clock(ts) {
  const time = new Date(ts);
  if (!isKnown(time)) return "?";
  const hours = `${twoDigits(time.getHours())}:${twoDigits(time.getMinutes())}:${twoDigits(time.getSeconds())}`;
  const isToday = time.toDateString() === new Date().toDateString();
  return isToday ? hours : `${time.getFullYear()}-${twoDigits(time.getMonth() + 1)}-${twoDigits(time.getDate())} ${hours}`;
}

export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function time(ts) {
  if (!ts) return "";
  const made = new Date(ts);
  return el("time", { datetime: isKnown(made) ? made.toISOString() : null }, clock(ts));
}

// Return a text as nodes, with its hits marked. A hit is [start, end] in characters, as the bus counts them.
export function marked(text, hits) {
  const chars = [...String(text)];
  const parts = [];
  let done = 0;
  for (const [start, end] of hits ?? []) {
    if (start < done) continue;
    parts.push(oneLineKeepEnds(chars.slice(done, start).join("")), el("mark", {}, chars.slice(start, end).join("")));
    done = end;
  }
  parts.push(oneLineKeepEnds(chars.slice(done).join("")));
  return parts;
}

const oneLineKeepEnds = (text) => text.replace(/[\r\n\t]+/g, " ");

export function shell(words) {
  return words.map((word) => (/^[\w@%+=:,./#-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}
