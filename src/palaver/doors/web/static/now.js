// Now: the entries that need the person, oldest first.

import { el, fill, button, name, clock, oneLine, exact, code } from "./dom.js";
import { FixedList } from "./lists.js";
import { Composer, attempt, outcome, facts, commandLine, question, since, ledger } from "./parts.js";

const KINDS = {
  permission: "asks permission",
  request: "asks you",
  held: "held message",
  unconfirmed: "unconfirmed message",
  dead: "dead letter",
  stick: "stick",
  blocked: "blocked",
  stale: "silent",
};

const TITLES = {
  ...KINDS,
  held: "wrote a message that is held",
  unconfirmed: "may not have received a message",
  dead: "sent a message to a path without subscribers",
  stick: "has the stick",
  blocked: "is blocked",
  stale: "has not reported for a long time",
};

export function open(app) {
  const heading = el("h2", {});
  const announcer = el("p", { class: "unseen", "aria-live": "polite" });
  const hint = el("div", {});
  const detail = el("section", { class: "detail", "aria-label": "Entry", tabindex: 0 });
  let shown = null;
  let shownKey = "";
  let replyComposer = null;
  let spokenMs = 0;

  const list = new FixedList("Waiting for you", {
    class: "two",
    key: (entry) => entry.key,
    empty: "New entries appear here automatically.",
    onOpen: (key) => app.go("now", key),
    row: (entry) => [
      el("p", { class: "head" },
        el("span", { class: `chip kind-${entry.kind}` }, KINDS[entry.kind] ?? entry.kind), " ",
        el("b", {}, name(entry.who)),
        el("span", { class: "side" }, since(entry.since))),
      el("p", { class: "cut" }, oneLine(entry.what)),
    ],
  });

  function draw(change) {
    const entries = app.store.attentionList();
    fill(heading, headingOf(entries.length));
    list.set(entries);
    const hasAgents = app.store.agents.size > 0;
    fill(hint, hasAgents || app.past ? null : firstSteps());
    announce(change, entries);
    if (shownKey && !app.store.attention.has(shownKey) && shown) showEnding();
  }

  function announce(change, entries) {
    const newest = change?.news?.at(-1);
    if (newest && Date.now() - spokenMs > 2000) {
      spokenMs = Date.now();
      fill(announcer, `${newest.who} ${TITLES[newest.kind] ?? newest.kind}. ${headingOf(entries.length)}.`);
    }
  }

  // The shown entry has ended, on this page or elsewhere: show how, and disable its actions.
  async function showEnding() {
    const entry = shown;
    if (detail.querySelector(".ended")) return;
    const notice = el("p", { class: "ended" }, "This has ended.");
    detail.prepend(notice);
    detail.classList.add("over");
    if (replyComposer?.text.value === "") replyComposer.root.classList.add("done");
    for (const one of detail.querySelectorAll("button.act, form button[type=submit]")) one.disabled = true;
    const how = await ending(app, entry);
    fill(notice, `This has ended: ${oneLine(how)}.`);
    if (replyComposer && shown === entry) replyComposer.refusal = `Not sent: ${oneLine(how)}.`;
  }

  async function show(key) {
    shownKey = key;
    const entry = app.store.attention.get(key);
    app.detail(entry !== undefined || key !== "");
    if (!entry) {
      shown = null;
      fill(detail, key
        ? el("p", {}, "This entry has ended or does not exist.")
        : el("p", { class: "quiet" }, "Choose an entry to see it here."));
      return;
    }
    shown = entry;
    detail.classList.remove("over");
    markSeen(entry);
    list.cursor = key;
    list.drawLater();
    const result = outcome();
    const permission = el("div", {});
    const composer = app.canAct && entry.kind === "request" ? new Composer(app, { label: "Reply" }) : null;
    replyComposer = composer;
    composer?.reply({ seq: entry.seq, sender: entry.who, text: entry.what });
    fill(detail,
      el("h2", {}, name(entry.who), ` ${TITLES[entry.kind] ?? entry.kind}`),
      el("p", { class: "why" }, entry.why),
      facts([
        ["Since", clock(entry.since)],
        ["Until", entry.until ? clock(entry.until) : ""],
        ["To", entry.to?.join(", ")],
        ["Room", entry.room],
        ["Message", isAboutMessage(entry) ? `#${entry.seq}` : ""],
      ]),
      el("div", { class: "text boxed" }, entry.kind === "permission" ? exact(entry.what) : entry.what), permission,
      el("p", { class: "buttons" }, actions(entry, result, permission)), result, composer?.root,
      entry.actions?.length
        ? el("div", { class: "terminal" },
          el("h3", {}, "At a terminal"),
          el("ul", { class: "commands" }, entry.actions.map((action) => (
            el("li", {}, commandLine(action.command, action.word === "reply" ? " -- TEXT" : ""))
          ))))
        : null);
  }

  // A message to the person counts as seen after it was opened in a visible tab.
  function markSeen(entry) {
    if (entry.kind === "request" && app.canAct && document.visibilityState === "visible") {
      app.act({ do: "seen", messages: [entry.seq] }).catch(() => {});
    }
  }

  // Return the buttons for an entry. A permission request gets its buttons after its whole input is shown.
  function actions(entry, result, permission) {
    const run = (action) => attempt(result, () => app.act(action));
    const buttons = [];
    if (entry.kind === "permission") {
      loadPermission(entry, result, permission);
    } else if (entry.kind === "held") {
      buttons.push(button("Release", () => run({ do: "release", message: String(entry.seq) }), {
        class: "act primary",
        "aria-keyshortcuts": "l",
        disabled: !app.canAct,
      }));
    } else if (entry.kind === "unconfirmed") {
      buttons.push(button("Deliver again", async () => {
        const text = `The agent may have read #${entry.seq} already. If so, it receives the message twice.`;
        const isSure = await question("Deliver again?", el("p", {}, text), "Deliver again");
        if (isSure) run({ do: "redeliver", message: String(entry.seq) });
      }, { class: "act", disabled: !app.canAct }));
    } else if (entry.kind === "blocked" || entry.kind === "stale") {
      buttons.push(button("Show agent", () => app.go("agents", entry.who)));
    } else if (entry.kind === "stick" && entry.room) {
      buttons.push(button("Show room", () => app.go("rooms", entry.room)));
    }
    if (isAboutMessage(entry)) buttons.push(button("Ledger", () => ledger(app, entry.seq)));
    return buttons;
  }

  async function loadPermission(entry, result, output) {
    fill(output, "Loading the whole request…");
    try {
      const page = await app.ask({ what: "permission", id: entry.id });
      if (shownKey !== entry.key) return;
      const decide = (isAllowed) => attempt(result, () => (
        app.act({ do: "answer", id: page.id, digest: page.digest, is_allowed: isAllowed })
      ));
      fill(output, facts([["Tool", page.tool]]),
        el("pre", { class: "boxed", tabindex: 0, role: "region", "aria-label": "The whole request" }, exact(page.input)),
        app.session.approvals && !app.past
          ? el("p", { class: "buttons" },
            button("Approve", () => decide(true), { class: "act primary", "aria-keyshortcuts": "a" }),
            button("Deny", () => decide(false), { class: "act", "aria-keyshortcuts": "x" }))
          : el("p", { class: "hint" },
            "Requests cannot be answered on this page. Answer at a terminal, or run ",
            code("pal config set web_approvals 1"), " there to allow answers on this page."));
    } catch (error) {
      fill(output, el("p", { class: "bad" }, oneLine(error.message)));
    }
  }

  // A snapshot contains only the oldest entries if there are too many: read the others.
  async function loadAll() {
    const { store } = app;
    if ((store.counts.attention ?? 0) <= store.attention.size) return;
    try {
      store.addAttention((await app.ask({ what: "attention" })).entries);
    } catch {
      // The next snapshot tries again.
    }
  }

  function changed(change) {
    draw(change);
    if (change.isAll) loadAll();
  }

  const press = (selector) => detail.querySelector(selector)?.click();
  const root = el("div", { class: "split" },
    el("div", { class: "master" }, heading, announcer, hint, list.root), detail);
  draw();
  loadAll();
  return {
    root, list, show, changed,
    keys: [
      ["a", "approve the open request", () => press("[aria-keyshortcuts=a]")],
      ["x", "deny the open request", () => press("[aria-keyshortcuts=x]")],
      ["r", "reply", () => detail.querySelector("textarea")?.focus()],
      ["l", "release the open message", () => press("[aria-keyshortcuts=l]")],
    ],
  };
}

