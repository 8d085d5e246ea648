// The deadline plan of a run: the graph of tasks as SVG, and the same facts as a table.

import { bytes, clock, element, named, shortTime, span, visible } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const BOX = { width: 216, height: 86, right: 56, below: 20, edge: 12 };
const NAME_MAX = 26;

function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function label(text, x, y, kind) {
  return shape("text", { x, y, class: kind }, document.createTextNode(visible(text)));
}

function cut(text) {
  const letters = [...visible(text)];
  return letters.length > NAME_MAX ? `${letters.slice(0, NAME_MAX - 1).join("")}…` : letters.join("");
}

// Returns the column of each task: one more than the last column of the tasks before it.
function columns(tasks) {
  const byId = new Map(tasks.map((each) => [each.id, each]));
  const found = new Map();
  const left = new Map(tasks.map((each) => [each.id, each.upstream.length]));
  const after = new Map(tasks.map((each) => [each.id, []]));
  for (const each of tasks) for (const before of each.upstream) after.get(before)?.push(each.id);
  const ready = tasks.filter((each) => each.upstream.length === 0).map((each) => each.id);
  while (ready.length > 0) {
    const id = ready.shift();
    const before = byId.get(id).upstream.map((each) => found.get(each) ?? 0);
    found.set(id, before.length ? Math.max(...before) + 1 : 0);
    for (const next of after.get(id)) {
      left.set(next, left.get(next) - 1);
      if (left.get(next) === 0) ready.push(next);
    }
  }
  return found;
}

// In the order in which the tasks can run, so that readers of the table can follow the graph.
function inOrder(tasks) {
  const column = columns(tasks);
  return [...tasks].sort((a, b) => column.get(a.id) - column.get(b.id));
}

// Returns the place of each box. A task is beside the mean height of the tasks before it, as far as
// the other boxes of its column permit.
function places(tasks) {
  const column = columns(tasks);
  const rows = new Map();
  const found = new Map();
  for (const each of inOrder(tasks)) {
    const x = column.get(each.id) ?? 0;
    const before = each.upstream.map((id) => found.get(id)?.row ?? 0);
    const wanted = before.length ? before.reduce((a, b) => a + b, 0) / before.length : 0;
    const row = Math.max(rows.get(x) ?? 0, wanted);
    rows.set(x, row + 1);
    found.set(each.id, {
      row,
      x: BOX.edge + x * (BOX.width + BOX.right),
      y: BOX.edge + row * (BOX.height + BOX.below),
    });
  }
  return found;
}

function lines(each) {
  if (["done", "skipped", "failed"].includes(each.state)) return [each.state];
  const found = [each.instances > 1
    ? `${each.state}, ${each.instances_done} of ${each.instances}` : each.state];
  if (each.latest_start) {
    found.push(each.state === "running"
      ? `done by ${shortTime(new Date(each.latest_finish))}`
      : `start by ${shortTime(new Date(each.latest_start))}`);
    found.push(promise(each) || `slack ${span(each.slack_seconds)}`);
  }
  return found;
}

function promise(each) {
  if (!each.promised_finish) return "";
  if (each.miss) return isOver(each) ? "missed its deadline" : "will miss its deadline";
  const by = shortTime(new Date(each.promised_finish));
  return each.promised ? `promised for ${by}` : `not promised for ${by}`;
}

function isOver(each) {
  return ["done", "skipped", "failed"].includes(each.state);
}

function tone(each) {
  if (each.state === "failed") return "bad";
  if (each.miss || each.slack_seconds < 0) return "late";
  if (isOver(each)) return "ended";
  return each.is_critical ? "critical" : "";
}

function box(each, place) {
  const title = shape("title", {}, document.createTextNode(visible(each.id)));
  const texts = lines(each).map((text, index) => label(text, place.x + 12, place.y + 42 + index * 16,
    "small"));
  const kind = `box ${tone(each)} ${each.is_transfer ? "transfer" : ""}`;
  return shape("g", { class: kind }, title,
    shape("rect", { x: place.x, y: place.y, width: BOX.width, height: BOX.height, rx: 6 }),
    label(cut(each.id), place.x + 12, place.y + 23, "task"), ...texts);
}

