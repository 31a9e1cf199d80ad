// The live screen of an agent, read-only and as text. The bus answers when it has changed, so nothing is polled;
// nothing is asked while the agent is not opened, the tab is hidden, or the past is shown.

import { el, fill, oneLine } from "./dom.js";
import { screen as read, Refusal } from "./api.js";

const PAUSE_MS = 300; // between two screens of a program that writes all the time
const RETRY_MS = 3000;

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
    while (turn === this.turn) {
      let wait = PAUSE_MS;
      try {
        const got = await read(this.agent, this.known, cutter.signal);
        if (turn !== this.turn) return;
        this.draw(got);
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
    if (got.text === undefined) return;
    const { scrollTop, scrollLeft } = this.text;
    fill(this.text, got.text.replace(/\s+$/, "") || "(empty)");
    Object.assign(this.text, { scrollTop, scrollLeft });
  }

  say(text) {
    if (this.note.textContent !== text) fill(this.note, text);
  }
}
