// The live screen of an agent, read-only and as text. The bus replies when the screen has changed, so the page does
// not poll. No request is sent while the agent is closed, the tab is hidden, or the page shows the past. A browser
// opens only six connections to the bus, so at most three tabs wait for a change; the other tabs poll.

import { el, fill, oneLine } from "./dom.js";
import { screen as readScreen, Refusal } from "./api.js";

const PAUSE_MS = 300; // between two screens of a program that writes continuously
const RETRY_MS = 3000; // after an error, and between two polls
const SLOTS = ["palaver-screen-1", "palaver-screen-2", "palaver-screen-3"];

// Take one of the slots for waiting tabs. Return a function that frees it; null if none is free.
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
    this.generation = 0;
    this.known = "";
    this.aborter = null;
    this.text = el("pre", { class: "screen", tabindex: 0, role: "region", "aria-label": "Screen of the agent" });
    this.note = el("p", { class: "hint" });
    this.root = el("section", { "aria-label": "Screen", hidden: true }, el("h3", {}, "Screen"), this.note, this.text);
    this.onVisibility = () => (document.visibilityState === "visible" ? this.resume() : this.stop());
    document.addEventListener("visibilitychange", this.onVisibility);
  }

  // Show the screen of an agent; "" shows none.
  follow(agent) {
    if (agent === this.agent) return;
    this.stop();
    this.agent = agent;
    this.known = "";
    this.root.hidden = agent === "";
    this.shown = null;
    fill(this.text);
    this.setNote(agent ? "Loading…" : "");
    this.resume();
  }

  close() {
    document.removeEventListener("visibilitychange", this.onVisibility);
    this.follow("");
  }

  stop() {
    this.generation += 1;
    this.aborter?.abort();
    this.aborter = null;
  }

  async resume() {
    if (this.aborter !== null || this.agent === "" || document.visibilityState !== "visible") return;
    const aborter = new AbortController();
    this.aborter = aborter;
    const { generation } = this;
    const free = await takeSlot();
    try {
      await this.readScreens(generation, aborter.signal, free !== null);
    } finally {
      free?.();
    }
  }

  async readScreens(generation, signal, hasSlot) {
    while (generation === this.generation) {
      const begin = Date.now();
      let wait = hasSlot ? PAUSE_MS : RETRY_MS;
      try {
        const got = await readScreen(this.agent, hasSlot ? this.known : "", signal);
        if (generation !== this.generation) return;
        this.draw(got);
        // The bus did not wait for a change, so this loop has to.
        if (got.text === undefined && Date.now() - begin < RETRY_MS) wait = RETRY_MS;
      } catch (error) {
        if (generation !== this.generation) return;
        if (error instanceof Refusal && error.status === 401) return; // The stream shows the sign-in.
        wait = RETRY_MS;
        this.setNote(`Not current: ${oneLine(error.message)}`);
      }
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  draw(got) {
    this.setNote("The live screen of its terminal, read-only.");
    this.known = got.digest;
    if (got.text === undefined || got.text === this.shown) return;
    this.shown = got.text;
    const { scrollTop, scrollLeft } = this.text;
    fill(this.text, got.text.replace(/\s+$/, "") || "(empty)");
    Object.assign(this.text, { scrollTop, scrollLeft });
  }

  setNote(text) {
    if (this.note.textContent !== text) fill(this.note, text);
  }
}
