// Past: choose a time or a seq, and every screen shows the bus as it was. Nothing can be sent there.

import { el, fill, button, clock, oneLine } from "./dom.js";
import { labelled, facts } from "./parts.js";

export function open(app) {
  const seqInput = el("input", { type: "number", min: 1, step: 1, inputmode: "numeric", required: true });
  const timeInput = el("input", { type: "datetime-local", step: 1 });
  const status = el("p", { class: "hint", tabindex: -1 });
  let isTyped = false;
  seqInput.addEventListener("input", () => { isTyped = true; });
  const summary = el("div", {});
  const back = el("p", { class: "buttons" }, button("Return to now", () => app.leavePast()));

  async function go(wanted) {
    isTyped = false;
    fill(status, "Reading the log. The first time, this takes a while.");
    try {
      await app.enterPast(wanted);
      draw();
    } catch (error) {
      fill(status, oneLine(error.message));
    }
  }

  function draw() {
    back.hidden = !app.past;
    if (!app.past) {
      fill(status, `The newest event is #${app.live.seq}.`);
      fill(summary);
      if (!isTyped) seqInput.value = String(app.live.seq);
      return;
    }
    const { store } = app;
    if (!isTyped) seqInput.value = String(store.seq);
    const states = Object.entries(store.counts.agents ?? {}).map(([state, count]) => `${count} ${state}`).join(", ");
    fill(status, `All screens show the bus at #${store.seq}.`);
    fill(summary, facts([
      ["Seq", `#${store.seq}`],
      ["Time", app.pastTime ? clock(app.pastTime) : ""],
      ["Agents", states || "none"],
      ["Attention", String(store.attention.size)],
      ["Unread", String(store.counts.unread ?? 0)],
    ]));
  }

  const root = el("div", { class: "single" }, el("h2", {}, "Past"),
    el("p", {}, "Choose an event or a time. All screens then show the bus as it was, in a frame, until you return to now."),
    el("form", { class: "line", onsubmit: (event) => { event.preventDefault(); go(Number(seqInput.value)); } },
      labelled("Seq", seqInput), el("button", { type: "submit", class: "primary" }, "Show")),
    el("form", { class: "line", onsubmit: async (event) => {
      event.preventDefault();
      const ts = new Date(timeInput.value).getTime();
      if (Number.isNaN(ts)) {
        fill(status, "Choose a date and a time.");
        return;
      }
      try {
        const { found } = await app.askNow({ what: "seq", ts });
        await go(Math.max(1, found));
      } catch (error) {
        fill(status, oneLine(error.message));
      }
    } }, labelled("Time", timeInput), el("button", { type: "submit" }, "Show")),
    back, status, summary);
  draw();
  return {
    root,
    list: null,
    changed: draw,
    show: () => app.detail(false),
    keys: [["←", "one event back", null], ["→", "one event forward", null]],
  };
}
