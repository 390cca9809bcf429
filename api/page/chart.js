// The strip chart, drawn by hand: busy slots, waiting groups and samples per second over one axis of time, the reason
// at the gate beneath. A gap in the data is a gap in the lines.

import { byId, el, setText, svg, sync } from "./dom.js";
import { clock, count, short } from "./format.js";
import { label, ORDER } from "./reasons.js";

const SPAN_MS = 15 * 60_000;
const LANES = [
  { kind: "slots", title: "Busy slots", height: 96, value: (point) => point.busy, edge: (point) => point.total, edgeTitle: "all slots" },
  { kind: "waits", title: "Groups waiting for a trainer", height: 64, value: (point) => point.waiting, edge: (point) => point.window, edgeTitle: "window" },
  { kind: "rate", title: "Samples per second", height: 64, value: (point) => point.samples },
];
const HEAD = 20; // above each lane, for its title
const BAND = 16;
const FOOT = 20;
const HEIGHT = LANES.reduce((sum, lane) => sum + lane.height + HEAD, 0) + HEAD + BAND + FOOT;

export class Chart {
  constructor() {
    this.node = byId("chart");
    this.history = null;
    this.marked = null; // index of the point that is read out; null: the newest
    new ResizeObserver(() => this.draw()).observe(this.node);
    this.node.addEventListener("pointermove", (event) => this.point(event));
    this.node.addEventListener("pointerleave", () => this.mark(null));
    this.node.addEventListener("blur", () => this.mark(null));
    this.node.addEventListener("keydown", (event) => this.step(event));
  }

  show(history) {
    this.history = history;
    this.draw();
  }

  draw() {
    const points = this.history?.points ?? [];
    const width = this.node.clientWidth;
    if (!width) return;
    this.width = width;
    this.end = points.at(-1)?.at ?? 0;
    const picture = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` });
    let top = 0;
    for (const lane of LANES) {
      picture.append(...this.lane(lane, points, top + HEAD));
      top += lane.height + HEAD;
    }
    picture.append(...this.band(points, top + HEAD), ...this.axis(top + HEAD + BAND + 15));
    this.cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT - FOOT, visibility: "hidden" });
    picture.append(this.cursor);
    this.node.replaceChildren(picture);
    this.read();
    showLegend(points);
  }

  x(at) {
    return this.width * (1 - (this.end - at) / SPAN_MS);
  }

  lane({ kind, title, height, value, edge, edgeTitle }, points, top) {
    const numbers = points.flatMap((point) => [value(point), edge?.(point)]).filter((number) => number !== null && number !== undefined);
    const most = niceCeiling(Math.max(1e-9, ...numbers));
    const y = (number) => top + height * (1 - number / most);
    const heading = edge && this.width > 480 ? `${title} (dashed: ${edgeTitle})` : title;
    const parts = [
      svg("line", { class: "grid", x1: 0, x2: this.width, y1: top + height, y2: top + height }),
      svg("line", { class: "grid", x1: 0, x2: this.width, y1: top, y2: top }),
      svg("text", { class: "title", x: 0, y: top - 6 }, heading),
      svg("text", { x: this.width, y: top - 6, "text-anchor": "end" }, numbers.length ? short(most) : "unknown"),
    ];
    for (const piece of this.pieces(points, value)) {
      const line = piece.map((point) => `${this.x(point.at).toFixed(1)},${y(value(point)).toFixed(1)}`);
      const floor = (point) => `${this.x(point.at).toFixed(1)},${top + height}`;
      parts.push(svg("polygon", { class: `area ${kind}`, points: [floor(piece[0]), ...line, floor(piece.at(-1))].join(" ") }));
      parts.push(svg("polyline", { class: `stroke ${kind}`, points: line.join(" ") }));
    }
    for (const piece of edge ? this.pieces(points, edge) : []) {
      parts.push(svg("polyline", { class: "edge", points: piece.map((point) => `${this.x(point.at).toFixed(1)},${y(edge(point)).toFixed(1)}`).join(" ") }));
    }
    return parts;
  }

  // Points in a row, apart where a value is unknown or nothing was seen for three steps.
  pieces(points, value) {
    const found = [[]];
    let before = null;
    for (const point of points) {
      const known = value(point) !== null && value(point) !== undefined;
      if (!known || (before && point.at - before.at > 3 * this.history.stepMs)) found.push([]);
      if (known) found.at(-1).push(point);
      before = point;
    }
    return found.filter((piece) => piece.length);
  }

  band(points, top) {
    const parts = [svg("text", { class: "title", x: 0, y: top - 6 }, "Reason at the gate")];
    points.forEach((point, index) => {
      const next = points[index + 1]?.at ?? point.at + this.history.stepMs;
      const to = Math.min(next, point.at + 3 * this.history.stepMs);
      const x = this.x(point.at);
      parts.push(svg("rect", { class: `reason ${point.reason}`, x, y: top, width: Math.max(0.5, this.x(to) - x + 0.3), height: BAND }));
    });
    return parts;
  }

  axis(y) {
    return [15, 10, 5, 0].map((minutes) => {
      const x = this.width * (1 - minutes / 15);
      const anchor = minutes === 15 ? "start" : minutes ? "middle" : "end";
      return svg("text", { x, y, "text-anchor": anchor }, minutes ? `−${minutes} min` : "now");
    });
  }

  point(event) {
    const points = this.history?.points ?? [];
    const at = this.end - SPAN_MS * (1 - (event.clientX - this.node.getBoundingClientRect().left) / this.width);
    if (points.length) this.mark(nearest(points, at));
  }

  step(event) {
    const points = this.history?.points ?? [];
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") return this.mark(null);
    if (!(event.key in moves) || !points.length) return;
    event.preventDefault();
    const from = this.marked ? points.indexOf(this.marked) : points.length - 1;
    this.mark(points[Math.min(points.length - 1, Math.max(0, from + moves[event.key]))]);
  }

  mark(point) {
    this.marked = point;
    this.read();
  }

  read() {
    const points = this.history?.points ?? [];
    if (this.marked && !points.includes(this.marked)) this.marked = null;
    const point = this.marked ?? points.at(-1);
    setText(byId("readout"), point ? words(point) : "Nothing is recorded yet.");
    if (!this.cursor) return;
    this.cursor.setAttribute("visibility", this.marked ? "visible" : "hidden");
    if (this.marked) ["x1", "x2"].forEach((end) => this.cursor.setAttribute(end, this.x(this.marked.at)));
  }
}

function words({ at, reason, busy, total, active, waiting, window, samples }) {
  const parts = [
    `${count(busy) ?? "unknown"} of ${count(total)} slots busy`,
    `${count(active)} active and ${count(waiting)} waiting, window ${count(window)}`,
    `${short(samples) ?? "unknown"} samples/s`,
    label(reason).toLowerCase(),
  ];
  return `${clock(at)}: ${parts.join(" · ")}`;
}

function nearest(points, at) {
  return points.reduce((one, other) => (Math.abs(other.at - at) < Math.abs(one.at - at) ? other : one));
}

// The next round number, so that the scale stands still while values move a little.
function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value * 0.9999);
}

function showLegend(points) {
  const seen = new Set(points.map((point) => point.reason));
  const known = ORDER.filter((reason) => seen.has(reason));
  const make = (reason) => el("li", {}, el("span", { class: `dot ${reason}`, "aria-hidden": "true" }), label(reason));
  sync(byId("legend"), known, (reason) => reason, make);
}
