// The pods of the fleets in clusters, as their operators report them, those first that need something done.

import { byId, el, setText, setValue, sync } from "./dom.js";
import { count, duration, plural } from "./format.js";

const STEP = 50; // rows that are shown at first, and more of at each press

let shown = STEP;

export const showMorePods = () => (shown += STEP);

// `seconds`: how much older the snapshot is by now.
export function showPods(run, seconds) {
  const pods = run.fleets.flatMap((fleet) => fleet.pods);
  const some = pods.slice(0, shown);
  byId("pods-none").hidden = run.fleets.length > 0;
  byId("pods").hidden = !pods.length;
  setText(byId("pods-count"), run.fleets.length ? count(pods.length) : "");
  sync(byId("fleets"), run.fleets, (fleet) => fleet.fleet, () => el("li"), (item, fleet) => setText(item, sentence(fleet, seconds)));
  sync(byId("pods").tBodies[0], some, (pod) => pod.uid, makeRow, updateRow);
  const more = byId("pods-more");
  more.hidden = pods.length <= some.length;
  setText(more, `Show ${Math.min(STEP, pods.length - some.length)} more of ${plural(pods.length, "pod")}`);
}

function sentence(fleet, seconds) {
  const age = duration(fleet.age_seconds + seconds);
  const pools = fleet.pools.map((pool) => `${pool.name}: ${pool.ready ?? "unknown"} of ${pool.replicas ?? "unknown"} ready${pool.problem ? ` (${[pool.problem, pool.advice].filter(Boolean).join("; ")})` : ""}`);
  const words = [...pools, fleet.sentence, fleet.problem && `the operator says: ${fleet.problem}`].filter(Boolean);
  const late = fleet.is_old ? "its operator has stopped reporting: what follows is old" : `reported by ${fleet.operator}`;
  return `${fleet.fleet}: ${words.join("; ")}. ${late}, ${age} ago.`;
}

function toneOf(pod) {
  if (pod.reason === "ready") return "good";
  return pod.advice ? "bad" : "warn";
}

function makeRow() {
  const cell = (attributes, ...children) => el("td", { role: "cell", ...attributes }, ...children);
  return el(
    "tr",
    { role: "row" },
    cell({}, el("span"), el("small")),
    cell({ class: "wide" }, el("span", { class: "pill" }, el("span", { class: "dot", "aria-hidden": "true" }), el("span")), el("small")),
    cell({ class: "num", "data-label": "restarts" }),
    cell({ class: "num", "data-label": "since" }),
  );
}

function updateRow(row, pod) {
  const [name, reason, restarts, since] = row.cells;
  setText(name.firstElementChild, pod.name);
  setText(name.lastElementChild, [pod.node ?? "on no node", pod.phase].join(" · "));
  reason.firstElementChild.className = `pill ${toneOf(pod)}`;
  setText(reason.firstElementChild.lastElementChild, pod.reason.replaceAll("_", " "));
  setText(reason.lastElementChild, [pod.sentence, pod.advice].filter(Boolean).join(". To do: "));
  setText(restarts, count(pod.restarts));
  setValue(since, duration(pod.since_seconds));
}
