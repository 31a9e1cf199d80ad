// The state of the bus as the page knows it: a snapshot, and the changes after it. Contains no elements.

const LIMIT_EVENTS = 300;

export class Store {
  constructor() {
    this.seq = 0;
    this.epoch = "";
    this.version = "";
    this.counts = { agents: {} };
    this.agents = new Map();
    this.agentsTotal = 0;
    this.attention = new Map();
    this.talks = new Map();
    this.events = [];
    this.listeners = new Set();
  }

  on(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  notify(change) {
    for (const listener of [...this.listeners]) listener(change);
  }

  // Apply a snapshot or changes. If records before these changes are missing, change nothing and return false.
  apply(record) {
    if (record.epoch !== undefined) {
      this.replace(record);
    } else if (this.epoch === "" || record.after > this.seq) {
      return false;
    } else if (record.seq >= this.seq) {
      this.change(record);
    }
    return true;
  }

  replace(snapshot) {
    const isNewer = snapshot.epoch !== this.epoch || snapshot.seq >= this.seq;
    if (!isNewer) return;
    this.seq = snapshot.seq;
    this.epoch = snapshot.epoch;
    this.version = snapshot.version ?? "";
    this.counts = snapshot.counts ?? { agents: {} };
    this.agents = new Map((snapshot.agents ?? []).map((row) => [row.name, row]));
    this.agentsTotal = snapshot.agents_total ?? this.agents.size;
    this.attention = new Map((snapshot.attention ?? []).map((entry) => [entry.key, entry]));
    this.talks = new Map((snapshot.talks ?? []).map((row) => [row.key, row]));
    this.events = (snapshot.events ?? []).slice(-LIMIT_EVENTS);
    this.notify({ isAll: true, snapshot });
  }

  change(changes) {
    const events = (changes.events ?? []).filter((row) => row.seq > this.seq);
    const news = [];
    for (const row of changes.agents ?? []) this.putAgent(row);
    for (const row of changes.talks ?? []) this.talks.set(row.key, row);
    for (const entry of changes.attention ?? []) {
      if (!this.attention.has(entry.key)) news.push(entry);
      this.attention.set(entry.key, entry);
    }
    for (const key of changes.settled ?? []) this.attention.delete(key);
    if (changes.counts) this.counts = changes.counts;
    this.events = [...this.events, ...events].slice(-LIMIT_EVENTS);
    this.seq = changes.seq;
    this.notify({ ...changes, events, news });
  }

  putAgent(row) {
    const known = this.agents.get(row.name);
    if (known === undefined) this.agentsTotal = Math.max(this.agentsTotal, this.agents.size + 1);
    if (known === undefined || known.seq <= row.seq) this.agents.set(row.name, row);
  }

  // Add the rows of a page. They never replace newer rows.
  addAgents(rows) {
    for (const row of rows) this.putAgent(row);
    this.notify({ agents: rows });
  }

  addAttention(entries) {
    for (const entry of entries) if (!this.attention.has(entry.key)) this.attention.set(entry.key, entry);
    this.notify({ attention: entries });
  }

  addTalks(rows) {
    for (const row of rows) {
      const known = this.talks.get(row.key);
      if (known === undefined || known.seq <= row.seq) this.talks.set(row.key, row);
    }
    this.notify({ talks: rows });
  }

  attentionList() {
    return [...this.attention.values()].sort((one, two) => one.since - two.since || (one.key < two.key ? -1 : 1));
  }

  talkList() {
    return [...this.talks.values()].sort((one, two) => two.seq - one.seq);
  }
}
