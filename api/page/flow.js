// The window as a picture: where the groups are on their way, and how much place is left; then the numbers of now.

import { byId, el, setText, setValue, svg, sync } from "./dom.js";
import { count, duration, percent, plural, short } from "./format.js";

const MOST_CELLS = 96; // above it the cells of a track would be lines

export function showFlow(run) {
  sync(byId("flow"), stations(run), (station) => station.name, makeStation, updateStation);
  const { size, sample_concurrency: samples, source, n, overcommit, refill } = run.window;
  const from = source === "auto" ? "all slots of live workers" : "set in the config";
  const over = overcommit === 1000 ? "" : `, × ${overcommit / 1000} over-commit`;
  setText(byId("formula"), `The window is ${plural(size, "group")} wide: ${plural(samples, "sample")} (${from}) in groups of ${n}${over}; a place is free when ${refill === "group" ? "a whole group is" : `${n} samples are`} done.`);
}

function stations(run) {
  const { window, queues } = run;
  const oldest = (queue) => (queue.groups && queue.oldest_seconds !== null ? `oldest ${duration(queue.oldest_seconds)}` : "");
  const join = (...words) => words.filter(Boolean).join(", ");
  const again = queues.again.groups ? `${count(queues.again.groups)} of them again` : "";
  const open = window.used === window.active ? "" : `${plural(window.active, "group")} begun`;
  const left = window.place_left ? `place for ${count(window.place_left)} more` : run.gate.is_open ? "" : "the gate is closed";
  return [
    { name: "In line", number: queues.prompts.groups + queues.again.groups, note: join(oldest(queues.prompts), again) },
    { name: "At work", kind: "active", number: window.used, size: window.size, free: window.place_left, note: join(left, open, `${plural(window.outstanding_samples, "sample")} to go`) },
    { name: "Waiting for a trainer", kind: "waiting", number: window.waiting, size: window.size, free: 0, note: oldest(queues.waiting) },
    { name: "With trainers", number: window.taken, note: plural(run.trainers.length, "trainer") },
    { name: "Trained", number: run.counters.acked ?? 0, note: queues.dead.groups ? plural(queues.dead.groups, "dead letter") : "" },
  ];
}

function makeStation({ name, kind }) {
  const track = kind ? svg("svg", { class: `track ${kind}`, preserveAspectRatio: "none", "aria-hidden": "true" }) : null;
  const number = el("p", { class: "number" }, el("span"), el("span", { class: "of" }));
  return el("li", {}, el("p", { class: "name" }, name), number, track, el("p", { class: "fine" }));
}

function updateStation(node, { kind, number, size, free, note }) {
  const [value, of] = node.querySelector(".number").children;
  setValue(value, count(number));
  setText(of, kind ? ` of ${count(size)}` : "");
  setText(node.lastElementChild, note);
  if (kind) drawTrack(node.querySelector("svg"), number, size, free);
}

// One cell for each group of the window; a wide window is drawn in proportion.
function drawTrack(track, filled, size, free) {
  const drawn = `${filled} ${size} ${free}`;
  if (track.dataset.drawn === drawn) return;
  track.dataset.drawn = drawn;
  const cells = Math.max(1, Math.min(size, MOST_CELLS));
  const scale = size ? cells / size : 0;
  const upTo = Math.min(cells, filled && Math.max(1, Math.round(filled * scale)));
  const freeTo = Math.min(cells, upTo + (free && Math.max(1, Math.round(free * scale))));
  track.setAttribute("viewBox", `0 0 ${cells * 10} 10`);
  const kindOf = (index) => (index < upTo ? "filled" : index < freeTo ? "free" : "cell");
  const gap = size > MOST_CELLS ? 0 : Math.min(2, cells / 30 + 0.3);
  track.replaceChildren(...Array.from({ length: cells }, (_, index) =>
    svg("rect", { class: kindOf(index), x: index * 10 + gap / 2, y: 0.6, width: 10 - gap, height: 8.8 })));
}

