// The snapshots as they come, over one connection that is made again when it ends or says nothing for too long.

const SILENCE_MS = 10_000; // a snapshot comes each second
const LONGEST_WAIT_MS = 15_000;

export class Stream {
  // `onSnapshot` is given each snapshot, `onChange` is told that `state` changed: connecting, live or lost.
  constructor(onSnapshot, onChange) {
    this.onSnapshot = onSnapshot;
    this.onChange = onChange;
    this.state = "connecting";
    this.failures = 0;
    this.retryAt = 0;
  }

  start() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = new EventSource("events");
    this.source.addEventListener("status", (event) => this.receive(event));
    this.source.onerror = () => this.lose();
    this.watch();
  }

  receive(event) {
    this.failures = 0;
    this.become("live");
    this.watch();
    this.onSnapshot(JSON.parse(event.data));
  }

  // A connection that is open and silent (a frozen process, a proxy) raises no error.
  watch() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.lose(), SILENCE_MS);
  }

  // The browser's own reconnecting gives up for good at an answer such as 502.
  lose() {
    this.source.close();
    const wait = Math.min(LONGEST_WAIT_MS, 500 * 2 ** this.failures) * (0.5 + Math.random());
    this.failures += 1;
    this.retryAt = Date.now() + wait;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.start(), wait);
    this.become("lost");
  }

  become(state) {
    const changed = this.state !== state;
    this.state = state;
    if (changed) this.onChange(state);
  }
}

// How long ago something arrived. The clocks disagree when the machine slept or its time was set: the larger counts.
export class Since {
  constructor() {
    this.steady = performance.now();
    this.wall = Date.now();
  }

  get seconds() {
    return Math.max(0, performance.now() - this.steady, Date.now() - this.wall) / 1000;
  }
}
