// The stream of changes. All tabs share one connection, because a browser opens only six to the bus.
//
// The tab that has the lock reads the stream and sends each record to the others. When it closes, another tab
// continues.

import { headers, view, Refusal } from "./api.js";

const CHANNEL = "palaver-records";
const LOCK = "palaver-stream";
const SILENT_MS = 45_000; // three heartbeats of the bus
const RETRY_DELAYS_MS = [250, 500, 1000, 2000, 4000];

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export class Stream {
  // `store.apply(record)` returns false if records are missing. `onState` receives up, away or signed-out.
  constructor(store, onState) {
    this.store = store;
    this.onState = onState;
    this.receivedMs = Date.now();
    this.isLeader = false;
    this.isSignedOut = false;
    this.loading = null;
    this.pending = []; // records received while a snapshot is loading
    this.aborter = null;
    this.channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(CHANNEL) : null;
  }

  start() {
    if (this.channel === null || !navigator.locks) {
      this.lead();
      return;
    }
    this.channel.onmessage = (event) => this.receive(event.data);
    this.follow();
    this.requestLock({});
    setInterval(() => this.checkLeader(), 5000);
  }

  requestLock(options) {
    navigator.locks.request(LOCK, options, () => this.lead()).catch(() => this.demote());
  }

  // Another tab has taken the lock, because this tab sent no records.
  demote() {
    this.isLeader = false;
    this.aborter?.abort();
    if (!this.isSignedOut) this.requestLock({});
  }

  // Methods of the tabs that do not lead.

  async follow() {
    for (let tries = 0; !this.isLeader && !this.isSignedOut && this.store.epoch === ""; tries += 1) {
      await this.reload();
      if (this.store.epoch === "") await pause(RETRY_DELAYS_MS[Math.min(tries, RETRY_DELAYS_MS.length - 1)]);
    }
  }

  reload() {
    this.loading ??= view()
      .then((snapshot) => { this.store.apply(snapshot); this.setState("up"); }, (error) => this.failed(error))
      .finally(() => {
        this.loading = null;
        const pending = this.pending.splice(0);
        if (this.store.epoch !== "") for (const record of pending) this.receive({ record });
      });
    return this.loading;
  }

  receive(message) {
    this.receivedMs = Date.now();
    if (this.isLeader) return;
    if (message.state) this.onState(message.state);
    if (message.record && this.loading) this.pending.push(message.record);
    else if (message.record && !this.store.apply(message.record)) this.reload();
  }

  checkLeader() {
    if (this.isLeader || this.isSignedOut || Date.now() - this.receivedMs < SILENT_MS) return;
    this.receivedMs = Date.now();
    this.requestLock({ steal: true });
  }

  // Methods of the tab that leads.

  async lead() {
    this.isLeader = true;
    for (let tries = 0; this.isLeader && !this.isSignedOut;) {
      try {
        await this.read(() => { tries = 0; });
        this.setState("away");
      } catch (error) {
        if (this.isLeader) this.failed(error);
      }
      if (this.isSignedOut || !this.isLeader) return;
      await pause(RETRY_DELAYS_MS[Math.min(tries, RETRY_DELAYS_MS.length - 1)]);
      tries += 1;
    }
  }

  async read(connected) {
    const { seq, epoch } = this.store;
    const aborter = new AbortController();
    this.aborter = aborter;
    let timer = setTimeout(() => aborter.abort(), SILENT_MS);
    const restartTimer = () => { clearTimeout(timer); timer = setTimeout(() => aborter.abort(), SILENT_MS); };
    try {
      const response = await fetch(`/events?epoch=${encodeURIComponent(epoch)}`, {
        headers: headers({
          Accept: "text/event-stream",
          "X-Palaver-Idle": "1", // the page reconnects by itself, which is no use by a person
          ...(seq ? { "Last-Event-ID": String(seq) } : {}),
        }),
        cache: "no-store",
        signal: aborter.signal,
      });
      if (!response.ok) throw new Refusal(response.status, "", "");
      connected();
      this.setState("up");
      // A decoder that keeps its state, because a character may come in two pieces.
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let remainder = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done || !this.isLeader) return;
        restartTimer();
        const parts = (remainder + value).split("\n\n");
        remainder = parts.pop();
        for (const part of parts) this.handle(part);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  handle(part) {
    const line = part.split("\n").find((one) => one.startsWith("data: "));
    if (line === undefined) {
      this.channel?.postMessage({});
      return;
    }
    const record = JSON.parse(line.slice(6));
    if (!this.store.apply(record)) throw new Error("records are missing");
    this.channel?.postMessage({ record });
  }

  failed(error) {
    if (error instanceof Refusal && error.status === 401) {
      this.isSignedOut = true;
      this.setState("signed-out");
    } else {
      this.setState("away");
    }
  }

  setState(state) {
    this.onState(state);
    if (this.isLeader) this.channel?.postMessage({ state });
  }
}