// Ask the bus how an entry has ended. Return a clause without a period.
async function ending(app, entry) {
  try {
    if (entry.kind === "permission") {
      await app.ask({ what: "permission", id: entry.id });
    } else if (isAboutMessage(entry)) {
      return endingOfMessage(entry, await app.ask({ what: "ledger", message: String(entry.seq) }));
    } else if (entry.kind === "stick") {
      const { row } = await app.ask({ what: "room", id: entry.room });
      return row.owner ? `${row.owner} has the stick now` : `the stick is ${row.stick} now`;
    } else {
      const row = app.store.agents.get(entry.who);
      if (row) return `${entry.who} ${row.has_left ? "has left" : `is ${row.state} now`}`;
    }
  } catch (error) {
    return error.message.replace(`there is no permission request ${entry.id}: `, "");
  }
  return "it was settled in the meantime";
}

function endingOfMessage(entry, page) {
  const steps = (page.steps ?? []).filter((step) => step.name);
  const reply = steps.findLast((step) => step.state === "answered");
  const release = steps.find((step) => step.state === "queued");
  const last = steps.at(-1);
  if (entry.kind === "request" && reply) return `#${entry.seq} was answered by ${reply.by} with #${reply.seq}`;
  if (entry.kind === "held" && release) return `#${entry.seq} was released by ${release.by}`;
  if (entry.kind === "dead") return `#${entry.seq} was cleared from the dead letters`;
  if (!last) return `#${entry.seq} was settled in the meantime`;
  return `#${entry.seq} is ${last.state} now${last.reason ? `: ${last.reason}` : ""}`;
}

function headingOf(count) {
  if (count === 0) return "Nothing waits for you";
  return count === 1 ? "1 thing waits for you" : `${count} things wait for you`;
}

const isAboutMessage = (entry) => Boolean(entry.seq) && ["request", "held", "unconfirmed", "dead"].includes(entry.kind);

function firstSteps() {
  return el("section", { class: "boxed", "aria-label": "First steps" },
    el("p", {}, "No agent has joined yet. At a terminal:"),
    el("ul", { class: "commands" },
      el("li", {}, code("pal claude --name luna"), " starts Claude Code as the agent luna"),
      el("li", {}, code("pal install all"), " connects the harnesses that you start yourself")),
    el("p", {}, "Press ", code("?"), " to see the keys of this page."));
}
