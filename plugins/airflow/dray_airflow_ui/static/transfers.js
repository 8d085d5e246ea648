// The transfers of a run or of a task.

import { bytes, clock, element, named, span } from "./text.js";

const ENDED = new Set(["done", "incomplete", "failed", "cancelled"]);

export function isEnded(transfer) {
  return ENDED.has(transfer.state);
}

// Draws all transfers again. Opened details stay open, and the focus stays in its card.
export function drawTransfers(place, answer) {
  const focused = document.activeElement?.closest("details")?.dataset.key;
  const open = new Set([...place.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  const cards = answer.transfers.map((each) => card(each, open));
  if (cards.length === 0) {
    cards.push(element("p", {},
      "No task has started a transfer yet. A transfer appears here when its task has submitted it."));
  }
  if (answer.left_out > 0) {
    cards.push(element("p", {}, `${answer.left_out} older transfers of this run are not shown. ` +
      "The page Transfer of a task shows the transfers of that task."));
  }
  if (answer.unreadable > 0) {
    cards.push(element("p", {}, `The XCom dray_transfer of ${answer.unreadable} tasks is not ` +
      "readable here. A custom backend of XComs may store it elsewhere, or the task has " +
      "written another value."));
  }
  place.replaceChildren(...cards);
  if (focused !== undefined) {
    const same = [...place.querySelectorAll("details")].find((each) => each.dataset.key === focused);
    same?.querySelector("summary").focus({ preventScroll: true });
  }
}

export function drawProblems(place, problems) {
  const key = JSON.stringify(problems);
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...problems.map((each) => element("div", { class: "problem", role: "alert" },
    element("p", {}, element("strong", {}, "The endpoint of the connection "),
      named(each.connection), element("strong", {}, " gave no live state.")),
    element("p", { class: "message" }, each.message),
    element("p", {}, "What to do: ", each.remedy, "."))));
}

function card(each, open) {
  const name = each.map_index >= 0 ? `${each.task_id} [${each.map_index}]` : each.task_id;
  return element("article", { class: `card ${tone(each)}` },
    element("h2", {}, named(name)),
    stateLine(each),
    progress(each, name),
    numbers(each),
    warning(each),
    failures(each),
    details(each, open));
}

function tone(each) {
  if (["failed", "incomplete"].includes(each.state)) return "bad";
  if (each.miss) return "late";
  return each.state === "done" ? "good" : "";
}

function stateLine(each) {
  const state = each.held ? `${each.state}, held: other transfers are more urgent` : each.state;
  const age = { live: "live", endpoint: "last state that the endpoint reported" }[each.origin] ??
    "last state that the task saw";
  return element("p", { class: "state" },
    element("span", { class: "badge" }, state), " ",
    element("span", { class: "origin" }, age, each.origin === "live" ? "" : ", "),
    each.origin === "live" ? null : clock(each.as_of),
    each.why ? element("span", { class: "why" }, `. ${each.why}`) : null);
}

function progress(each, name) {
  const total = each.bytes.listed;
  const isKnown = total > 0 && (each.origin === "task" || each.files.is_listed);
  const share = isKnown ? Math.min(1, each.bytes.durable / total) : each.state === "done" ? 1 : null;
  const bar = element("progress",
    { max: 1, value: share, "aria-label": `durable part of the transfer of ${name}` });
  const percent = share === null ? "size not known yet" : `${Math.floor(share * 100)} %`;
  return element("p", { class: "progress" }, bar, element("span", {}, percent));
}

function numbers(each) {
  const rows = [
    ["Durable", `${bytes(each.bytes.durable)} of ${bytes(each.bytes.listed)}`],
    ["Files", `${each.files.done} of ${each.files.listed}` +
      (each.files.failed ? `, ${each.files.failed} failed` : "")],
  ];
  if (each.rate && !isEnded(each)) rows.push(["Rate", `${bytes(each.rate)}/s`]);
  if (each.planned && !isEnded(each)) rows.push(["Planned rate", `${bytes(each.planned)}/s`]);
  if (each.eta && !isEnded(each)) rows.push(["Expected end", clock(each.eta)]);
  if (each.deadline) {
    rows.push(["Deadline", element("span", {}, clock(each.deadline),
      each.promised ? ", promised" : isEnded(each) ? "" : ", not promised")]);
  }
  if (each.ended) rows.push(["Ended", clock(each.ended)]);
  return list(rows, "numbers");
}

function list(rows, kind) {
  return element("dl", { class: kind },
    ...rows.map(([term, value]) => element("div", {}, element("dt", {}, term),
      element("dd", {}, value))));
}

function warning(each) {
  const lines = [];
  if (each.miss) {
    lines.push(element("p", {}, element("strong", {},
        ENDED.has(each.state) ? "The deadline was missed: " : "The deadline will be missed: "),
      named(each.miss), each.earliest_finish ? ". Earliest end: " : "",
      each.earliest_finish ? clock(each.earliest_finish) : null));
  }
  if (each.silent_seconds) {
    lines.push(element("p", {}, `No data has moved for ${span(each.silent_seconds)}.`));
  }
  return lines.length ? element("div", { class: "warning" }, ...lines) : null;
}

function failures(each) {
  if (!each.error && each.failures.length === 0) return null;
  return element("div", { class: "failure" },
    each.error ? element("p", { class: "message" }, each.error) : null,
    each.failures.length === 0 ? null : element("ul", {},
      ...each.failures.map((one) => element("li", {}, named(one.path), ": ",
        element("span", { class: "message" }, one.error)))));
}

function details(each, open) {
  const key = `${each.task_id} ${each.map_index}`;
  const rows = [["Transfer", named(each.id)], ["Endpoint", named(each.endpoint)]];
  if (each.connection) rows.push(["Connection", named(each.connection)]);
  for (const source of each.sources ?? []) rows.push(["Source", named(source)]);
  if (each.destination) rows.push(["Destination", named(each.destination)]);
  if (each.task_state) rows.push(["Task in Airflow", each.task_state]);
  if (each.bottleneck) rows.push(["Slowest stage", each.bottleneck]);
  if (each.show) rows.push(["In a terminal", element("code", {}, each.show)]);
  if (each.link) rows.push(["At the endpoint", link(each.link)]);
  for (const notice of each.notices) rows.push(["Notice", named(notice)]);
  return element("details", { "data-key": key, open: open.has(key) ? "" : null },
    element("summary", {}, "Details"), list(rows, "facts"));
}

// Airflow shows this page in a frame that may not open other pages. There, the address is text, and
// the button of Airflow's page of the task opens it.
function link(address) {
  if (window.top !== window.self) return element("code", { class: "address" }, address);
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, address);
}
