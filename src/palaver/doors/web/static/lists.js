// Long lists. Only the rows near the visible ones are in the document: at most 120 for each list.

import { el, fill } from "./dom.js";

const EXTRA_ROWS = 12;
const LIMIT_ROWS = 120;
const PAGE_ROWS = 50;
let lists = 0;

class KeyedList {
  constructor(label, options) {
    lists += 1;
    this.id = `list${lists}`;
    this.options = options;
    this.cursor = null;
    this.chosen = new Set();
    this.body = el("div", { role: "presentation", class: "rows" });
    this.root = el("div", {
      class: `list ${options.class ?? ""}`,
      role: "listbox",
      tabindex: 0,
      "aria-label": label,
      "aria-multiselectable": options.canChoose ? "true" : null,
      onkeydown: (event) => this.pressed(event),
      onclick: (event) => this.clicked(event),
    }, this.body);
  }

  rowProps(item, index, total) {
    const key = this.options.key(item);
    const isCursor = key === this.cursor;
    const isChosen = this.options.canChoose ? this.chosen.has(key) : isCursor;
    return {
      id: `${this.id}-${index}`,
      role: "option",
      class: `row${isCursor ? " cursor" : ""}${isChosen && this.options.canChoose ? " chosen" : ""}`,
      "data-key": key,
      "aria-selected": String(isChosen),
      "aria-posinset": total === undefined ? null : index + 1,
      "aria-setsize": total,
    };
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      this.move(steps[event.key]);
    } else if (event.key === "Enter" && this.cursor !== null) {
      this.options.onOpen?.(this.cursor);
    } else if (event.key === " " && this.options.canChoose && this.cursor !== null) {
      this.choose(this.cursor);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  clicked(event) {
    const row = event.target.closest("[data-key]");
    if (row === null || getSelection()?.toString()) return; // the end of selecting a text is a click too
    this.cursor = row.dataset.key;
    if (this.options.canChoose && (event.ctrlKey || event.metaKey || event.shiftKey || event.target.closest(".pick"))) {
      this.choose(this.cursor);
      return;
    }
    this.draw();
    this.options.onOpen?.(this.cursor);
  }

  choose(key) {
    if (!this.chosen.delete(key)) this.chosen.add(key);
    this.draw();
    this.options.onChosen?.();
  }

  markCursor() {
    const row = this.body.querySelector(".cursor");
    if (row) this.root.setAttribute("aria-activedescendant", row.id);
    else this.root.removeAttribute("aria-activedescendant");
  }
}

// A list of rows of the same height, from an array in memory.
export class FixedList extends KeyedList {
  constructor(label, options) {
    super(label, options);
    this.items = [];
    this.isDrawDue = false;
    this.root.addEventListener("scroll", () => { this.drawLater(); this.nearEnd(); }, { passive: true });
    new ResizeObserver(() => this.drawLater()).observe(this.root);
  }

  set(items) {
    this.items = items;
    const keys = this.options.canChoose ? new Set(items.map(this.options.key)) : null;
    if (keys) for (const key of this.chosen) if (!keys.has(key)) this.chosen.delete(key);
    this.drawLater();
  }

  drawLater() {
    if (this.isDrawDue) return;
    this.isDrawDue = true;
    requestAnimationFrame(() => { this.isDrawDue = false; this.draw(); });
  }

  height() {
    return parseFloat(getComputedStyle(this.root).getPropertyValue("--row")) || 56;
  }

  draw() {
    const height = this.height();
    const first = Math.max(0, Math.floor(this.root.scrollTop / height) - EXTRA_ROWS);
    const count = Math.min(LIMIT_ROWS, Math.ceil(this.root.clientHeight / height) + 2 * EXTRA_ROWS);
    const shown = this.items.slice(first, first + count);
    this.body.style.height = `${this.items.length * height}px`;
    fill(
      this.body,
      shown.map((item, index) => {
        const row = el("div", this.rowProps(item, first + index, this.items.length), this.options.row(item));
        row.style.top = `${(first + index) * height}px`;
        return row;
      }),
      this.items.length === 0 && this.options.empty
        ? el("div", { role: "option", "aria-selected": "false", class: "empty" }, this.options.empty)
        : null,
    );
    this.markCursor();
  }

  nearEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.root;
    if (scrollHeight - scrollTop - clientHeight < 500) this.options.onEnd?.();
  }

  index() {
    return this.items.findIndex((item) => this.options.key(item) === this.cursor);
  }

  move(steps) {
    if (this.items.length === 0) return;
    const now = this.index();
    const isFirst = steps === -Infinity || (steps > 0 && steps !== Infinity);
    const next = now < 0 ? (isFirst ? 0 : this.items.length - 1) : now + steps;
    this.show(Math.min(this.items.length - 1, Math.max(0, next)));
    if (steps > 0) this.nearEnd();
  }

  show(index) {
    const height = this.height();
    this.cursor = this.options.key(this.items[index]);
    const top = index * height;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + height > this.root.scrollTop + this.root.clientHeight) {
      this.root.scrollTop = top + height - this.root.clientHeight;
    }
    this.draw();
    this.options.onMove?.(this.cursor);
  }
}

