// First what holds the run back, in a sentence, and what to do next; then what else asks for a person.

import { byId, el, setText, sync } from "./dom.js";
import { bytes, duration, percent, plural } from "./format.js";
import { label, ORDER, title, tone } from "./reasons.js";
import { needsLook } from "./workers.js";

const MEMORY_SHARE = 0.8; // of maxmemory, from which it is worth a line

export function showGate(run, reply, isOld) {
  const gate = run.gate;
  byId("gate").className = `gate ${tone(run)}`;
  setText(byId("gate-word"), (isOld ? "Last seen: " : "") + title(run));
  setText(byId("gate-since"), gate.since_seconds === null ? "since when is unknown" : `for ${duration(gate.since_seconds)}`);
  setText(byId("gate-sentence"), `${run.stuck?.sentence || gate.sentence}.`.replace(/\.\.$/, "."));
  const advice = byId("gate-advice");
  setText(advice, gate.advice ? `What to do: ${gate.advice}` : "");
  advice.hidden = !gate.advice;
  sync(byId("attention"), attention(run, reply), (line) => line.key, makeLine, updateLine);
}

// What a screen reader says when it changes; the sentence of a stuck run tells minutes, and would never be still.
export const spoken = (run) => `${run.name}: ${title(run)}. ${run.stuck ? run.gate.advice : run.gate.sentence}`;

function attention(run, reply) {
  const lines = [];
  const add = (key, kind, text, href = null) => lines.push({ key, kind, text, href });
  const group = run.stuck?.group;
  if (group) add("group", "bad", `Where is group ${group}?`, `#group=${encodeURIComponent(group)}`);
  const odd = run.workers.filter(needsLook).length;
  if (odd) add("workers", "warn", `${odd} of ${plural(run.workers.length, "worker")} ${odd === 1 ? "is" : "are"} not ready`, "#workers-title");
  const dead = run.queues.dead.groups;
  if (dead) add("dead", "warn", plural(dead, "dead letter"), "#dead");
  for (const problem of reply.server?.problems ?? []) add(`server ${problem}`, "warn", problem);
  const { used_memory_bytes: used, maxmemory_bytes: most } = reply.server ?? {};
  if (used && most && used > MEMORY_SHARE * most) add("memory", "bad", `Redis uses ${percent(used / most)} of its ${bytes(most)}`);
  return lines;
}

const makeLine = () => el("li", {}, el("span", { class: "dot", "aria-hidden": "true" }), el("span"));

function updateLine(node, { kind, text, href }) {
  node.className = kind;
  const place = node.lastElementChild;
  const link = place.firstElementChild;
  if (!href) return setText(place, text);
  if (!link) place.replaceChildren(el("a", { href }, text));
  else if (link.textContent !== text || link.getAttribute("href") !== href) place.replaceChildren(el("a", { href }, text));
}

const SPANS = [["last_5_minutes", "5 min"], ["last_hour", "1 hour"], ["whole_run", "whole run"]];

export function showShares(run) {
  sync(byId("shares"), SPANS, ([name]) => name, makeShare, (node, [name]) => updateShare(node, run.gate[name]));
}

const makeShare = ([, words]) =>
  el("div", { class: "share" }, el("span", {}, words), el("div", { class: "strip", "aria-hidden": "true" }), el("p", { class: "says" }));

function updateShare(node, span) {
  const found = Object.entries(span?.shares ?? {}).filter(([, share]) => share > 0).sort((one, other) => other[1] - one[1]);
  const says = found.map(([reason, share]) => `${label(reason).toLowerCase()} ${percent(share)}`).join(", ");
  setText(node.children[2], says || (span ? "no worker asked in this time" : "unknown: this service has not looked for that long"));
  const ordered = found.toSorted((one, other) => ORDER.indexOf(one[0]) - ORDER.indexOf(other[0]));
  sync(node.children[1], ordered, ([reason]) => reason, ([reason]) => el("i", { class: reason }), (part, [, share]) => {
    part.style.width = `${share * 100}%`;
  });
}
