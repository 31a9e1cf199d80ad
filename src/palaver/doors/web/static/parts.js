// Elements that several screens use: dialogs, the composer, messages and their ledger.

import { el, fill, button, name, code, time, span, plain, oneLine, shell } from "./dom.js";
import { Completion } from "./complete.js";

const STATE_SIGNS = {
  queued: "…",
  submitted: "→",
  held: "‖",
  seen: "✓",
  answered: "✓✓",
  refused: "✗",
  expired: "✗",
  dead: "✗",
};
let fields = 0;

// Dialogs.

export function dialog(title, body, buttons, props = {}) {
  const made = el("dialog", { "aria-labelledby": "dialog-title", ...props },
    el("h2", { id: "dialog-title" }, title), body, el("p", { class: "buttons" }, buttons));
  made.addEventListener("close", () => made.remove());
  document.body.append(made);
  made.showModal();
  return made;
}

// Ask a question; its body shows everything that it affects. Return whether the person agreed.
export function question(title, body, label) {
  return new Promise((done) => {
    const close = (value) => { shown.close(); done(value); };
    const cancel = button("Cancel", () => close(false), { autofocus: true });
    const shown = dialog(title, body, [button(label, () => close(true), { class: "primary" }), cancel]);
    shown.addEventListener("cancel", () => done(false));
  });
}

export function showInfo(title, body) {
  return new Promise((done) => {
    const shown = dialog(title, body, [button("Close", () => shown.close(), { autofocus: true })]);
    shown.addEventListener("close", () => done());
  });
}

export function labelled(label, input) {
  fields += 1;
  input.id ||= `field${fields}`;
  return el("label", { for: input.id, class: "field" }, el("span", {}, label), input);
}

export function select(options, props = {}) {
  return el("select", props, options.map(([value, label]) => el("option", { value }, label)));
}

// The result of an action: a text near the button that started it.

export function outcome() {
  return el("p", { class: "outcome", tabindex: -1 });
}

export async function attempt(output, action) {
  fill(output, "Working…");
  output.className = "outcome";
  try {
    const result = await action();
    output.classList.add("good");
    fill(output, result.results?.length
      ? el("ul", {}, result.results.map((one) => (
        el("li", {}, one.is_done ? "✓ " : "✗ ", name(one.name), " ", oneLine(one.text))
      )))
      : oneLine(result.text));
    return result;
  } catch (error) {
    output.classList.add("bad");
    fill(output, `Not done: ${oneLine(error.message)}`);
    return null;
  }
}

// Messages.

export function marks(message) {
  const all = message.marks ?? [];
  if (all.length === 0) return null;
  return el("ul", { class: "marks" }, all.slice(0, 20).map((mark) => el("li", { class: `mark ${mark.state}` },
    el("span", { "aria-hidden": "true" }, STATE_SIGNS[mark.state] ?? "·"), " ", name(mark.name), ` ${mark.state}`,
    mark.reason ? el("span", { class: "why" }, ` – ${oneLine(mark.reason.text)}`) : null)),
  all.length > 20 ? el("li", {}, `and ${all.length - 20} more`) : null);
}

export function message(row) {
  const to = row.to?.length ? row.to.join(" ") : "all";
  return [
    el("p", { class: "head" }, el("b", {}, name(row.sender)), " → ", el("bdi", {}, oneLine(to)), " ",
      row.intent ? el("span", { class: "chip" }, row.intent) : null,
      row.thread ? el("span", { class: "chip" }, row.thread) : null,
      row.priority && row.priority !== "normal" ? el("span", { class: "chip" }, row.priority) : null,
      row.is_unread ? el("span", { class: "chip new" }, "new") : null,
      el("span", { class: "side" }, `#${row.seq} `, time(row.ts))),
    row.reply_to ? el("p", { class: "quote" }, `#${row.reply_to} `, oneLine(row.quote ?? "")) : null,
    el("div", { class: "text" },
      row.text,
      row.is_cut ? el("em", {}, " … (shortened; ", code(`pal show ${row.seq}`), " prints the whole text)") : null),
    marks(row),
  ];
}

const LIMIT_ROWS = 100; // steps of one message; it can have thousands
const LEDGER_PAGE = 50; // recipients in one page of a ledger

// Show the ledger of one message: its receipts, and its steps with time, lane, evidence and reason.
export async function ledger(app, seq) {
  const body = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Ledger" }, "Loading…");
  const shown = showInfo(`Message #${seq}`, body);
  const show = async (first) => {
    const page = await app.ask({ what: "ledger", message: String(seq), first });
    const receipts = page.receipts?.receipts ?? [];
    const steps = page.steps ?? [];
    const pageButton = (text, to) => el("button", {
      type: "button",
      disabled: to < 0 || to >= page.recipients,
      onclick: () => show(to).then(() => body.focus(), fail),
    }, text);
    const pager = page.recipients > LEDGER_PAGE
      ? el("div", { class: "line" },
        pageButton("Previous recipients", first - LEDGER_PAGE),
        `${first + 1} to ${Math.min(first + LEDGER_PAGE, page.recipients)} of ${page.recipients}`,
        pageButton("Next recipients", first + LEDGER_PAGE))
      : null;
    const more = (all) => all.length > LIMIT_ROWS
      ? el("p", {}, `and ${all.length - LIMIT_ROWS} more; `, code(`pal receipts ${seq}`), " prints all")
      : null;
    fill(body,
      el("div", { class: "message" }, message({ ...page.message, marks: [] })),
      el("h3", {}, "Receipts"),
      receipts.length
        ? table(
          ["Recipient", "State", "Evidence", "Why it waits", "Next"],
          receipts.slice(0, LEDGER_PAGE).map((one) => [
            [name(one.agent ?? one.name), one.session ? ` (session ${oneLine(one.session)})` : ""],
            one.state,
            [one.lane, one.grade].filter(Boolean).join(", "),
            one.wait?.text ?? one.reason ?? "",
            one.wait?.moves ?? "",
          ]),
        )
        : el("p", {}, "No recipients."),
      pager,
      el("h3", {}, "Steps"),
      table(
        ["Time", "Event", "Recipient", "State", "Lane", "Evidence", "Reason"],
        steps.slice(-LIMIT_ROWS).map((step) => [
          time(step.ts),
          `#${step.seq}`,
          step.name ? name(step.name) : "all",
          step.state,
          step.lane ?? "",
          step.grade ?? "",
          step.reason ?? "",
        ]),
      ),
      more(steps));
  };
  const fail = (error) => fill(body, oneLine(error.message));
  await show(0).catch(fail);
  return shown;
}