function edge(from, to, isCritical) {
  const [x1, y1] = [from.x + BOX.width, from.y + BOX.height / 2];
  const [x2, y2] = [to.x - 7, to.y + BOX.height / 2];
  const bend = (x2 - x1) / 2;
  return shape("path", {
    d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`,
    class: isCritical ? "edge critical" : "edge",
    "marker-end": isCritical ? "url(#tip-critical)" : "url(#tip)",
  });
}

function tip(id, kind) {
  return shape("marker", {
    id, viewBox: "0 0 8 8", refX: 2, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto",
    markerUnits: "userSpaceOnUse",
  }, shape("path", { d: "M0,0 L8,4 L0,8 z", class: kind }));
}

function graph(plan) {
  const at = places(plan.tasks);
  const byId = new Map(plan.tasks.map((each) => [each.id, each]));
  const edges = plan.tasks.flatMap((each) => each.upstream.filter((id) => at.has(id)).map((id) =>
    edge(at.get(id), at.get(each.id), each.is_critical && byId.get(id).is_critical)));
  const boxes = plan.tasks.map((each) => box(each, at.get(each.id)));
  const all = [...at.values()];
  const width = Math.max(...all.map((each) => each.x)) + BOX.width + BOX.edge;
  const height = Math.max(...all.map((each) => each.y)) + BOX.height + BOX.edge;
  const drawing = shape("svg", {
    width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "Graph of the tasks. The table below has the same times.",
  }, shape("defs", {}, tip("tip", "tip"), tip("tip-critical", "tip critical")), ...edges, ...boxes);
  // A region that scrolls must be reachable with the keyboard.
  return element("div", { class: "graph", tabindex: 0, role: "group", "aria-label": "Graph" },
    drawing);
}

function table(plan) {
  const heads = ["Task", "After", "State", "Start by", "Done by", "Expected duration", "Slack",
    "Promise of the endpoint"];
  const rows = inOrder(plan.tasks).map((each) => element("tr", { class: tone(each) },
    element("th", { scope: "row" }, named(each.id), each.is_critical ? " (longest path)" : ""),
    element("td", {}, ...each.upstream.flatMap((id, at) => (at ? [", ", named(id)] : [named(id)]))),
    element("td", {}, lines(each)[0]),
    element("td", {}, each.latest_start && each.state !== "running" ? clock(each.latest_start) : ""),
    element("td", {}, each.latest_finish ? clock(each.latest_finish) : ""),
    element("td", {}, each.latest_finish ? `${span(each.seconds)} (${each.basis})` : ""),
    element("td", {}, each.latest_finish ? span(each.slack_seconds) : ""),
    element("td", {}, each.miss ? `${promise(each)}: ${each.miss}` : promise(each))));
  return element("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Table" },
    element("table", {},
      element("caption", {}, "Times of the tasks"),
      element("thead", {}, element("tr", {},
        ...heads.map((each) => element("th", { scope: "col" }, each)))),
      element("tbody", {}, ...rows)));
}

function summary(plan) {
  const isLate = plan.slack_seconds < 0;
  const isOver = plan.critical.length === 0;
  let end = `Expected end: ${span(Math.abs(plan.slack_seconds))} ` +
    `${isLate ? "after" : "before"} the deadline.`;
  if (isOver) {
    end = "All tasks that count for the deadline have ended.";
  } else if (!isLate && plan.rate_common) {
    // The plan stretches transfers of unknown duration until the deadline.
    end = "The run meets its deadline if its next transfers get at least " +
      `${bytes(plan.rate_common)}/s.`;
  }
  const guessed = [];
  if (plan.unknown.length > 0) {
    guessed.push(element("p", {}, "Tasks of unknown duration, which count as 0 s: ",
      plan.unknown.join(", "), ". Declare their durations with expect()."));
  }
  if (plan.estimated.length > 0) {
    guessed.push(element("p", {}, "Transfers of unknown size, which get equal shares of the time: ",
      plan.estimated.join(", "), ". Set bytes_expected."));
  }
  return element("div", { class: `summary ${isLate && !isOver ? "late" : ""}` },
    element("p", {}, "Deadline ", clock(plan.deadline),
      " from ", named(plan.source), ". ", element("strong", {}, end)),
    ...guessed);
}

// Draws the plan again. `isWholeDag`: the title of the page names the DAG and not the run.
export function drawPlan(place, answer, isWholeDag) {
  const scrolled = place.querySelector(".graph")?.scrollLeft ?? 0;
  const head = isWholeDag && answer.plan !== null
    ? element("h2", {}, "Run ", named(answer.plan.run_id)) : element("h2", {}, "Deadline plan");
  if (answer.plan === null) {
    place.replaceChildren(head, element("p", {}, answer.why || "There is no plan yet. A run has a " +
      "plan if it has a deadline, and if one of its transfer tasks or its DrayAdmitOperator has " +
      "started. A DAG of more than 500 tasks has no plan."));
    return;
  }
  place.replaceChildren(head, summary(answer.plan), graph(answer.plan), table(answer.plan));
  place.querySelector(".graph").scrollLeft = scrolled;
}
