// Log: all events, with the filters of `pal events`, full-text search, and a jump to a time or a seq.

import { el, fill, button, name, time, marked, oneLine } from "./dom.js";
import { PagedList } from "./lists.js";
import { labelled, ledger, showInfo, facts } from "./parts.js";

const FILTERS = [
  ["types", "Type"],
  ["agents", "Agent"],
  ["senders", "From"],
  ["to", "To"],
  ["threads", "Thread"],
  ["rooms", "Room"],
  ["intents", "Intent"],
];

export function open(app) {
  const inputs = Object.fromEntries(FILTERS.map(([key]) => [
    key,
    el("input", { type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "none" }),
  ]));
  const search = el("input", { type: "search", autocomplete: "off" });
  const since = el("input", { type: "datetime-local", step: 1 });
  const until = el("input", { type: "datetime-local", step: 1 });
  const jump = el("input", { type: "text", inputmode: "numeric", autocomplete: "off", placeholder: "42" });
  const status = el("p", { class: "hint" });
  let query = {};
  let isFiltered = false;
  let loads = 0;

  const list = new PagedList("Events", {
    class: "log",
    key: (row) => String(row.seq),
    empty: "No events.",
    onOpen: (key) => show(key),
    row: (row) => [
      el("span", { class: "seq" }, `#${row.seq}`), " ", time(row.ts), " ",
      el("span", { class: "chip" }, oneLine(row.type)), " ",
      el("b", {}, name(row.sender)), row.to?.length ? [" → ", el("bdi", {}, oneLine(row.to.join(" ")))] : null, " ",
      el("span", { class: "words" }, marked(row.text ?? "", row.hits)),
    ],
    older: (seq, limit) => page({ before: seq, limit }),
    newer: (seq, limit) => page({ after: seq, limit }),
  });

  const page = (more) => app.ask({ what: "log", ...query, ...more });

  function read() {
    const several = (text) => text.split(/[\s,]+/).filter(Boolean);
    query = {};
    for (const [key] of FILTERS) if (inputs[key].value.trim()) query[key] = several(inputs[key].value);
    if (search.value.trim()) query.search = search.value.trim();
    if (since.value) query.since = new Date(since.value).getTime();
    if (until.value) query.until = new Date(until.value).getTime();
    isFiltered = Object.keys(query).length > 0;
  }

  async function load() {
    read();
    loads += 1;
    const thisLoad = loads;
    try {
      const got = await page({ limit: 100 });
      if (thisLoad !== loads) return;
      list.begin(got);
      fill(status, isFiltered
        ? `${got.rows.length}${got.has_more ? " or more" : ""} events match; new ones are added.`
        : `Up to #${got.seq}. New events are added.`);
    } catch (error) {
      fill(status, oneLine(error.message));
    }
  }

  async function goTo(text) {
    loads += 1;
    const thisLoad = loads;
    try {
      const wanted = text.trim().replace(/^#/, "");
      const isSeq = /^\d{1,15}$/.test(wanted);
      const ts = isSeq ? 0 : new Date(text).getTime();
      if (!isSeq && Number.isNaN(ts)) {
        fill(status, "Enter a seq, such as 42, or a time, such as 2026-03-01 14:30.");
        return;
      }
      const seq = isSeq ? Number(wanted) : (await app.ask({ what: "seq", ts })).found;
      const [above, below] = await Promise.all([
        page({ before: seq, limit: 50 }),
        page({ after: Math.max(0, seq - 1), limit: 50 }),
      ]);
      if (thisLoad !== loads) return;
      const rows = [...above.rows, ...below.rows];
      const at = below.rows[0]?.seq ?? above.rows.at(-1)?.seq ?? null;
      list.begin({ rows, has_more: above.has_more }, { hasNewer: Boolean(below.has_more), at });
      fill(status, at === null ? "There are no events." : `At #${at}.`);
      list.root.focus();
    } catch (error) {
      fill(status, oneLine(error.message));
    }
  }

  function show(key) {
    const row = list.row(key);
    if (!row) return;
    if (row.type === "message" || row.type.startsWith("task.")) {
      ledger(app, row.seq);
    } else {
      showInfo(`Event #${row.seq}`, [
        facts([
          ["Type", row.type],
          ["From", row.sender],
          ["To", row.to?.join(" ")],
          ["Time", time(row.ts)],
          ["Room", row.room],
          ["Thread", row.thread],
        ]),
        el("div", { class: "text boxed" }, row.text ?? ""),
      ]);
    }
  }

  function changed(change) {
    if (change.isAll) {
      if (list.isAtEnd || list.rows.length === 0) load();
      else list.hasNewer = true;
      return;
    }
    if (!change.events?.length) return;
    if (!isFiltered) list.append(change.events);
    else if (list.isAtEnd) loadNew();
  }

  let isBusy = false;
  async function loadNew() {
    if (isBusy) return;
    isBusy = true;
    const thisLoad = loads;
    try {
      const got = await page({ after: list.rows.at(-1)?.seq ?? 0, limit: 100 });
      if (thisLoad === loads) list.append(got.rows);
    } catch {
      // The next change tries again.
    } finally {
      isBusy = false;
    }
  }

  const root = el("div", { class: "single" }, el("h2", {}, "Log"),
    el("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); load(); } },
      el("div", { class: "line" }, labelled("Search", search), el("button", { type: "submit", class: "primary" }, "Show"),
        labelled("Go to seq or time", jump),
        button("Go", () => goTo(jump.value)),
        button("Newest", () => { jump.value = ""; load(); })),
      el("details", {}, el("summary", {}, "Filters"),
        el("div", { class: "line" },
          FILTERS.map(([key, label]) => labelled(label, inputs[key])),
          labelled("Since", since),
          labelled("Until", until)))),
    status, list.root);
  jump.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); goTo(jump.value); } });
  load();
  return {
    root, list, changed, filter: search,
    show: () => app.detail(false),
    keys: [
      ["Enter", "show the event", null],
      ["/", "search", () => search.focus()],
      ["g", "go to a seq or a time", () => jump.focus()],
    ],
  };
}
