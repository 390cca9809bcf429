// Dead letters, read when their number changes and when somebody asks for more; and where a single group is.

import { endpoint } from "./address.js";
import { tell, line } from "./dialog.js";
import { byId, el, setText, sync } from "./dom.js";
import { count, day } from "./format.js";

export class DeadLetters {
  constructor(actions) {
    this.actions = actions;
    this.letters = [];
    this.next = null;
    this.seen = null; // run, number and Redis' state at the last reading
    byId("letters-more").onclick = () => this.read(this.run, this.next);
    byId("letters-requeue").onclick = () => actions.requeue(null);
  }

  show(run, isReachable, isPossible) {
    const number = run.queues.dead.groups;
    setText(byId("dead-count"), count(number));
    const state = `${run.name} ${number} ${isReachable} ${isPossible}`;
    if (state !== this.seen) {
      this.seen = state;
      if (this.run?.name !== run.name) this.letters = [];
      this.run = run;
      if (isReachable) this.read(run, null);
    }
    this.run = run;
    this.isPossible = isPossible;
    this.draw();
  }

  async read(run, after) {
    const asked = run.name;
    const answer = await fetch(endpoint(asked, `/dead${after ? `?after=${encodeURIComponent(after)}` : ""}`)).catch(() => null);
    if (!answer?.ok || this.run.name !== asked) return;
    const page = await answer.json();
    this.letters = after ? [...this.letters, ...page.letters] : page.letters;
    this.next = page.next;
    this.draw();
  }

  draw() {
    const number = this.run.queues.dead.groups;
    const letters = number ? this.letters : [];
    sync(byId("letters").tBodies[0], letters, (letter) => `${letter.entry} ${this.isPossible}`, (letter) => this.row(letter));
    byId("letters").hidden = !letters.length;
    const none = byId("dead-none");
    none.hidden = letters.length > 0;
    setText(none, number ? "They could not be read yet." : "No group was given up.");
    byId("letters-more").hidden = !letters.length || !this.next;
    byId("letters-requeue").hidden = !letters.length || !this.isPossible;
  }

  row(letter) {
    const cell = (attributes, ...children) => el("td", { role: "cell", ...attributes }, ...children);
    const button = (words, act) => el("button", { type: "button", class: "quiet", "aria-label": `${words} ${letter.id || letter.entry}`, click: act }, words);
    const buttons = this.isPossible ? [button("Requeue", () => this.actions.requeue([letter])), button("Drop", () => this.actions.drop(letter))] : [];
    return el(
      "tr",
      { role: "row" },
      cell({}, letter.id || "not a group", el("details", {}, el("summary", {}, "prompt"), el("pre", { tabindex: "0" }, letter.text))),
      cell({ class: "wide" }, letter.reason),
      cell({ class: "num", "data-label": "attempts" }, count(letter.attempts)),
      cell({ class: "when" }, day(letter.at_ms)),
      cell({ class: "act" }, ...buttons),
    );
  }
}

// A dialog that says where a group is and what happened to it.
export async function findGroup(run, id) {
  const answer = await fetch(endpoint(run, `/groups/${encodeURIComponent(id)}`)).catch(() => null);
  const found = await answer?.json().catch(() => null);
  if (!answer?.ok) return tell(id, line(found?.detail ?? "The service did not answer."));
  const samples = found.n === null ? "" : `${found.finished.length} of ${found.n} samples are finished; attempts: ${found.attempts ?? "unknown"}.`;
  const events = found.history.map(({ at_ms: at, what, detail }) => el("li", {}, `${day(at)}: ${what}${detail ? `, ${detail}` : ""}`));
  const link = el("a", { href: endpoint(run, `/groups/${encodeURIComponent(id)}`) }, "All of it as JSON");
  return tell(
    id,
    line(found.sentence),
    ...[samples, found.reason && `Its last attempt ended: ${found.reason}`].filter(Boolean).map(line),
    el("ul", { class: "events" }, ...events),
    ...(found.text ? [el("pre", { tabindex: "0" }, found.text)] : []),
    el("p", {}, link),
  );
}
