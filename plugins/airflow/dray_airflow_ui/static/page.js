// Reads the names in the address of the page, and asks the API server every few seconds.

import { drawPlan } from "./plan.js";
import { named, shortTime } from "./text.js";
import { drawProblems, drawTransfers, isEnded } from "./transfers.js";

const LIVE_MS = 2000;
const ENDED_MS = 15000;
const FAILED_MS = 5000;
const PLAN_MS = 10000;

const find = (id) => document.getElementById(id);
const given = new URLSearchParams(window.location.search);
const names = Object.fromEntries(["dag_id", "run_id", "task_id"].map((name) =>
  [name, given.get(name) ?? ""]));
// For a task that is not mapped, Airflow does not replace the mark {MAP_INDEX}.
const index = given.get("map_index") ?? "";
if (/^\d+$/.test(index)) names.map_index = index;

function useColoursOfAirflow() {
  try {
    // Airflow shows this page in a frame of the same origin.
    const root = window.parent.document.documentElement;
    if (window.parent === window) return;
    const follow = () => {
      document.documentElement.dataset.colours = root.classList.contains("dark") ? "dark" : "light";
    };
    follow();
    new MutationObserver(follow).observe(root, { attributeFilter: ["class"] });
  } catch {
    // A page of another origin: the colours of the browser apply.
  }
}

class Refusal extends Error {}

async function ask(what, tags) {
  const query = new URLSearchParams(Object.entries(names).filter(([, value]) => value !== ""));
  const headers = tags.has(what) ? { "If-None-Match": tags.get(what) } : {};
  const answer = await fetch(`api/${what}?${query}`, { headers, credentials: "same-origin" });
  if (answer.status === 304) return null;
  if (answer.status === 401) {
    throw new Refusal("Your session in Airflow has ended. Log in to Airflow again.");
  }
  if (answer.status === 403) {
    throw new Refusal("You have no permission to see this page. Ask an administrator of Airflow " +
      "for permission to read the runs, the task instances and the XComs of this DAG.");
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    const why = typeof said.detail === "string" ? `: ${said.detail}` : "";
    throw new Error(`The API server answered ${answer.status}${why}.`);
  }
  tags.set(what, answer.headers.get("ETag"));
  return answer.json();
}

// Screen readers announce each change of the status, so it changes only with its meaning.
function say(text, kind) {
  const status = find("status");
  if (status.textContent !== text) status.textContent = text;
  status.className = kind;
}

function refuse(error) {
  for (const id of ["problems", "transfers", "plan", "checked"]) find(id)?.replaceChildren();
  say(error.message, "refused");
}

// Repeats a call until the API server refuses it. A hidden page does not call.
async function repeat(what, pause, draw) {
  const tags = new Map();
  let wait = 0;
  for (;;) {
    await new Promise((done) => { setTimeout(done, wait); });
    if (document.hidden) {
      wait = LIVE_MS;
      continue;
    }
    try {
      const answer = await ask(what, tags);
      if (answer !== null) wait = draw(answer) ?? pause;
      say("", "");
      find("checked").textContent = `Checked at ${shortTime(new Date())}`;
    } catch (error) {
      if (error instanceof Refusal) {
        refuse(error);
        return;
      }
      const why = error instanceof TypeError ? "The API server of Airflow does not answer."
        : error.message;
      say(`${why} The shown numbers are old. The page tries again every few seconds.`, "lost");
      wait = FAILED_MS;
    }
  }
}

function start() {
  useColoursOfAirflow();
  if (names.dag_id === "") {
    refuse(new Error("The address of this page names no DAG. Open the page from Airflow: the tab " +
      "Transfers of a run, or the tab Deadline plan of a DAG."));
    return;
  }
  const title = names.run_id === "" ? "Deadline plan" : "Transfers";
  document.title = `${title} · dray`;
  find("title").replaceChildren(`${title} of `,
    named(names.task_id || names.run_id || names.dag_id));
  if (names.run_id !== "") {
    repeat("transfers", LIVE_MS, (answer) => {
      drawProblems(find("problems"), answer.problems);
      drawTransfers(find("transfers"), answer);
      const isOver = answer.transfers.length > 0 && answer.transfers.every(isEnded);
      return isOver ? ENDED_MS : LIVE_MS;
    });
  } else {
    find("transfers").remove();
  }
  if (names.task_id === "") {
    repeat("plan", PLAN_MS, (answer) => {
      if (names.run_id === "") drawProblems(find("problems"), answer.problems ?? []);
      drawPlan(find("plan"), answer, names.run_id === "");
    });
  } else {
    find("plan").remove();
  }
}

start();
