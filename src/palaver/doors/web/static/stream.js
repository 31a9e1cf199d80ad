// The stream of changes: one connection for all tabs of this browser, because a browser opens only six.
//
// The tab that has the lock reads the stream and passes each record on. When it closes, another one continues.

import { headers, view, Away, Refusal } from "./api.js";

const CHANNEL = "palaver-records";
const LOCK = "palaver-stream";
const SILENT_MS = 45_000; // three beats of the bus
const WAITS_MS = [250, 500, 1000, 2000, 4000];

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export class Stream {
  // `store.apply(record)` returns false if records are missing; `state` is up, away or signed-out.
  constructor(store, onState) {
    this.store = store;
    this.onState = onState;
    this.heard = Date.now();
    this.isLeader = false;
    this.isOver = false;
    this.loading = null;
    this.kept = []; // records that came while a snapshot was loaded
    this.cutter = null;
    this.channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(CHANNEL) : null;
  }

  start() {
    if (this.channel === null || !navigator.locks) {
      this.lead();
      return;
    }
    this.channel.onmessage = (event) => this.hear(event.data);
    this.follow();
    this.wantLock({});
    setInterval(() => this.watch(), 5000);
  }

  wantLock(options) {
    navigator.locks.request(LOCK, options, () => this.lead()).catch(() => this.demote());
  }

  // Another tab has taken the lock, because this one was silent.
  demote() {
    this.isLeader = false;
    this.cutter?.abort();
    if (!this.isOver) this.wantLock({});
  }

  // A tab that does not lead.

  async follow() {
    for (let tries = 0; !this.isLeader && !this.isOver && this.store.epoch === ""; tries += 1) {
      await this.reload();
      if (this.store.epoch === "") await pause(WAITS_MS[Math.min(tries, WAITS_MS.length - 1)]);
    }
  }

  reload() {
    this.loading ??= view()
      .then((snapshot) => { this.store.apply(snapshot); this.say("up"); }, (error) => this.failed(error))
      .finally(() => {
        this.loading = null;
        const kept = this.kept.splice(0);
        if (this.store.epoch !== "") for (const record of kept) this.hear({ record });
      });
    return this.loading;
  }

  hear(message) {
    this.heard = Date.now();
    if (this.isLeader) return;
    if (message.state) this.onState(message.state);
    if (message.record && this.loading) this.kept.push(message.record);
    else if (message.record && !this.store.apply(message.record)) this.reload();
  }

  watch() {
    if (this.isLeader || this.isOver || Date.now() - this.heard < SILENT_MS) return;
    this.heard = Date.now();
    this.wantLock({ steal: true });
  }

  // The tab that leads.

  async lead() {
    this.isLeader = true;
    for (let tries = 0; this.isLeader && !this.isOver;) {
      try {
        await this.read(() => { tries = 0; });
        this.say("away");
      } catch (error) {
        if (this.isLeader) this.failed(error);
      }
      if (this.isOver || !this.isLeader) return;
      await pause(WAITS_MS[Math.min(tries, WAITS_MS.length - 1)]);
      tries += 1;
    }
  }

  async read(connected) {
    const { seq, epoch } = this.store;
    const cutter = new AbortController();
    this.cutter = cutter;
    let timer = setTimeout(() => cutter.abort(), SILENT_MS);
    const alive = () => { clearTimeout(timer); timer = setTimeout(() => cutter.abort(), SILENT_MS); };
    try {
      const response = await fetch(`/events?epoch=${encodeURIComponent(epoch)}`, {
        headers: headers({
          Accept: "text/event-stream",
          "X-Palaver-Idle": "1",
          ...(seq ? { "Last-Event-ID": String(seq) } : {}),
        }),
        cache: "no-store",
        signal: cutter.signal,
      });
      if (!response.ok) throw new Refusal(response.status, "", "");
      connected();
      this.say("up");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done || !this.isLeader) return;
        alive();
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) this.take(part);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  take(part) {
    const line = part.split("\n").find((one) => one.startsWith("data: "));
    if (line === undefined) {
      this.channel?.postMessage({});
      return;
    }
    const record = JSON.parse(line.slice(6));
    if (!this.store.apply(record)) throw new Away("records are missing");
    this.channel?.postMessage({ record });
  }

  failed(error) {
    if (error instanceof Refusal && error.status === 401) {
      this.isOver = true;
      this.say("signed-out");
    } else {
      this.say("away");
    }
  }

  say(state) {
    this.onState(state);
    if (this.isLeader) this.channel?.postMessage({ state });
  }
}
