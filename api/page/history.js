// The last 15 minutes of a run: fetched once, then carried on with each snapshot.

import { endpoint } from "./address.js";

const SPAN_MS = 15 * 60_000;

export class History {
  constructor(run) {
    this.run = run;
    this.points = [];
    this.stepMs = 5000;
    this.isLoaded = false;
  }

  // Takes the service's own record; what was appended here meanwhile and is newer stays.
  async load() {
    const answer = await fetch(endpoint(this.run, "/history"));
    if (!answer.ok) return;
    const columns = await answer.json();
    this.stepMs = columns.step_seconds * 1000;
    const points = columns.at_ms.map((at, index) => ({
      at,
      reason: columns.reason[index],
      busy: columns.slots_busy[index],
      total: columns.slots_total[index],
      active: columns.active[index],
      waiting: columns.waiting[index],
      window: columns.window[index],
      samples: columns.samples_per_second[index],
    }));
    const last = points.at(-1)?.at ?? 0;
    this.points = [...points, ...this.points.filter((point) => point.at > last + this.stepMs / 2)];
    this.isLoaded = true;
  }

  // Says whether a point was added: not more often than a step, and never of data that is old.
  append(atMs, status) {
    const at = atMs - status.age_seconds * 1000;
    const last = this.points.at(-1);
    if (last && at - last.at < this.stepMs * 0.9) return false;
    const samples = status.counters.samples ?? null;
    const seconds = last?.counted === undefined || last.counted === null || samples === null ? null : (at - last.at) / 1000;
    this.points.push({
      at,
      reason: status.gate.reason,
      busy: status.slots.busy,
      total: status.slots.total,
      active: status.window.active,
      waiting: status.window.waiting,
      window: status.window.size,
      samples: seconds === null ? status.rates.minute.samples : Math.max(0, samples - last.counted) / seconds,
      counted: samples,
    });
    while (this.points[0].at < at - SPAN_MS - this.stepMs) this.points.shift();
    return true;
  }
}
