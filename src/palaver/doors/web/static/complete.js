// Completion of @names in a field. The list is below the field and never covers anything.
//
// ↑ ↓ choose, Enter or Tab insert, Esc closes. An input is a combobox; a textarea keeps its own role.

import { el, fill, name } from "./dom.js";

const LIMIT = 8;
let lists = 0;

export class Completion {
  // `names()` returns the names to complete. With `isEveryWord`, words without @ are completed too.
  constructor(field, names, { isEveryWord = false } = {}) {
    lists += 1;
    this.field = field;
    this.names = names;
    this.pattern = isEveryWord ? /(^|\s)@?(\S*)$/u : /(^|[\s(,;:"'])@([\p{L}\p{N}_.-]*)$/u;
    this.found = [];
    this.index = 0;
    this.list = el("ul", { class: "options", role: "listbox", id: `options${lists}`, "aria-label": "Names", hidden: true,
      // Otherwise the field loses the focus, and the list is closed before the click arrives.
      onmousedown: (event) => event.preventDefault(), onclick: (event) => this.clicked(event) });
    if (field.tagName === "INPUT") {
      field.setAttribute("role", "combobox");
      field.setAttribute("aria-expanded", "false");
    }
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", this.list.id);
    field.addEventListener("input", () => this.update());
    field.addEventListener("click", () => this.update());
    field.addEventListener("blur", () => this.close());
    field.addEventListener("keydown", (event) => this.pressed(event));
  }

  // Return start, end and text of the word before the cursor, or null without a word.
  currentWord() {
    const { selectionStart, selectionEnd, value } = this.field;
    const match = selectionStart === selectionEnd ? this.pattern.exec(value.slice(0, selectionStart)) : null;
    return match && { start: match.index + match[1].length, end: selectionStart, text: match[2].toLowerCase() };
  }

  update() {
    const word = this.currentWord();
    const all = word && (word.text || this.field.value[word.start] === "@") ? this.names() : [];
    const isWhole = all.includes(word?.text); // A complete name is first: Tab must not choose a longer one.
    this.found = [
      ...(isWhole ? [word.text] : []),
      ...all.filter((one) => one !== word.text && one.startsWith(word.text)),
    ].slice(0, LIMIT);
    if (this.found.length === 1 && this.found[0] === word.text) this.found = [];
    this.index = 0;
    this.draw();
  }

  draw() {
    const isOpen = this.found.length > 0;
    this.list.hidden = !isOpen;
    fill(this.list, this.found.map((one, index) => el("li", {
      role: "option",
      id: `${this.list.id}-${index}`,
      "aria-selected": String(index === this.index),
      "data-index": index,
    }, name(`@${one}`))));
    if (this.field.getAttribute("role") === "combobox") this.field.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.field.setAttribute("aria-activedescendant", `${this.list.id}-${this.index}`);
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
      this.index = (this.index + step + this.found.length) % this.found.length;
      this.draw();
    } else if ((event.key === "Enter" || event.key === "Tab") && !event.shiftKey) {
      this.insert(this.found[this.index]);
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
    const option = event.target.closest("[data-index]");
    if (option) this.insert(this.found[Number(option.dataset.index)]);
  }

  insert(chosen) {
    const word = this.currentWord();
    this.close();
    if (!word) return;
    this.field.setRangeText(`@${chosen} `, word.start, word.end, "end");
    this.field.focus();
  }
}
