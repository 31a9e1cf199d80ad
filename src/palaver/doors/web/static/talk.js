// Talk: the list of conversations, and the messages of one with the state of each recipient.

import { el, fill, button, oneLine } from "./dom.js";
import { FixedList, PagedList } from "./lists.js";
import { Composer, ledger, message, since, labelled } from "./parts.js";

const KINDS = { room: "room", thread: "thread", pair: "direct", all: "broadcasts" };

export function open(app) {
  const detail = el("section", { class: "detail talk", "aria-label": "Messages", tabindex: 0 });
  const filter = el("input", { type: "search", autocomplete: "off", oninput: () => search() });
  const withOutside = el("input", { type: "checkbox", checked: false, onchange: () => show(opened) });
  const outsideField = el("label", { class: "check" }, withOutside, "also messages of members outside the room");
  const title = el("h2", {});
  let opened = "";
  let found = null;
  let isLoading = false;
  let hasMore = true;

  const list = new FixedList("Conversations", {
    class: "two",
    key: (row) => row.key,
    empty: "No conversations.",
    onOpen: (key) => app.go("talk", key),
    onEnd: () => loadMore(),
    row: (row) => [
      el("p", { class: "head" },
        el("b", {}, oneLine(row.title)), " ",
        el("span", { class: "quiet" }, KINDS[row.kind] ?? row.kind),
        el("span", { class: "side" },
          row.unread ? el("span", { class: "chip new" }, `${row.unread} new`) : null,
          since(row.ts))),
      el("p", { class: "cut" }, row.sender ? `${oneLine(row.sender)}: ` : "", oneLine(row.text)),
    ],
  });

  const talk = new PagedList("Messages", {
    key: (row) => String(row.seq),
    empty: "No messages.",
    row: message,
    onOpen: (key) => ledger(app, Number(key)),
    onShown: (rows) => markSeen(rows),
    older: (seq, limit) => page({ before: seq, limit }),
    newer: (seq, limit) => page({ after: seq, limit }),
  });

  const composer = app.canAct ? new Composer(app, {}) : null;
  const tools = el("p", { class: "buttons" },
    composer
      ? [
        button("Reply", () => reply(false), { "aria-keyshortcuts": "r" }),
        button("Quote", () => reply(true), { "aria-keyshortcuts": "c" }),
      ]
      : null,
    button("Ledger", () => { if (talk.cursor) ledger(app, Number(talk.cursor)); }));

  const page = (more) => app.ask({
    what: "messages",
    conversation: opened,
    beside: withOutside.checked && opened.startsWith("#"),
    ...more,
  });

  function reply(isQuote) {
    const row = talk.row(talk.cursor) ?? talk.rows.at(-1);
    if (row && composer) composer.reply(row, { isQuote });
  }

  function draw(change) {
    if (!change || change.isAll || change.talks?.length) list.set(found ?? app.store.talkList());
    if (!change || !opened) return;
    if (change.isAll) {
      show(opened);
      return;
    }
    const isChanged = change.talks?.some((row) => row.key === opened);
    if (isChanged || (withOutside.checked && change.events?.some((row) => row.type === "message"))) loadNew();
    const shown = (change.moved ?? []).filter((seq) => talk.nodes.has(String(seq)));
    if (shown.length) refresh(shown);
  }

  let isAsking = false;
  let isDue = false;
  async function loadNew() {
    const last = talk.rows.at(-1)?.seq ?? 0;
    const key = opened;
    if (talk.hasNewer) return;
    if (isAsking) {
      isDue = true;
      return;
    }
    isAsking = true;
    try {
      const got = await page(last ? { after: last, limit: 100 } : { limit: 100 });
      if (key !== opened) return;
      if (talk.rows.length === 0) talk.begin(got);
      else talk.append(got.rows);
      if (got.has_more && last) talk.hasNewer = true;
    } catch {
      // The bus is not reachable; the next snapshot shows the new messages.
    } finally {
      isAsking = false;
      if (isDue) {
        isDue = false;
        loadNew();
      }
    }
  }

  async function refresh(seqs) {
    const key = opened;
    const first = Math.min(...seqs);
    try {
      const count = talk.rows.filter((row) => row.seq >= first).length;
      const got = await page({ after: first - 1, limit: Math.min(500, Math.max(1, count)) });
      if (key === opened) for (const row of got.rows) if (seqs.includes(row.seq)) talk.replace(row);
    } catch {
      // The bus is not reachable; the next snapshot shows the new states.
    }
  }

  // Messages to the person count as seen after they were shown in a visible tab.
  function markSeen(rows) {
    const unread = rows.filter((row) => row.is_unread).map((row) => row.seq);
    if (unread.length && app.canAct && document.visibilityState === "visible") {
      app.act({ do: "seen", messages: unread.slice(0, 500) }).catch(() => {});
    }
  }

  async function loadMore() {
    if (isLoading || found || !hasMore) return;
    isLoading = true;
    try {
      const last = app.store.talkList().at(-1);
      const got = await app.ask({ what: "conversations", before: last?.seq ?? 0, limit: 100 });
      hasMore = Boolean(got.has_more);
      app.store.addTalks(got.rows);
    } catch {
      // The next scroll tries again.
    } finally {
      isLoading = false;
    }
  }

  async function search() {
    const text = filter.value.trim();
    if (!text) {
      found = null;
    } else {
      try {
        const got = await app.ask({ what: "conversations", find: text, limit: 200 });
        if (filter.value.trim() !== text) return;
        found = got.rows;
      } catch (error) {
        found = [];
      }
    }
    draw();
  }

  async function show(key) {
    const isOther = key !== opened;
    opened = key;
    app.detail(key !== "");
    if (!key) {
      fill(detail, composer
        ? [el("h2", {}, "New message"), composer.root]
        : el("p", { class: "quiet" }, "Choose a conversation."));
      return;
    }
    list.cursor = key;
    list.drawLater();
    const row = app.store.talks.get(key);
    fill(title, oneLine(row?.title ?? key));
    outsideField.hidden = !key.startsWith("#") || key === "#general";
    if (isOther || !detail.contains(talk.root)) {
      fill(detail, title, outsideField, talk.root, tools, composer?.root);
      composer?.reply(null);
      const [to, fixed] = recipientsOf(key);
      composer?.aim(to, fixed);
    }
    try {
      const got = await page({ limit: 100 });
      if (key === opened) talk.begin(got);
    } catch (error) {
      if (key === opened) talk.begin({ rows: [] });
      fill(title, oneLine(error.message));
    }
  }

  const root = el("div", { class: "split" },
    el("div", { class: "master" },
      el("h2", {}, "Talk"),
      el("div", { class: "line" },
        labelled("Find", filter),
        composer ? button("New message", () => app.go("talk", "")) : null),
      list.root),
    detail);
  draw();
  return {
    root, list, show, filter,
    changed: draw,
    keys: [
      ["Enter", "in the messages: show the ledger", null],
      ["r", "reply to the message", () => reply(false)],
      ["c", "quote the message", () => reply(true)],
      ["w", "write", () => composer?.text.focus()],
      ["/", "find", () => filter.focus()],
    ],
  };
}

// Return the recipients of a message in a conversation, and fields that the person cannot change.
function recipientsOf(key) {
  if (key === "#general") return ["@all", {}];
  if (key.startsWith("#")) return [key, {}];
  if (key.startsWith("@")) {
    const names = key.split("@").filter((one) => one && one !== "human");
    return [names.map((one) => `@${one}`).join(" "), {}];
  }
  const thread = key.replace(/^thread\//, "");
  return ["", { thread }];
}
