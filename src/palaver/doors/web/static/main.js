// The page: sign-in, top line, screens, keys, and the connection.

import { el, fill, button, clock, code, oneLine } from "./dom.js";
import * as api from "./api.js";
import { Store } from "./store.js";
import { Stream } from "./stream.js";
import { showInfo, table, reference } from "./parts.js";
import * as now from "./now.js";
import * as agents from "./agents.js";
import * as talk from "./talk.js";
import * as rooms from "./rooms.js";
import * as log from "./log.js";
import * as past from "./past.js";

const SCREENS = [
  ["now", "Now", now],
  ["agents", "Agents", agents],
  ["talk", "Talk", talk],
  ["rooms", "Rooms", rooms],
  ["log", "Log", log],
  ["past", "Past", past],
];
const NOTIFY = "palaver-notify";
const NOTICE_MS = 5000;
const NOTICE_TEXTS = { permission: "asks for permission", request: "asks you", blocked: "is blocked" };

class App {
  constructor(session) {
    this.session = session;
    this.live = new Store();
    this.past = null;
    this.pastTime = 0;
    this.screen = null;
    this.screenName = "";
    this.awaySince = 0;
    this.loadedVersion = "";
    this.noticedMs = 0;
    this.stream = new Stream(this.live, (state) => this.connection(state));
  }

  get store() { return this.past ?? this.live; }

  get canAct() { return !this.session.read_only && this.past === null; }

  // Ask about the present, also while the page shows the past.
  askNow(question) { return api.ask(question).catch((error) => this.refused(error)); }

  ask(question) { return this.askNow(this.past ? { ...question, at: this.past.seq } : question); }

  act(action) {
    if (!this.canAct) {
      const reason = this.past ? "nothing can be sent while the page shows the past" : "this session is read-only";
      return Promise.reject(new Error(reason));
    }
    return api.act(action).catch((error) => this.refused(error));
  }

  refused(error) {
    if (error instanceof api.Refusal && error.status === 401) location.reload();
    throw error;
  }

  // The frame of the page.

  build() {
    this.top = el("p", { class: "top" });
    this.nav = el("nav", { "aria-label": "Screens" }, SCREENS.map(([key, label], index) => (
      el("a", { href: `#/${key}`, "data-screen": key, "aria-keyshortcuts": String(index + 1) },
        label, el("span", { class: "count", hidden: true }))
    )));
    this.banner = el("div", { class: "banner", hidden: true, role: "region", "aria-label": "State of the bus" });
    this.main = el("main", { id: "main", tabindex: -1 });
    this.heading = el("h1", { class: "unseen" });
    this.menu = el("p", { class: "menu" },
      this.noticeButton(),
      button("Keys ?", () => this.help(), { "aria-keyshortcuts": "?" }),
      button("Sign out", async () => { await api.signOut(); location.reload(); }));
    fill(document.body,
      el("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); this.main.focus(); } },
        "Skip to content"),
      el("header", {}, this.top, this.menu, this.nav), this.banner, this.main);
    this.live.on((change) => this.changed(change));
    addEventListener("hashchange", () => this.route());
    addEventListener("keydown", (event) => this.pressed(event));
    setInterval(() => this.tick(), 20_000);
    this.route();
    this.drawTop();
    this.stream.start();
  }

  route() {
    const [name, key] = this.address();
    this.open(SCREENS.find(([one]) => one === name) ?? SCREENS[0], key);
  }

  // Return the screen and the key in the address.
  address() {
    const [, name = "now", arg = ""] = /^#\/([a-z]+)(?:\/(.*))?$/.exec(location.hash) ?? [];
    try {
      return [name, decodeURIComponent(arg)];
    } catch {
      return [name, ""]; // A person can type an address with a single percent sign.
    }
  }

