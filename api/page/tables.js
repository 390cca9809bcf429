// Queues and trainers.

import { endpoint } from "./address.js";
import { byId, el, setText, setValue, sync } from "./dom.js";
import { count, duration } from "./format.js";

const QUEUES = [
  ["prompts", "Prompts", "submitted, never claimed", "/groups?state=queued"],
  ["again", "Again", "for another attempt", "/groups?state=again"],
  ["waiting", "Waiting", "completed, not yet taken", "/groups?state=waiting"],
  ["dead", "Dead", "given up", "/dead"],
];

export function showQueues(run) {
  const make = ([, words, note]) =>
    el("tr", {}, el("th", { scope: "row" }, words, el("small", { class: "fine" }, ` ${note}`)), el("td", { class: "num" }), el("td", { class: "num" }), el("td", { class: "act" }, el("a", { class: "json", "aria-label": `${words} as JSON` }, "JSON")));
  sync(byId("queues").tBodies[0], QUEUES, ([name]) => name, make, (row, [name, , , rest]) => {
    const { groups, oldest_seconds: oldest } = run.queues[name];
    setValue(row.cells[1], count(groups));
    setValue(row.cells[2], duration(oldest), groups ? "unknown" : "–", groups ? "not known" : "the queue is empty");
    row.cells[3].firstElementChild.href = endpoint(run.name, rest);
  });
}

export function showTrainers(run) {
  const make = ({ consumer }) =>
    el("tr", {}, el("th", { scope: "row" }, consumer), el("td", { class: "num" }), el("td", { class: "num" }), el("td", { class: "num" }));
  sync(byId("trainers").tBodies[0], run.trainers, (trainer) => trainer.consumer, make, (row, trainer) => {
    setText(row.cells[1], count(trainer.taken));
    setValue(row.cells[2], duration(trainer.oldest_seconds), trainer.taken ? "unknown" : "–", trainer.taken ? "not known" : "it holds none");
    setText(row.cells[3], duration(trainer.idle_seconds));
  });
  byId("trainers").hidden = !run.trainers.length;
  byId("trainers-none").hidden = run.trainers.length > 0;
}
