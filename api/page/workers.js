// The table of workers, those first that need a look, and the filters over it.

import { byId, el, setText, setValue, sync } from "./dom.js";
import { count, duration, plural } from "./format.js";

const STEP = 100; // rows that are shown at first, and more of at each press
const LATE = 0.5; // a worker that has less than this share of its lease left missed heartbeats

let shown = STEP;

const isLate = ({ heartbeat_seconds: age, lease_seconds: left }) => left < LATE * (age + left);

export const needsLook = (worker) => worker.is_draining || worker.state !== "ready" || isLate(worker);

function stateOf(worker) {
  if (isLate(worker)) return ["heartbeat is late", "bad"];
  if (worker.is_draining) return ["draining", "off"];
  return worker.state === "ready" ? ["ready", "good"] : [worker.state.replaceAll("_", " "), "warn"];
}

// `act` is null where actions are off; else it is called with the worker that is to drain.
export function showWorkers(run, filters, act) {
  showStates(run.workers, filters.state);
  const found = run.workers.filter((worker) => passes(worker, filters)).sort(byNeed);
  const some = found.slice(0, shown);
  sync(byId("workers").tBodies[0], some, (worker) => `${worker.name} ${act !== null}`, () => makeRow(act), updateRow);
  setText(byId("workers-count"), count(run.workers.length));
  const isFiltered = Boolean(filters.state || filters.q);
  setText(byId("filter-shown"), isFiltered ? `${count(found.length)} of ${count(run.workers.length)} shown` : "");
  byId("workers").hidden = !found.length;
  const none = byId("workers-none");
  none.hidden = found.length > 0;
  setText(none, run.workers.length ? "No worker passes the filter." : "No worker is alive.");
  const more = byId("workers-more");
  more.hidden = found.length <= some.length;
  setText(more, `Show ${Math.min(STEP, found.length - some.length)} more of ${plural(found.length, "worker")}`);
}

export const showMoreWorkers = () => (shown += STEP);

function passes(worker, { state, q }) {
  if (state === "look" && !needsLook(worker)) return false;
  if (state && state !== "look" && stateOf(worker)[0] !== state) return false;
  if (!q) return true;
  const text = [worker.name, worker.pod_name, worker.node, worker.host, worker.engine, worker.reason, worker.state].join(" ").toLowerCase();
  return text.includes(q.toLowerCase());
}

const byNeed = (one, other) => needsLook(other) - needsLook(one) || one.name.localeCompare(other.name, "en", { numeric: true });

function showStates(workers, chosen) {
  const states = [...new Set(workers.map((worker) => stateOf(worker)[0]).concat(chosen && chosen !== "look" ? [chosen] : []))].sort();
  const options = [["", "all"], ["look", "needs a look"], ...states.map((state) => [state, state])];
  const select = byId("filter-state");
  sync(select, options, ([value]) => value, ([value, words]) => el("option", { value }, words));
  if (select.value !== chosen) select.value = chosen;
}

const podSays = ({ pod_reason: reason, advice }) => (advice ? `Its pod: ${reason.replaceAll("_", " ")}. To do: ${advice}` : "");

function makeRow(act) {
  const cell = (attributes, ...children) => el("td", { role: "cell", ...attributes }, ...children);
  const number = (label) => cell({ class: "num", "data-label": label });
  const row = el(
    "tr",
    { role: "row" },
    cell({}, el("span"), el("small")),
    cell({ class: "wide" }, el("span", { class: "pill" }, el("span", { class: "dot", "aria-hidden": "true" }), el("span")), el("small")),
    cell({ class: "num", "data-label": "slots busy" }, el("span"), el("span", { class: "bar", "aria-hidden": "true" }, el("i"))),
    number("groups"),
    number("weights"),
    number("heartbeat"),
    cell({ class: "act" }, act && el("button", { type: "button", class: "quiet", click: () => act(row.worker) })),
  );
  return row;
}

function updateRow(row, worker) {
  const [name, state, slots, held, weights, beat, action] = row.cells;
  setText(name.firstElementChild, worker.name);
  const place = worker.pod_name ?? (worker.host !== worker.pod && worker.host);
  setText(name.lastElementChild, [place, worker.node, worker.engine].filter(Boolean).join(" · "));
  const [word, tone] = stateOf(worker);
  const pill = state.firstElementChild;
  pill.className = `pill ${tone}`;
  setText(pill.lastElementChild, word);
  setText(state.lastElementChild, [worker.reason, podSays(worker)].filter(Boolean).join(". "));
  const busy = worker.busy;
  setText(slots.firstElementChild, `${busy === null ? "unknown" : count(busy)} of ${count(worker.slots)}`);
  slots.firstElementChild.classList.toggle("unknown", busy === null);
  slots.lastElementChild.firstElementChild.style.width = `${busy && worker.slots ? Math.min(100, (100 * busy) / worker.slots) : 0}%`;
  setValue(held, count(worker.held));
  setValue(weights, worker.weight_version, "unknown", "its engine does not say");
  setText(beat, `${duration(worker.heartbeat_seconds)} ago`);
  const button = action.firstElementChild;
  row.worker = worker;
  if (!button) return;
  setText(button, worker.is_draining ? "Undrain" : "Drain");
  button.setAttribute("aria-label", `${button.textContent} ${worker.name}`);
}