  open([name, label, module], key, isReload = false) {
    if (name !== this.screenName || isReload) {
      this.screen?.close?.();
      this.screenName = name;
      this.screen = module.open(this);
      fill(this.heading, label);
      fill(this.main, this.heading, this.screen.root);
      document.body.dataset.screen = name;
      for (const link of this.nav.children) {
        if (link.dataset.screen === name) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      this.label = label;
      this.drawTop();
    }
    this.screen.show(key);
    if (!isReload && key === "") (this.screen.list?.root ?? this.main).focus({ preventScroll: true });
    else if (!isReload) this.screen.root.querySelector(".detail")?.focus({ preventScroll: true });
  }

  reopen() {
    const [, key] = this.address();
    this.open(SCREENS.find(([one]) => one === this.screenName), key, true);
  }

  go(name, key = "") {
    const hash = key ? `#/${name}/${encodeURIComponent(key)}` : `#/${name}`;
    if (location.hash === hash) this.route();
    else location.hash = hash;
  }

  // On a narrow screen the detail replaces the list, and has a button that returns to the list.
  detail(isOpen) {
    document.body.classList.toggle("in-detail", isOpen);
    const root = this.screen?.root ?? null;
    queueMicrotask(() => {
      const panel = (root ?? this.screen.root).querySelector(".detail");
      panel?.parentElement.querySelector(":scope > .back")?.remove();
      if (isOpen && panel) {
        panel.before(button("← Back to the list", () => this.go(this.screenName), { class: "back small" }));
      }
    });
  }

  // Changes.

  changed(change) {
    if (change.isAll && this.live.version) {
      this.loadedVersion ||= this.live.version;
      if (this.live.version !== this.loadedVersion) this.newVersion = true;
      this.drawBanner();
    }
    if (change.events?.some((row) => row.type === "setting.changed") || change.isAll) this.readSession();
    this.drawTop();
    if (!this.past) this.screen.changed(change);
    else if (this.screenName === "past") this.screen.changed({});
    this.notify(change.news ?? []);
  }

  async readSession() {
    try {
      const before = this.session.approvals;
      this.session = await api.session();
      if (before !== this.session.approvals && this.screenName === "now") this.reopen();
    } catch {
      // The stream reports the reason.
    }
  }

  drawTop() {
    const { counts, attention } = this.store;
    const states = Object.entries(counts.agents ?? {})
      .filter(([, count]) => count)
      .map(([state, count]) => `${count} ${state}`);
    const waiting = this.past ? attention.size : Math.max(counts.attention ?? 0, attention.size);
    fill(this.top, el("b", {}, "Palaver"), el("span", {}, states.length ? states.join(" · ") : "no agents"),
      el("span", {}, `${waiting} waiting for you`), el("span", {}, `${counts.unread ?? 0} unread`),
      el("span", { class: "bus" }, this.awaySince ? "bus away" : this.live.epoch ? "bus up" : "connecting"),
      this.session.read_only ? el("span", { class: "chip" }, "read-only") : null);
    this.count("now", waiting);
    this.count("talk", counts.unread ?? 0);
    document.title = `${waiting ? `(${waiting}) ` : ""}${this.label ?? "Now"} · Palaver`;
  }

  count(screen, value) {
    const badge = this.nav.querySelector(`a[data-screen=${screen}] .count`);
    badge.hidden = !value;
    fill(badge, value ? ` ${value}` : "");
  }

  tick() {
    if (document.visibilityState === "visible" && this.screen.list?.drawLater) this.screen.list.drawLater();
  }

  // The connection.

  connection(state) {
    if (state === "signed-out") {
      location.reload();
      return;
    }
    const wasAway = this.awaySince;
    this.awaySince = state === "away" ? this.awaySince || Date.now() : 0;
    if (Boolean(wasAway) !== Boolean(this.awaySince)) {
      document.body.classList.toggle("away", Boolean(this.awaySince));
      this.drawBanner();
      this.drawTop();
    }
  }

  drawBanner() {
    const parts = [];
    if (this.awaySince) {
      parts.push(el("p", { class: "old" },
        `The bus has not been reachable since ${clock(this.awaySince)}. `,
        "The page shows the last known state, and reconnects automatically."));
    }
    if (this.newVersion) {
      parts.push(el("p", {}, "The bus has a new version. ",
        button("Reload the page", () => location.reload(), { class: "small" })));
    }
    if (this.past) {
      parts.push(el("p", {},
        `The bus as it was at #${this.past.seq}${this.pastTime ? `, ${clock(this.pastTime)}` : ""}. Nothing can be sent. `,
        button("← one event", () => this.step(-1), { class: "small" }), " ",
        button("one event →", () => this.step(1), { class: "small" }), " ",
        button("Return to now", () => this.leavePast(), { class: "small" })));
    }
    fill(this.banner, parts);
    this.banner.hidden = parts.length === 0;
  }

  // The past.

  async enterPast(seq) {
    const wanted = Math.max(1, Math.round(seq) || 1);
    const snapshot = await this.askNow({ what: "past", at: wanted });
    const store = new Store();
    store.apply({ ...snapshot, epoch: snapshot.epoch || "past" });
    store.seq = wanted;
    this.past = store;
    this.pastTime = store.events.at(-1)?.ts ?? 0;
    this.showTime();
  }

  leavePast() {
    this.past = null;
    this.pastTime = 0;
    this.showTime();
  }

  showTime() {
    document.body.classList.toggle("in-past", this.past !== null);
    reference.ts = this.pastTime;
    this.drawBanner();
    this.drawTop();
    this.reopen();
  }

  async step(steps) {
    if (!this.past || this.isStepping) return;
    this.isStepping = true;
    try {
      const range = steps < 0 ? { before: this.past.seq } : { after: this.past.seq };
      const page = await this.askNow({ what: "log", limit: 1, ...range });
      const row = page.rows.at(steps < 0 ? -1 : 0);
      if (row) await this.enterPast(row.seq);
    } catch (error) {
      this.banner.append(el("p", { class: "bad" }, oneLine(error.message)));
    } finally {
      this.isStepping = false;
    }
  }

  // Keys.

  pressed(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const isTyping = event.target.closest?.("input, textarea, select");
    if (event.key === "Escape") {
      if (isTyping) event.target.blur();
      else if (document.body.classList.contains("in-detail")) this.go(this.screenName);
      return;
    }
    if (isTyping) return;
    const screen = SCREENS[Number(event.key) - 1];
    const own = this.screen.keys.find(([key, , run]) => key === event.key && run);
    const isArrow = event.key === "ArrowLeft" || event.key === "ArrowRight";
    if (screen) this.go(screen[0]);
    else if (event.key === "?") this.help();
    else if (own) own[2]();
    else if (this.past && isArrow) this.step(event.key === "ArrowLeft" ? -1 : 1);
    else return;
    event.preventDefault();
  }

  help() {
    const shared = [
      ["1 to 6", "choose a screen"],
      ["↑ ↓ j k", "move in a list"],
      ["Enter", "open"],
      ["Esc", "back to the list, or leave a field"],
      ["Tab", "next part of the page"],
      ["?", "this help"],
    ];
    const rows = [...shared, ...this.screen.keys].map(([key, what]) => [code(key), what]);
    showInfo(`Keys: ${this.label}`, table(["Key", "Action"], rows));
  }

  // Notices of the browser: off until the person allows them. They contain names, but no texts of messages.

  noticeButton() {
    const isOn = () => localStorage.getItem(NOTIFY) === "1" && globalThis.Notification?.permission === "granted";
    const toggle = button("", async () => {
      if (isOn()) {
        localStorage.removeItem(NOTIFY);
      } else if (globalThis.Notification && await Notification.requestPermission() === "granted") {
        localStorage.setItem(NOTIFY, "1");
      }
      draw();
    });
    const draw = () => {
      fill(toggle, isOn() ? "Notices on" : "Notices off");
      toggle.setAttribute("aria-pressed", String(isOn()));
    };
    draw();
    return toggle;
  }

  notify(news) {
    const announced = news.filter((entry) => entry.kind in NOTICE_TEXTS);
    const isAllowed = localStorage.getItem(NOTIFY) === "1" && globalThis.Notification?.permission === "granted";
    if (!announced.length || !isAllowed || !this.stream.isLeader) return;
    if (document.visibilityState === "visible" || Date.now() - this.noticedMs < NOTICE_MS) return;
    this.noticedMs = Date.now();
    const more = announced.length > 1 ? ` and ${announced.length - 1} more` : "";
    const body = `${oneLine(announced[0].who)} ${NOTICE_TEXTS[announced[0].kind]}${more}`;
    const notice = new Notification("Palaver", { body, tag: "palaver", icon: "/icon.svg" });
    notice.onclick = () => { focus(); this.go("now", announced[0].key); };
  }
}

// Sign-in.

function signIn(reason) {
  const field = el("input", {
    type: "text",
    id: "code",
    autocomplete: "off",
    autocapitalize: "none",
    spellcheck: "false",
    maxlength: 12,
    required: true,
    autofocus: true,
    "aria-describedby": "sign-in-status",
  });
  const status = el("p", { class: "outcome", id: "sign-in-status" });
  const form = el("form", { class: "composer", onsubmit: async (event) => {
    event.preventDefault();
    send.disabled = true;
    status.className = "outcome";
    fill(status, "Now reply at the terminal where you ran pal web.");
    try {
      await api.signIn(field.value);
      start();
    } catch (error) {
      status.classList.add("bad");
      fill(status, oneLine(error.message));
      send.disabled = false;
      field.select();
    }
  } }, el("label", { class: "field", for: "code" }, el("span", {}, "Code"), field));
  const send = el("button", { type: "submit", class: "primary" }, "Sign in");
  form.append(send, status);
  fill(document.body, el("main", { class: "sign-in" }, el("h1", {}, "Palaver"),
    el("p", {}, "Run ", code("pal web"), " at a terminal, and type its code here."), form,
    reason ? el("p", { class: "hint" }, oneLine(reason)) : null));
  document.title = "Sign in · Palaver";
  field.focus();
}

async function start() {
  try {
    new App(await api.session()).build();
  } catch (error) {
    if (error instanceof api.Refusal && error.status === 401) signIn("");
    else if (error instanceof api.Unreachable) {
      fill(document.body, el("main", { class: "sign-in" },
        el("h1", {}, "Palaver"),
        el("p", {}, "The bus is not reachable. The page tries again automatically.")));
      setTimeout(start, 2000);
    } else {
      signIn(error.message);
    }
  }
}

start();
