// The page: takes snapshots, chooses the run, and has each part draw itself. Nothing else keeps state of the fleet.

import { Actions } from "./actions.js";
import * as address from "./address.js";
import { Chart } from "./chart.js";
import { DeadLetters, findGroup } from "./dead.js";
import { byId, el, setText, sync } from "./dom.js";
import { showFigures, showFlow, showRates } from "./flow.js";
import { bytes, duration } from "./format.js";
import { showGate, showShares, spoken } from "./gate.js";
import { History } from "./history.js";
import { showMorePods, showPods } from "./pods.js";
import { title, tone, worst } from "./reasons.js";
import { Since, Stream } from "./stream.js";
import { showQueues, showTrainers } from "./tables.js";
import { showMoreWorkers, showWorkers } from "./workers.js";

const OLD_SECONDS = 5; // a snapshot comes each second; from here on its age is the news

let filters = address.read();
let reply = null;
let arrived = null;
let chosen = null; // name of the run that is shown where the address names none
const histories = new Map();
const actions = new Actions();
const letters = new DeadLetters(actions);
const chart = new Chart();
const stream = new Stream(take, turn);

// What was missed while the connection was lost is in the record of the service.
function turn(state) {
  if (state === "lost") for (const history of histories.values()) history.isLoaded = history.isAsked = false;
  showFreshness();
}

function take(snapshot) {
  reply = snapshot;
  arrived = new Since();
  for (const run of reply.runs) recordPoint(run);
  for (const name of histories.keys()) if (!reply.runs.some((run) => run.name === name)) histories.delete(name);
  if (!document.hidden) show();
  else showFreshness();
}

function recordPoint(run) {
  if (!histories.has(run.name)) histories.set(run.name, new History(run.name));
  const history = histories.get(run.name);
  if (reply.redis.state !== "ok" || !history.append(reply.at_ms, run)) return;
  if (run.name === current()?.name && !document.hidden) chart.show(history);
}

function current() {
  const runs = reply?.runs ?? [];
  if (filters.run) return runs.find((run) => run.name === filters.run) ?? null;
  if (!runs.some((run) => run.name === chosen)) chosen = runs.length ? worst(runs).name : null;
  return runs.find((run) => run.name === chosen) ?? null;
}

const age = (run) => (run ? run.age_seconds : (reply?.redis.age_seconds ?? 0)) + (arrived?.seconds ?? 0);

function show() {
  const run = current();
  showRuns(run);
  byId("run").hidden = !run;
  showEmpty(run);
  if (run) showRun(run);
  showServer();
  showFreshness();
}

function showRun(run) {
  showGate(run, reply, age(run) > OLD_SECONDS);
  setText(byId("live"), spoken(run));
  showFlow(run);
  showFigures(run);
  showRates(run);
  showShares(run);
  showHistory(run);
  actions.show(run, reply.has_actions);
  showWorkers(run, filters, reply.has_actions ? (worker) => actions.drain(worker) : null);
  showPods(run, arrived?.seconds ?? 0);
  showQueues(run);
  showTrainers(run);
  letters.show(run, reply.redis.state === "ok", reply.has_actions);
  const twins = { run: "", workers: "/workers", pods: "/pods", history: "/history", dead: "/dead", trainers: "" };
  for (const [name, rest] of Object.entries(twins)) byId(`${name}-json`).href = address.endpoint(run.name, rest);
}

function showHistory(run) {
  const history = histories.get(run.name);
  if (chart.history !== history) chart.show(history);
  if (history.isLoaded || history.isAsked) return;
  history.isAsked = true;
  history.load().catch(() => (history.isAsked = false)).then(() => chart.history === history && chart.show(history));
}

