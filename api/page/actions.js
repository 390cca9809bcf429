// What a person may do to a run: each is confirmed, carries the token, and its result is shown with the record of it.
// The token is asked for once and kept until this tab is closed.

import { ask, line } from "./dialog.js";
import { byId, el, setText, sync } from "./dom.js";
import { day, plural } from "./format.js";

const TOKEN = "rolloutfleet-token";

export class Actions {
  constructor() {
    this.run = null;
    this.isPossible = false;
    this.onDone = () => {};
  }

  show(run, isPossible) {
    const isNew = this.run?.name !== run.name || this.isPossible !== isPossible;
    this.run = run;
    this.isPossible = isPossible;
    byId("buttons").hidden = byId("audit").hidden = !isPossible;
    if (!isPossible) return;
    const pause = run.config.paused ? ["resume", "Resume", () => this.resume()] : ["pause", "Pause", () => this.pause()];
    const buttons = [pause, ["settings", "Change the window", () => this.settings()]];
    const make = ([name, words, act]) => el("button", { type: "button", id: `act-${name}`, class: name === "resume" ? "" : "quiet", click: act }, words);
    const hadFocus = document.activeElement?.parentElement === byId("buttons");
    sync(byId("buttons"), buttons, ([name]) => name, make);
    if (hadFocus && !byId("buttons").contains(document.activeElement)) byId("buttons").firstElementChild.focus();
    if (isNew) this.showRecords();
  }

  async pause() {
    const body = [line("Nothing is claimed any more until somebody resumes. Groups that workers hold are finished.")];
    if (await ask({ title: `Pause ${this.run.name}?`, body, yes: "Pause", isHarsh: true })) await this.send("pause");
  }

  async resume() {
    const body = [line("Workers claim again as soon as the window has room.")];
    if (await ask({ title: `Resume ${this.run.name}?`, body, yes: "Resume" })) await this.send("resume");
  }

  async drain(worker) {
    if (worker.is_draining) return this.undrain(worker);
    const held = worker.held === null ? "what it holds" : `the ${plural(worker.held, "group")} that it holds`;
    const body = [line(`It finishes ${held}, claims no more, and ends.`)];
    if (await ask({ title: `Drain ${worker.name}?`, body, yes: "Drain", isHarsh: true })) await this.send("drain", { workers: [worker.name] });
  }

  async undrain(worker) {
    const body = [line("It claims again, unless it has ended already.")];
    if (await ask({ title: `Undrain ${worker.name}?`, body, yes: "Undrain" })) await this.send("undrain", { workers: [worker.name] });
  }

  async requeue(letters) {
    const what = letters ? `the dead letter ${letters[0].id || letters[0].entry}` : `all ${plural(this.run.queues.dead.groups, "dead letter")}`;
    const body = [line("Back in line, with no attempts counted. What can never work ends here again.")];
    if (await ask({ title: `Requeue ${what}?`, body, yes: "Requeue" })) await this.send("requeue", choice(letters));
  }

  async drop(letter) {
    const body = [line(`The group ${letter.id || letter.entry} is gone for good. This cannot be undone.`)];
    if (await ask({ title: "Drop this dead letter?", body, yes: "Drop", isHarsh: true })) await this.send("drop", choice([letter]));
  }

  async settings() {
    const config = this.run.config;
    const field = (name, words, attributes) => el("label", {}, words, el("input", { name, value: config[name], autocomplete: "off", ...attributes }));
    const refill = el("select", { name: "refill" }, ...["group", "sample"].map((word) => el("option", { value: word, selected: word === config.refill }, word)));
    const fields = [
      field("sample_concurrency", "Samples at once, or auto", { pattern: "auto|[1-9][0-9]*", required: true }),
      field("n", "Samples of a group that does not say", { type: "number", min: 1, max: 4096, required: true }),
      field("overcommit", "Over-commit in permille, or auto", { pattern: "auto|[1-9][0-9]{0,5}", required: true }),
      el("label", {}, "A place is free when … is done", refill),
    ];
    if (!(await ask({ title: `Window of ${this.run.name}`, body: fields, yes: "Change" }))) return;
    const given = fields.map((label) => label.querySelector("input, select")).filter((input) => input.value !== String(config[input.name]));
    const change = Object.fromEntries(given.map(({ name, value }) => [name, name === "refill" || value === "auto" ? value : Number(value)]));
    if (!given.length) return this.result("Nothing was changed.", "off");
    const words = Object.entries(change).map(([name, value]) => line(`${name}: ${config[name]} becomes ${value}`));
    if (await ask({ title: "Change the window?", body: words, yes: "Change it", isHarsh: true })) await this.send("window", change);
  }

  async send(action, body = null) {
    const token = sessionStorage.getItem(TOKEN) ?? (await this.askToken());
    if (!token) return this.result("Nothing was done: no token was given.", "off");
    this.result("Asking …", "off");
    try {
      const answer = await fetch(`actions/${encodeURIComponent(this.run.name)}/${action}`, {
        method: "POST",
        headers: { Authorization: `Bearer ${token}`, ...(body && { "Content-Type": "application/json" }) },
        body: body && JSON.stringify(body),
        signal: AbortSignal.timeout(15_000),
      });
      await this.take(answer);
    } catch (error) {
      this.result(`No answer (${error.name === "TimeoutError" ? "15 s" : error.message}): look whether it was done before you try again.`, "bad");
    }
    await this.showRecords();
    this.onDone();
  }

  async take(answer) {
    const said = await answer.json().catch(() => ({}));
    if (answer.ok) return this.result(said.sentence, "good");
    if (answer.status === 401 || answer.status === 403) sessionStorage.removeItem(TOKEN);
    const detail = typeof said.detail === "string" ? said.detail : JSON.stringify(said.detail ?? "no reason was given");
    this.result(`Refused (${answer.status}): ${detail}`, "bad");
  }

  async askToken() {
    const input = el("input", { type: "password", autocomplete: "off", required: true });
    const body = [el("label", {}, "The token of this service. It is kept until this tab is closed.", input)];
    if (!(await ask({ title: "Who may do this?", body, yes: "Use this token" }))) return null;
    sessionStorage.setItem(TOKEN, input.value.trim());
    return input.value.trim();
  }

  result(sentence, tone) {
    const node = byId("result");
    node.className = `result ${tone}`;
    setText(node, sentence);
    if (tone !== "off") node.scrollIntoView({ block: "nearest" });
  }

  // The audit is for those who may act: without a token it is not asked for.
  async showRecords() {
    const token = sessionStorage.getItem(TOKEN);
    const answer = token && (await fetch("audit", { headers: { Authorization: `Bearer ${token}` } }).catch(() => null));
    const records = answer?.ok ? (await answer.json()).records : [];
    byId("records").replaceChildren(...records.slice(0, 20).map(record));
    byId("records-none").hidden = records.length > 0;
  }
}

const choice = (letters) => (letters ? { entries: letters.map((letter) => letter.entry) } : { all: true });

function record({ at_ms: at, action, run, arguments: given, outcome, client }) {
  const words = Object.keys(given).length ? ` ${JSON.stringify(given)}` : "";
  return el("li", {}, `${day(at)} · ${client} · ${action} ${run}${words}: ${outcome}`);
}