export function table(heads, rows) {
  return el("div", { class: "wide" }, el("table", {},
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, rows.map((row) => (
      el("tr", {}, row.map((cell, index) => el("td", { "data-head": heads[index] }, cell)))
    )))));
}

// The composer. It is below the messages and never covers them.
export class Composer {
  constructor(app, { label = "Message", to = null, onSent = null } = {}) {
    this.app = app;
    this.onSent = onSent;
    this.fixed = {};
    this.refusal = "Not sent: this has ended in the meantime."; // shown if the button is disabled
    fields += 1;
    this.to = el("input", {
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      autocapitalize: "none",
      value: to ?? "",
    });
    this.text = el("textarea", {
      rows: 3,
      placeholder: " ",
      onkeydown: (event) => this.pressed(event),
      "aria-describedby": `hint${fields}`,
    });
    const toCompletion = new Completion(this.to, () => this.names(), { isEveryWord: true });
    const textCompletion = new Completion(this.text, () => this.names());
    this.priority = select([["", "normal"], ["interrupt", "interrupt"], ["idle-first", "idle-first"], ["idle", "idle"]]);
    this.intent = select([["", "none"], ["request", "request"], ["inform", "inform"], ["ack", "ack"]]);
    this.about = el("p", { class: "quote" });
    this.result = outcome();
    this.toField = labelled("To", this.to);
    this.toField.classList.add("to");
    this.submit = el("button", { type: "submit", class: "primary" }, "Send");
    this.root = el("form", { class: "composer", onsubmit: (event) => { event.preventDefault(); this.send(); } },
      this.about, this.toField, toCompletion.list, labelled(label, this.text), textCompletion.list,
      el("div", { class: "line" }, labelled("Priority", this.priority), labelled("Intent", this.intent),
        this.submit),
      el("p", { class: "hint", id: `hint${fields}` }, "Ctrl+Enter sends the message. @ completes names."), this.result);
    this.reply(null);
  }

  // Return the names to complete: agents that are present, then the others.
  names() {
    const rows = [...this.app.store.agents.values()].filter((row) => !row.has_left);
    return [...rows.filter((row) => row.is_present), ...rows.filter((row) => !row.is_present)]
      .map((row) => row.name).concat("all");
  }

  pressed(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.send();
    }
  }

  // Set the recipients of the opened conversation. The person sees them and can change them.
  aim(to, fixed = {}) {
    this.to.value = to;
    this.fixed = fixed;
  }

  reply(row, { isQuote = false } = {}) {
    this.replyTo = row ? String(row.seq) : "";
    this.toField.hidden = row !== null && this.replyTo !== "";
    fill(this.about, row ? [`Reply to #${row.seq} of `, name(row.sender), `: ${oneLine(row.text).slice(0, 120)} `,
      button("Not a reply", () => this.reply(null), { class: "small" })] : null);
    this.about.hidden = row === null;
    if (row && isQuote) {
      this.text.value = `${plain(row.text).split("\n").map((line) => `> ${line}`).join("\n")}\n\n${this.text.value}`;
    }
    if (row) this.text.focus();
  }

  async send() {
    const text = this.text.value;
    if (text.trim() === "") return;
    if (this.submit.disabled) {
      this.result.className = "outcome bad";
      fill(this.result, this.refusal);
      return;
    }
    const to = this.replyTo ? [] : this.to.value.trim().split(/\s+/).filter(Boolean);
    if (!this.replyTo && to.length === 0 && !this.fixed.thread) {
      this.result.className = "outcome bad";
      fill(this.result, "Not sent: name a recipient, such as @luna, @all or #room.");
      this.to.focus();
      return;
    }
    const action = {
      do: "send",
      text,
      to,
      reply_to: this.replyTo,
      priority: this.priority.value,
      intent: this.intent.value,
      thread: this.fixed.thread ?? "",
    };
    const done = await attempt(this.result, () => this.app.act(action));
    if (done === null) return;
    this.text.value = "";
    this.reply(null);
    this.onSent?.(done);
  }
}

export function facts(pairs) {
  return el("dl", { class: "facts" }, pairs
    .filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false)
    .map(([label, value]) => [el("dt", {}, label), el("dd", {}, value)]));
}

export const commandLine = (words, more = "") => el("code", { class: "command" }, shell(words), more);

// Ages are relative to this time; 0 is now. It is set while the page shows the past.
export const reference = { ts: 0 };

export function since(ts) {
  return el("span", { class: "age" }, span((reference.ts || Date.now()) - ts));
}
