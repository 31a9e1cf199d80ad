// Rooms: members, the stick and its lease, the waiting line, handoffs, notes and tasks.

import { el, fill, name, clock, span, oneLine } from "./dom.js";
import { FixedList } from "./lists.js";
import { facts, table } from "./parts.js";

export function open(app) {
  const detail = el("section", { class: "detail", "aria-label": "Room", tabindex: 0 });
  let opened = "";
  let rows = [];

  const list = new FixedList("Rooms", {
    class: "two",
    key: (row) => row.id,
    empty: "No rooms.",
    onOpen: (key) => app.go("rooms", key),
    row: (row) => [
      el("p", { class: "head" },
        el("b", {}, oneLine(row.name)), " ",
        el("span", { class: `chip stick-${row.stick}` }, stick(row)),
        el("span", { class: "side" }, `${row.present ?? 0} of ${row.members ?? 0} here`)),
      el("p", { class: "cut" }, oneLine(row.path)),
    ],
  });

  async function load() {
    try {
      rows = (await app.ask({ what: "rooms" })).rows;
      list.set(rows);
      if (opened) show(opened);
    } catch {
      // The next snapshot loads them.
    }
  }

  async function show(key) {
    opened = key;
    app.detail(key !== "");
    if (!key) {
      fill(detail, el("p", { class: "quiet" }, "Choose a room to see it here."));
      return;
    }
    list.cursor = key;
    list.drawLater();
    try {
      const page = await app.ask({ what: "room", id: key });
      if (opened !== key) return;
      const { row } = page;
      const members = [...(page.members ?? [])];
      const line = members.filter((one) => one.place).sort((one, two) => one.place - two.place);
      fill(detail, el("h2", {}, oneLine(row.name)),
        facts([
          ["Path", row.path],
          ["Stick", stick(row)],
          ["Turn", page.turn || ""],
          ["Lease", row.lease_until ? lease(row.lease_until) : ""],
          ["Reserved until", row.claim_until ? clock(row.claim_until) : ""],
          ["Waiting line", line.length
            ? line.map((one, index) => [index ? ", " : "", name(one.name)])
            : "no agent is waiting"],
        ]),
        el("h3", {}, `Members (${members.length})`),
        members.length > 100 ? el("p", { class: "hint" }, "The first 100 are shown.") : null,
        table(["Name", "State", "Here", "Stick", "Last turn"], members.slice(0, 100).map((one) => [
          name(one.name),
          one.state ?? "",
          one.is_present ? "yes" : "no",
          one.is_owner ? "owner" : one.place ? `number ${one.place} in the waiting line` : "",
          one.last_turn ? String(one.last_turn) : "",
        ])),
        el("h3", {}, "Handoffs"),
        page.handoffs?.length
          ? page.handoffs.slice(0, 20).map((one, index) => el("article", { class: "card" },
            el("p", { class: "head" },
              `#${one.seq} `,
              name(one.sender),
              one.to ? [" → ", name(one.to)] : null,
              index === 0 && page.is_handoff_open ? el("span", { class: "chip" }, "open") : null,
              el("span", { class: "side" }, clock(one.ts))),
            facts(Object.entries(one.handoff ?? {}).map(([label, value]) => (
              [label.replaceAll("_", " "), handoffText(value)]
            )))))
          : el("p", { class: "quiet" }, "None."),
        el("h3", {}, "Notes"),
        page.notes?.length
          ? el("ul", { class: "cards" }, page.notes.slice(0, 50).map((one) => el("li", {},
            el("p", { class: "head" },
              name(one.sender),
              one.is_resolved ? el("span", { class: "chip" }, "resolved") : null,
              el("span", { class: "side" }, clock(one.ts))),
            el("div", { class: "text" }, one.text))))
          : el("p", { class: "quiet" }, "None."),
        el("h3", {}, "Tasks"),
        page.tasks?.length
          ? el("ul", { class: "cards" }, page.tasks.slice(0, 50).map((one) => el("li", {},
            `task ${one.number}: ${oneLine(one.title)} `,
            el("span", { class: "chip" }, one.status),
            one.assignee ? [" for ", name(one.assignee)] : null)))
          : el("p", { class: "quiet" }, "None."));
    } catch (error) {
      if (opened === key) fill(detail, el("p", { class: "bad" }, oneLine(error.message)));
    }
  }

  function changed(change) {
    if (change.isAll || change.rooms?.length) load();
  }

  const timer = setInterval(() => {
    for (const one of detail.querySelectorAll("[data-until]")) fill(one, remaining(Number(one.dataset.until)));
  }, 1000);

  const root = el("div", { class: "split" }, el("div", { class: "master" }, el("h2", {}, "Rooms"), list.root), detail);
  load();
  return { root, list, show, changed, keys: [], close: () => clearInterval(timer) };
}

function stick(row) {
  if (row.stick === "owned") return `${oneLine(row.owner)} has the stick`;
  if (row.stick === "reserved") return `reserved for ${oneLine(row.reserved_for)}`;
  return row.stick;
}

const remaining = (until) => (
  until > Date.now() ? `${span(until - Date.now())} left` : `ended ${span(Date.now() - until)} ago`
);
const lease = (until) => el("span", { "data-until": until }, remaining(until));

// Return a value of a handoff as text: a list has a line for each item, and an object has the name of each field.
function handoffText(value) {
  if (Array.isArray(value)) return value.map(handoffText).join("\n");
  if (typeof value !== "object" || value === null) return String(value ?? "");
  return Object.entries(value)
    .map(([label, one]) => `${label}: ${typeof one === "object" ? JSON.stringify(one) : one}`)
    .join(", ");
}