function showRuns(run) {
  const make = ({ name }) =>
    el("a", { href: `?run=${encodeURIComponent(name)}`, click: pickRun }, el("span", { class: "dot", "aria-hidden": "true" }), el("span"));
  const runs = reply.runs.length > 1 || (run === null && filters.run) ? reply.runs : [];
  sync(byId("runs"), runs, ({ name }) => name, make, (link, one) => {
    link.firstElementChild.className = `dot ${tone(one)}`;
    setText(link.lastElementChild, `${one.name}: ${title(one).toLowerCase()}`);
    if (one.name === run?.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
}

function pickRun(event) {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  change({ run: new URLSearchParams(event.currentTarget.search).get("run") });
}

function showEmpty(run) {
  const empty = byId("empty");
  empty.hidden = run !== null;
  if (run) return;
  if (reply.redis.state !== "ok") setText(empty, "Nothing is known of any run: Redis has not answered yet.");
  else if (filters.run) setText(empty, `There is no run “${filters.run}” here. ${reply.runs.length ? "Pick one above." : "There is none at all."}`);
  else setText(empty, "There is no run on this Redis yet. `rolloutfleet configure` makes one.");
}

function showServer() {
  const server = reply.server;
  const most = server?.maxmemory_bytes ? ` of ${bytes(server.maxmemory_bytes)}` : "";
  const memory = bytes(server?.used_memory_bytes);
  setText(byId("server"), server ? `${server.name} ${server.version}, memory ${memory ? memory + most : "unknown"}` : "server unknown");
}

// Runs each second by itself: the age must grow when nothing comes any more.
function showFreshness() {
  const run = current();
  const old = age(run);
  const isOld = reply !== null && old > OLD_SECONDS;
  const [word, kind, text] = condition(run, isOld);
  setText(byId("link-word"), word);
  byId("link-dot").className = `dot ${kind}`;
  byId("freshness").className = `freshness ${kind}`;
  const words = reply === null || (!run && reply.redis.age_seconds === null) ? "no data yet" : `data ${duration(Math.ceil(old * 10) / 10)} old`;
  setText(byId("age"), words);
  const banner = byId("banner");
  banner.className = `banner ${kind}`;
  banner.hidden = !text;
  setText(banner.firstElementChild, text);
  setText(banner.lastElementChild, text && run ? ` What you see is ${duration(Math.round(old))} old.` : "");
  byId("run").classList.toggle("old", isOld);
  if (run && isOld) showGate(run, reply, isOld);
  document.title = run ? `${isOld ? "old: " : ""}${title(run)} · ${run.name}` : "rolloutfleet";
}

// A word, its tone, and the sentence of the banner.
function condition(run, isOld) {
  if (stream.state === "lost") return ["connection lost", "bad", "No connection to this service; it is tried again and again."];
  if (reply === null) return ["connecting", "off", ""];
  if (reply.redis.state === "away") return ["Redis is away", "bad", `Redis is away${reply.redis.reason ? `: ${reply.redis.reason}` : ""}.`];
  if (reply.redis.state === "starting") return ["starting", "off", "This service has just started; Redis has not answered yet."];
  if (run?.problem) return ["cannot be read", "bad", `${run.name}: ${run.problem}.`];
  return isOld ? ["stalled", "warn", "No new data comes, although the connection stands."] : ["live", "good", ""];
}

function change(some) {
  filters = { ...filters, ...some };
  address.write(filters);
  if (reply) show();
}

byId("filter-text").value = filters.q;
byId("filter-text").addEventListener("input", (event) => change({ q: event.target.value }));
byId("filter-state").addEventListener("change", (event) => change({ state: event.target.value }));
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("workers-more").addEventListener("click", () => {
  showMoreWorkers();
  show();
});
byId("pods-more").addEventListener("click", () => {
  showMorePods();
  show();
});
byId("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const run = current();
  if (run) findGroup(run.name, byId("find-id").value.trim());
});
byId("attention").addEventListener("click", (event) => {
  const hash = event.target.getAttribute?.("href") ?? "";
  if (hash === "#workers-title") change({ state: "look", q: (byId("filter-text").value = "") });
  if (!hash.startsWith("#group=")) return;
  event.preventDefault();
  findGroup(current().name, decodeURIComponent(hash.slice(7)));
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !reply) return;
  show();
  if (current()) chart.show(histories.get(current().name));
});
actions.onDone = () => (letters.seen = null);
setInterval(showFreshness, 1000);
stream.start();
