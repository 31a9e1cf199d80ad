// Completion of @names in a field. The list is below the field and never covers anything.
//
// ↑ ↓ choose, Enter or Tab insert, Esc closes. An input is a combobox; a textarea keeps its own role.

import { el, fill, name } from "./dom.js";

const LIMIT = 8;
let lists = 0;

export class Completion {
  // `names()` returns what can be completed. With `isEveryWord` also words without @.
  constructor(field, names, { isEveryWord = false } = {}) {
    lists += 1;
    this.field = field;
    this.names = names;
    this.word = isEveryWord ? /(^|\s)@?(\S*)$/u : /(^|[\s(,;:"'])@([\p{L}\p{N}_.-]*)$/u;
    this.found = [];
    this.at = 0;
    this.list = el("ul", { class: "options", role: "listbox", id: `options${lists}`, "aria-label": "Names", hidden: true,
      onmousedown: (event) => event.preventDefault(), onclick: (event) => this.clicked(event) });
    if (field.tagName === "INPUT") {
      field.setAttribute("role", "combobox");
      field.setAttribute("aria-expanded", "false");
    }
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", this.list.id);
    field.addEventListener("input", () => this.look());
    field.addEventListener("click", () => this.look());
    field.addEventListener("blur", () => this.close());
    field.addEventListener("keydown", (event) => this.pressed(event));
  }

  // The word before the cursor: where it begins, and its text.
  current() {
    const { selectionStart, selectionEnd, value } = this.field;
    const match = selectionStart === selectionEnd ? this.word.exec(value.slice(0, selectionStart)) : null;
    return match && { start: match.index + match[1].length, end: selectionStart, text: match[2].toLowerCase() };
  }

  look() {
    const word = this.current();
    const all = word && (word.text || this.field.value[word.start] === "@") ? this.names() : [];
    const isWhole = all.includes(word?.text); // A complete name comes first: Tab must not choose a longer one.
    this.found = [
      ...(isWhole ? [word.text] : []),
      ...all.filter((one) => one !== word.text && one.startsWith(word.text)),
    ].slice(0, LIMIT);
    if (this.found.length === 1 && this.found[0] === word.text) this.found = [];
    this.at = 0;
    this.draw();
  }

  draw() {
    const isOpen = this.found.length > 0;
    this.list.hidden = !isOpen;
    fill(this.list, this.found.map((one, place) => el("li", {
      role: "option",
      id: `${this.list.id}-${place}`,
      "aria-selected": String(place === this.at),
      "data-at": place,
    }, name(`@${one}`))));
    if (this.field.getAttribute("role") === "combobox") this.field.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.field.setAttribute("aria-activedescendant", `${this.list.id}-${this.at}`);
    else this.field.removeAttribute("aria-activedescendant");
  }

  close() {
    this.found = [];
    this.draw();
  }

  pressed(event) {
    if (this.found.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      this.at = (this.at + step + this.found.length) % this.found.length;
      this.draw();
    } else if ((event.key === "Enter" || event.key === "Tab") && !event.shiftKey) {
      this.insert(this.found[this.at]);
    } else if (event.key === "Escape") {
      this.close();
    } else {
      if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") this.close();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  clicked(event) {
    const option = event.target.closest("[data-at]");
    if (option) this.insert(this.found[Number(option.dataset.at)]);
  }

  insert(chosen) {
    const word = this.current();
    this.close();
    if (!word) return;
    this.field.setRangeText(`@${chosen} `, word.start, word.end, "end");
    this.field.focus();
  }
}