// A list of rows of any height, read in pages in both directions. `older(seq, limit)` and `newer(seq, limit)` return
// {rows, has_more}.
export class PagedList extends KeyedList {
  constructor(label, options) {
    super(label, options);
    this.clear();
    this.root.classList.add("paged");
    this.isFollowing = true;
    this.root.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => { if (this.isFollowing) this.toEnd(); }).observe(this.root);
  }

  toEnd() {
    this.root.scrollTop = this.root.scrollHeight;
  }

  clear() {
    this.rows = [];
    this.nodes = new Map();
    this.hasOlder = false;
    this.hasNewer = false;
    this.isBusy = false;
    this.generation = (this.generation ?? 0) + 1;
    this.cursor = null;
    fill(this.body);
    this.markCursor();
  }

  // Show a page: scroll to the row with the seq `at`, or else to the end.
  begin(page, { hasNewer = false, at = null } = {}) {
    this.clear();
    this.rows = page.rows;
    this.hasOlder = page.has_more ?? false;
    this.hasNewer = hasNewer;
    fill(
      this.body,
      this.rows.map((row) => this.node(row)),
      this.rows.length === 0
        ? el("div", { role: "option", "aria-selected": "false", class: "empty" }, this.options.empty ?? "Nothing here.")
        : null,
    );
    if (at !== null) this.select(String(at));
    else this.toEnd();
    this.isFollowing = at === null;
    this.options.onShown?.(this.rows);
  }

  node(row) {
    const node = el("div", this.rowProps(row, row.seq), this.options.row(row));
    this.nodes.set(this.options.key(row), node);
    return node;
  }

  get isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.root;
    return !this.hasNewer && scrollHeight - scrollTop - clientHeight < 60;
  }

  // Add new rows of the log if the end of the list is visible. Otherwise they are read when the end is reached.
  append(rows) {
    const last = this.rows.at(-1)?.seq ?? 0;
    const added = rows.filter((row) => row.seq > last);
    if (added.length === 0) return;
    if (this.hasNewer || (!this.isAtEnd && this.rows.length >= LIMIT_ROWS)) {
      this.hasNewer = true;
      return;
    }
    const isFollowing = this.isAtEnd;
    this.addBelow(added.slice(-LIMIT_ROWS), isFollowing);
    if (isFollowing) this.toEnd();
    this.options.onShown?.(added);
  }

  replace(row) {
    const key = this.options.key(row);
    const index = this.rows.findIndex((one) => this.options.key(one) === key);
    if (index < 0) return;
    const old = this.nodes.get(key);
    this.rows[index] = row;
    old.replaceWith(this.node(row));
    this.markCursor();
  }

  addBelow(rows, isAtEnd = false) {
    this.body.querySelector(".empty")?.remove();
    this.rows.push(...rows);
    this.body.append(...rows.map((row) => this.node(row)));
    const over = this.rows.length - LIMIT_ROWS;
    if (over > 0) {
      const before = isAtEnd ? 0 : this.root.scrollHeight;
      for (const row of this.rows.splice(0, over)) this.drop(row);
      this.hasOlder = true;
      if (!isAtEnd) this.root.scrollTop -= before - this.root.scrollHeight;
    }
  }

  addAbove(rows) {
    const before = this.root.scrollHeight;
    this.rows.unshift(...rows);
    this.body.prepend(...rows.map((row) => this.node(row)));
    this.root.scrollTop += this.root.scrollHeight - before;
    const over = this.rows.length - LIMIT_ROWS;
    if (over > 0) {
      for (const row of this.rows.splice(-over)) this.drop(row);
      this.hasNewer = true;
    }
  }

  drop(row) {
    const key = this.options.key(row);
    this.nodes.get(key)?.remove();
    this.nodes.delete(key);
  }

  scrolled() {
    this.isFollowing = this.isAtEnd;
    if (this.root.scrollTop < 300) this.load("older");
    if (this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight < 300) this.load("newer");
  }

  async load(direction) {
    const isOlder = direction === "older";
    if (this.isBusy || this.rows.length === 0 || !(isOlder ? this.hasOlder : this.hasNewer)) return;
    this.isBusy = true;
    const { generation } = this;
    try {
      const page = await this.options[direction](isOlder ? this.rows[0].seq : this.rows.at(-1).seq, PAGE_ROWS);
      if (generation !== this.generation) return;
      if (isOlder) {
        this.hasOlder = page.has_more ?? false;
        this.addAbove(page.rows);
      } else {
        this.hasNewer = page.has_more ?? false;
        this.addBelow(page.rows);
        this.options.onShown?.(page.rows);
      }
    } catch {
      // The bus is not reachable; the next scroll tries again.
    } finally {
      if (generation === this.generation) this.isBusy = false;
    }
  }

  draw() {
    for (const [key, node] of this.nodes) {
      const isCursor = key === this.cursor;
      node.classList.toggle("cursor", isCursor);
      node.setAttribute("aria-selected", String(isCursor));
    }
    this.markCursor();
  }

  select(key) {
    this.cursor = key;
    this.draw();
    this.nodes.get(key)?.scrollIntoView({ block: "nearest" });
    this.options.onMove?.(key);
  }

  async move(steps) {
    if (this.rows.length === 0) return;
    const now = this.rows.findIndex((row) => this.options.key(row) === this.cursor);
    const start = now < 0 ? (steps < 0 ? this.rows.length : this.rows.length - 2) : now;
    if (start + steps < 0) await this.load("older");
    if (start + steps >= this.rows.length) await this.load("newer");
    const current = now < 0 ? start : this.rows.findIndex((row) => this.options.key(row) === this.cursor);
    const next = Math.min(this.rows.length - 1, Math.max(0, (current < 0 ? start : current) + steps));
    this.select(this.options.key(this.rows[next]));
  }

  row(key) {
    return this.rows.find((row) => this.options.key(row) === key);
  }
}
