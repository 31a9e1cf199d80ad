// Agents: the list, one opened agent, and actions for selected agents.

import { el, fill, button, name, clock, oneLine, code } from "./dom.js";
import { FixedList } from "./lists.js";
import { LiveScreen } from "./screen.js";
import { Composer, attempt, outcome, facts, question, since, message, labelled, select, commandLine } from "./parts.js";

const STATE_ORDER = { blocked: 0, active: 1, starting: 2, idle: 3, exited: 4 };
const PAGE_ROWS = 500;

export function open(app) {
  const detail = el("section", { class: "detail", "aria-label": "Agent", tabindex: 0 });
  const filter = el("input", { type: "search", autocomplete: "off", spellcheck: "false", oninput: () => draw() });
  const sort = select([
    ["name", "name"],
    ["state", "state"],
    ["since", "longest in this state"],
    ["unread", "unread"],
    ["harness", "harness"],
  ], { onchange: () => draw() });
  const withSub = el("input", { type: "checkbox", checked: false, onchange: () => draw() });
  const withLeft = el("input", { type: "checkbox", checked: false, onchange: () => draw() });
  const count = el("p", { class: "hint" });
  const bar = el("div", { class: "bar" });
  const result = outcome();
  const head = el("div", {});
  const sections = el("div", {});
  const screen = new LiveScreen();
  let opened = "";
  let loads = 0;
  let timer = null;
  let isStale = false;
  let isReplaced = false;

  const list = new FixedList("Agents", {
    class: "two",
    canChoose: true,
    key: (row) => row.name,
    empty: "No agents.",
    onOpen: (key) => app.go("agents", key),
    onChosen: () => drawBar(),
    onMove: () => drawBar(),
    row: (row) => [
      el("span", { class: "pick", "aria-hidden": "true" }, list.chosen.has(row.name) ? "☑" : "☐"),
      el("p", { class: "head" }, row.parent ? "└ " : "", el("b", {}, name(row.name)), " ",
        el("span", { class: `chip state-${row.state}` }, state(row)),
        row.harness ? el("span", { class: "quiet" }, row.harness) : null,
        el("span", { class: "side" },
          row.unread ? el("span", { class: "chip new" }, `${row.unread} unread`) : null,
          since(row.since))),
      el("p", { class: "cut" }, [
        row.doing,
        row.waits_for ? `waits for ${row.waits_for}` : "",
        row.rooms?.length ? `#${row.rooms.join(" #")}` : "",
        row.folder,
        row.last,
      ].filter(Boolean).map(oneLine).join(" · ") || "–"),
    ],
  });

  function rows() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (row) => {
      const fields = [row.name, row.harness, row.state, row.tag, row.doing, row.folder, ...(row.rooms ?? [])];
      const text = fields.join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const found = [...app.store.agents.values()].filter((row) => (
      (withLeft.checked || !row.has_left)
      && (withSub.checked || !row.parent || words.length > 0)
      && matches(row)
    ));
    const compare = {
      name: () => 0,
      state: (one, two) => (STATE_ORDER[one.state] ?? 9) - (STATE_ORDER[two.state] ?? 9),
      since: (one, two) => one.since - two.since,
      unread: (one, two) => (two.unread ?? 0) - (one.unread ?? 0),
      harness: (one, two) => (one.harness ?? "").localeCompare(two.harness ?? ""),
    }[sort.value];
    const sortKey = (row) => (row.parent ? `${row.parent}\u0000${row.name}` : row.name);
    return found.sort((one, two) => compare(one, two) || (sortKey(one) < sortKey(two) ? -1 : 1));
  }

  // A long list is drawn at most four times a second: thousands of agents may change all the time.
  function changed(change) {
    if (!change.isAll && !change.agents?.length) return;
    isStale ||= Boolean(change.isAll) || Boolean(change.agents?.some((row) => row.name === opened));
    isReplaced ||= Boolean(change.isAll);
    if (timer !== null) return;
    const wait = app.store.agents.size > 500 ? 250 : 0;
    timer = setTimeout(() => {
      timer = null;
      draw({ isAll: isReplaced, isStale });
      isStale = isReplaced = false;
    }, wait);
  }

  function draw(change) {
    const found = rows();
    list.set(found);
    fill(count, `${found.length} of ${Math.max(app.store.agentsTotal, app.store.agents.size)} agents`);
    drawBar();
    if (change?.isAll) load();
    if (opened && change?.isStale) show(opened, true);
  }

  async function load() {
    const { store } = app;
    loads += 1;
    const thisLoad = loads;
    for (let after = "", more = store.agents.size < store.agentsTotal; more && thisLoad === loads;) {
      try {
        const page = await app.ask({ what: "agents", after, limit: PAGE_ROWS });
        store.addAgents(page.rows);
        after = page.rows.at(-1)?.name ?? "";
        more = Boolean(page.has_more) && after !== "";
      } catch {
        return;
      }
    }
  }

  const selected = () => (list.chosen.size > 0 ? [...list.chosen].sort() : list.cursor ? [list.cursor] : []);

  function drawBar() {
    const names = selected();
    if (!app.canAct || names.length === 0) {
      fill(bar, app.canAct
        ? el("span", { class: "hint" }, "Space selects agents. Actions apply to all selected agents.")
        : null);
      return;
    }
    const label = names.length === 1 ? names[0] : `${names.length} agents`;
    fill(bar, el("span", {}, `${oneLine(label)}:`),
      button("Message", () => compose(names)),
      button("Pause", () => actOn("pause", names)),
      button("Unpause", () => actOn("unpause", names)),
      button("Tag", () => tag(names)),
      button("Stop", () => actOn("stop", names), { class: "danger" }),
      list.chosen.size
        ? button("Select none", () => { list.chosen.clear(); list.draw(); drawBar(); }, { class: "small" })
        : null);
  }

  const nameList = (names) => el("ul", { class: "names" }, names.map((one) => el("li", {}, name(one))));

  async function actOn(verb, names) {
    const label = verb[0].toUpperCase() + verb.slice(1);
    const isSure = await question(`${label} ${names.length === 1 ? "this agent" : `these ${names.length} agents`}?`,
      [nameList(names), el("p", {}, "Command for a terminal: ", commandLine(["pal", verb, ...names]))], label);
    if (isSure) attempt(result, () => app.act({ do: verb, names }));
  }

  async function tag(names) {
    const field = el("input", { type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
    const isSure = await question("Tag these agents?", [nameList(names), labelled("Tag (empty removes it)", field)], "Tag");
    if (isSure) attempt(result, () => app.act({ do: "tag", names, tag: field.value.trim() }));
  }

  function compose(names) {
    const composer = new Composer(app, { to: names.map((one) => `@${one}`).join(" ") });
    opened = "";
    screen.follow("");
    app.detail(true);
    fill(detail, el("h2", {}, "New message"), composer.root);
    composer.text.focus();
  }

  async function show(key, isReload = false) {
    opened = key;
    app.detail(key !== "");
    if (!key) {
      screen.follow("");
      fill(detail, el("p", { class: "quiet" }, "Choose an agent to see it here."), launchHint());
      return;
    }
    list.cursor = key;
    list.drawLater();
    drawBar();
    if (!isReload || !detail.contains(head)) {
      screen.follow("");
      fill(head, el("h2", {}, name(key)), el("p", {}, "Loading…"));
      fill(sections);
      fill(detail, head, screen.root, sections);
    }
    try {
      const page = await app.ask({ what: "agent", name: key });
      if (opened !== key) return;
      const { row } = page;
      fill(head,
        el("h2", {}, name(row.name), " ", el("span", { class: `chip state-${row.state}` }, state(row))),
        facts([
          ["Harness", row.harness],
          ["Doing", row.doing],
          ["Since", clock(row.since)],
          ["Waits for", row.waits_for],
          ["Role", row.role],
          ["Tag", row.tag],
          ["Sub-agent of", row.parent],
          ["Rooms", row.rooms?.join(", ")],
          ["Folder", row.folder],
        ]),
        row.has_terminal ? el("p", {}, "Its terminal: ", commandLine(["pal", "attach", row.name])) : null);
      screen.follow(row.has_terminal && !app.past ? row.name : "");
      fill(sections,
        el("h3", {}, `Waiting messages (${page.queue_total ?? page.queue?.length ?? 0})`),
        page.queue?.length
          ? el("ul", { class: "cards" }, page.queue.map((one) => el("li", {},
            el("p", { class: "head" }, `#${one.seq} `, name(one.sender), " ",
              el("span", { class: "chip" }, one.state),
              el("span", { class: "side" }, clock(one.ts))),
            el("p", { class: "cut" }, oneLine(one.text)),
            el("p", { class: "why" }, one.reason.text),
            el("p", { class: "hint" }, one.reason.moves))))
          : el("p", { class: "quiet" }, "None."),
        el("h3", {}, "Newest messages"),
        page.messages?.length
          ? el("ul", { class: "cards" }, page.messages.slice(-50).map((one) => el("li", { class: "message" }, message(one))))
          : el("p", { class: "quiet" }, "None."));
    } catch (error) {
      if (opened === key) fill(head, el("h2", {}, name(key)), el("p", { class: "bad" }, oneLine(error.message)));
    }
  }

  const root = el("div", { class: "split" },
    el("div", { class: "master" }, el("h2", {}, "Agents"),
      el("div", { class: "line" }, labelled("Filter", filter), labelled("Sort by", sort),
        el("label", { class: "check" }, withSub, "sub-agents"),
        el("label", { class: "check" }, withLeft, "left")),
      count, list.root, bar, result), detail);
  draw();
  load();
  return {
    root, list, show, filter,
    changed,
    close: () => { clearTimeout(timer); screen.close(); },
    keys: [
      ["Space", "select or unselect the agent", null],
      ["m", "message the selected agents", () => { if (app.canAct && selected().length) compose(selected()); }],
      ["p", "pause the selected agents", () => { if (app.canAct && selected().length) actOn("pause", selected()); }],
      ["u", "unpause the selected agents", () => { if (app.canAct && selected().length) actOn("unpause", selected()); }],
      ["s", "stop the selected agents", () => { if (app.canAct && selected().length) actOn("stop", selected()); }],
      ["/", "filter", () => filter.focus()],
    ],
  };
}

function state(row) {
  return [
    row.has_left ? "left" : row.state,
    row.is_paused ? "paused" : "",
    row.is_stale ? "silent" : "",
    !row.is_present && !row.has_left ? "away" : "",
  ].filter(Boolean).join(", ");
}

function launchHint() {
  return el("div", { class: "boxed" }, el("p", {}, "Agents are started at a terminal, in the folder they work in:"),
    el("ul", { class: "commands" },
      el("li", {}, code("pal claude --name luna --tag api")),
      el("li", {}, code("pal codex --name nova"))));
}
