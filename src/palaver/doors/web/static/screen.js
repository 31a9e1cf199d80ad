// The live screen of an agent, read-only and as text. The bus answers when it has changed, so nothing is polled;
// nothing is asked while the agent is not opened, the tab is hidden, or the past is shown. A browser opens only
// six connections, so at most three tabs wait for a change; further ones look now and then.

import { el, fill, oneLine } from "./dom.js";
import { screen as read, Refusal } from "./api.js";

const PAUSE_MS = 300; // between two screens of a program that writes all the time
const RETRY_MS = 3000;
const SLOTS = ["palaver-screen-1", "palaver-screen-2", "palaver-screen-3"];

// Return a function that frees the slot; null if all are taken.
async function takeSlot() {
  for (const slot of navigator.locks ? SLOTS : []) {
    const free = await new Promise((done) => {
      navigator.locks.request(slot, { ifAvailable: true }, (lock) => (
        lock ? new Promise((release) => done(release)) : done(null)
      ));
    });
    if (free) return free;
  }
  return null;
}

export class LiveScreen {
  constructor() {
    this.agent = "";
    this.turn = 0;
    this.known = "";
    this.cutter = null;
    this.text = el("pre", { class: "screen", tabindex: 0, role: "region", "aria-label": "Screen of the agent" });
    this.note = el("p", { class: "hint" });
    this.root = el("section", { "aria-label": "Screen", hidden: true }, el("h3", {}, "Screen"), this.note, this.text);
    this.seen = () => (document.visibilityState === "visible" ? this.resume() : this.rest());
    document.addEventListener("visibilitychange", this.seen);
  }

  // Follow the screen of an agent; "" ends it.
  follow(agent) {
    if (agent === this.agent) return;
    this.rest();
    this.agent = agent;
    this.known = "";
    this.root.hidden = agent === "";
    this.shown = null;
    fill(this.text);
    this.say(agent ? "Loading…" : "");
    this.resume();
  }

  close() {
    document.removeEventListener("visibilitychange", this.seen);
    this.follow("");
  }

  rest() {
    this.turn += 1;
    this.cutter?.abort();
    this.cutter = null;
  }

  async resume() {
    if (this.cutter !== null || this.agent === "" || document.visibilityState !== "visible") return;
    const cutter = new AbortController();
    this.cutter = cutter;
    const { turn } = this;
    const free = await takeSlot();
    try {
      await this.look(turn, cutter.signal, free !== null);
    } finally {
      free?.();
    }
  }

  async look(turn, signal, isWaiting) {
    while (turn === this.turn) {
      const begin = Date.now();
      let wait = isWaiting ? PAUSE_MS : RETRY_MS;
      try {
        const got = await read(this.agent, isWaiting ? this.known : "", signal);
        if (turn !== this.turn) return;
        this.draw(got);
        if (got.text === undefined && Date.now() - begin < RETRY_MS) wait = RETRY_MS; // it does not wait
      } catch (error) {
        if (turn !== this.turn) return;
        if (error instanceof Refusal && error.status === 401) return; // the stream shows the sign-in
        wait = RETRY_MS;
        this.say(`Not current: ${oneLine(error.message)}`);
      }
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  draw(got) {
    this.say("As its terminal shows it now. It cannot be typed into here.");
    this.known = got.digest;
    if (got.text === undefined || got.text === this.shown) return;
    this.shown = got.text;
    const { scrollTop, scrollLeft } = this.text;
    fill(this.text, got.text.replace(/\s+$/, "") || "(empty)");
    Object.assign(this.text, { scrollTop, scrollLeft });
  }

  say(text) {
    if (this.note.textContent !== text) fill(this.note, text);
  }
}
