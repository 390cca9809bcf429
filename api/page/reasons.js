// The reasons at the gate: the words that the page uses for them, and how much each asks of whoever looks.

// good: the fleet works; calm: it works as hard as it may; warn: GPUs idle; off: somebody wants it so; bad: act now.
const REASONS = {
  open: ["Open", "good"],
  busy: ["Workers are full", "calm"],
  active_full: ["Window is full", "calm"],
  completed_full: ["Trainer is behind", "warn"],
  pace: ["Trainer sets the pace", "calm"],
  no_prompts: ["No prompts", "warn"],
  paused: ["Paused", "off"],
  no_capacity: ["No workers", "bad"],
  stuck: ["Stuck", "bad"],
};

export const ORDER = Object.keys(REASONS);
export const label = (reason) => REASONS[reason]?.[0] ?? reason;

const TONES = ["bad", "warn", "off", "calm", "good"];

export function tone(run) {
  if (run.stuck || (run.gate.is_open && run.workers.length === 0)) return "bad";
  return REASONS[run.gate.reason]?.[1] ?? "warn";
}

export const title = (run) =>
  run.gate.is_open && run.workers.length === 0 ? "No workers" : label(run.stuck ? "stuck" : run.gate.reason);

// The run that needs a person most; the first of them by name.
export const worst = (runs) =>
  runs.reduce((one, other) => (TONES.indexOf(tone(other)) < TONES.indexOf(tone(one)) ? other : one));