export function showFigures(run) {
  const { slots, staleness } = run;
  const share = slots.utilisation === null ? "utilisation unknown" : `${percent(slots.utilisation)} over the last minute`;
  const better = slots.with_refill_sample === null ? "" : `; refill = sample would give about ${percent(slots.with_refill_sample)}`;
  const none = "no version was published";
  const behind = staleness && `newest ${plural(staleness.groups, "group")}${staleness.unknown ? `, ${count(staleness.unknown)} do not say` : ""}`;
  const figures = [
    ["Slots busy", slots.busy === null ? null : `${count(slots.busy)} of ${count(slots.total)}`, share + better],
    ["Workers", count(run.workers.length), run.desired_workers === null ? "how many it could use is unknown" : `could use ${count(run.desired_workers)}`],
    ["Done in about", duration(run.eta_seconds), "all in line and at work, at this rate"],
    ["Weights", run.weight_version === null ? "none" : `v${count(run.weight_version)}`, run.weight_version === null ? none : aboutWeights(run)],
    ["Trained behind", trainedMean(run.judged.trained), tellJudged(run)],
    ["Versions behind", staleness ? short(staleness.mean) : null, behind || none],
  ];
  if (lost(run)) figures.splice(-1, 0, ["Given up", count(lost(run)), losses(run)]);
  sync(byId("figures"), figures, ([name]) => name, makeFigure, (node, figure) => updateFigure(node, figure));
  const last = byId("figures").lastElementChild;
  tellHistogram(last, staleness?.histogram ?? {});
}

// Of what was trained on: how many versions behind its trainer a group was on average; nothing where no trainer says its version.
function trainedMean(trained) {
  const known = Object.entries(trained).filter(([behind]) => behind !== "unknown");
  const groups = known.reduce((sum, [, number]) => sum + number, 0);
  return groups ? short(known.reduce((sum, [behind, number]) => sum + behind * number, 0) / groups) : null;
}

function tellJudged(run) {
  const each = Object.entries(run.judged).filter(([, histogram]) => Object.keys(histogram).length);
  const told = each.map(([fate, histogram]) => `${fate}: ${Object.entries(histogram).map(([behind, groups]) => `${count(groups)} × ${behind}`).join(", ")}`);
  const pace = run.window.pace_left === null ? "" : `${plural(Math.max(0, run.window.pace_left), "group")} until the next update`;
  return [...told, pace].filter(Boolean).join("; ") || "no trainer says its version";
}

function aboutWeights({ weights, weight_label: label, workers }) {
  if (!weights) return label ?? "";
  const failed = weights.workers_failed ? `, ${plural(weights.workers_failed, "worker")} could not load it` : "";
  const stood = weights.stood ? `; updates took ${percent(weights.stood)} of the slots' time` : "";
  return `${label ? `${label}, ` : ""}on ${count(weights.workers_current)} of ${plural(workers.length, "worker")}${failed}${stood}`;
}

const lost = ({ losses }) => Object.values(losses.causes).reduce((sum, groups) => sum + groups, 0);

function losses({ losses: { causes, deciles, is_biased: biased } }) {
  const why = Object.entries(causes).map(([cause, groups]) => `${count(groups)} ${cause}`).join(", ");
  const tenths = deciles ? `; by tenths of the completed lengths, short to long: ${deciles.join(" ")}` : "";
  return `${why}${tenths}${biased ? ": the long ones are lost" : ""}`;
}

const makeFigure = ([name]) => el("div", {}, el("dt", {}, name), el("dd"), el("dd", { class: "note" }));

function updateFigure(node, [, value, note]) {
  setValue(node.children[1], value);
  setText(node.children[2], note);
}

// How many groups are 0, 1, 2 … versions behind, as words: it is a handful of numbers.
function tellHistogram(node, histogram) {
  const parts = Object.entries(histogram).sort((one, other) => one[0] - other[0]);
  if (parts.length) setText(node.children[2], `${node.children[2].textContent}: ${parts.map(([behind, groups]) => `${count(groups)} × ${behind}`).join(", ")}`);
}

const RATE_SPANS = [["minute", "1 min"], ["five_minutes", "5 min"], ["fifteen_minutes", "15 min"]];

export function showRates(run) {
  const make = ([, words]) => el("tr", {}, el("th", { scope: "row" }, words), el("td"), el("td"), el("td"));
  sync(byId("rates").tBodies[0], RATE_SPANS, ([name]) => name, make, (row, [name]) => {
    const { groups, samples, tokens } = run.rates[name];
    [groups, samples, tokens].forEach((value, index) =>
      setValue(row.cells[index + 1], short(value), "unknown", "this service is younger than that, or it is not counted"));
  });
}
