"""The summary as people read it: a table of 80 columns, and a sentence on what held the fleet back."""

from deploy.local.summary import Summary, bound
from rolloutfleet.view import bar
from rolloutfleet.window import Reason

_MUCH = 0.25  # share of the time from which a reason counts as what held the fleet back
_FULL = 0.9  # utilisation from which the engines are the limit
_NEAR = 0.75  # share of its bound from which utilisation is said to be bounded by it


def table(summary: Summary) -> list[str]:
    """Lines of at most 80 characters, but for names that are longer by themselves."""
    facts, extras = summary.facts, summary.extras
    word = "stopped after" if extras.stopped else "finished in"
    head = f"{facts.trained} of {facts.submitted} groups of {facts.n} {word} {extras.seconds:.1f} s"
    rows = [
        ("groups", _groups(summary)),
        ("samples", _samples(summary)),
        (
            "window",
            f"{summary.window} groups; most active {facts.count('most_active')}, "
            f"most waiting {facts.count('most_waiting')}",
        ),
        ("makespan", f"{facts.makespan:.1f} s; with all {facts.slots} slots always busy {summary.ideal_seconds:.1f} s"),
        ("slots busy", _share(summary.utilisation)),
        ("the bound", f"{_share(summary.utilisation_bound)}  of refill {facts.refill}"),
        *_gates(summary),
        ("trainer", _trainer(summary)),
        ("faults", _faults(summary)),
        *_troubles(summary),
    ]
    return [head, "", *(f"  {name:11} {text}" for name, text in rows), "", *wrap(advice(summary))]


def advice(summary: Summary) -> str:
    """One or two sentences: what the bottleneck was, and what to change."""
    facts, held = summary.facts, _main_reason(summary)
    busy = summary.utilisation or 0.0
    if not facts.trained and summary.extras.stopped:
        return "Stopped before the trainer had a whole batch."
    if not facts.trained:
        return "Nothing was completed; the reasons above and the logs say why (--logs DIR keeps them)."
    if busy >= _FULL:
        return f"The engines were the bottleneck: their slots were {busy:.0%} busy. More engines (--engines) go faster."
    if summary.extras.worker_kills + summary.extras.deaths and busy < _NEAR * (summary.utilisation_bound or 0.0):
        return (
            f"Slots were {busy:.0%} busy where the window allows {summary.utilisation_bound:.0%}: what died had to "
            f"start again, with the samples that it was making. {_kept(summary)}"
        )
    if held is Reason.COMPLETED_FULL:
        return (
            "The trainer was the bottleneck: completed groups waited for it, and the window held the workers back. "
            "A faster step (--train-seconds) or a smaller fleet fits better."
        )
    if held is Reason.PACE:
        return (
            "The trainer set the pace: more groups would have been older than --max-staleness when it came to them. "
            "A faster step (--train-seconds), a larger bound or a smaller fleet fits better."
        )
    if held is Reason.NO_PROMPTS:
        return "The fleet ran out of prompts for a good part of the time: more groups (--groups) keep it busy."
    if busy < _NEAR * (summary.utilisation_bound or 0.0):
        return (
            f"Slots were {busy:.0%} busy where the window allows {summary.utilisation_bound:.0%}: the run was short, "
            "so that its start and its tail count, or faults cost time. More groups (--groups) say more."
        )
    if held is Reason.ACTIVE_FULL or held is Reason.BUSY:
        return _window_advice(summary)
    return f"Nothing held the fleet back for long; its slots were {busy:.0%} busy."


def _kept(summary: Summary) -> str:
    return "Finished samples were kept, and no group was lost." if summary.lost == 0 else "Groups were lost: see above."


def _window_advice(summary: Summary) -> str:
    facts, busy = summary.facts, summary.utilisation or 0.0
    if facts.refill == "sample" and (summary.utilisation_bound or 0.0) >= _FULL:
        return (
            f"The engines were the bottleneck: {busy:.0%} of their slots were busy, and the rest is the start and the "
            "tail of the run. More engines (--engines) go faster."
        )
    if facts.refill == "sample":
        return f"The window was the limit, with {busy:.0%} of the slots busy: a larger --sample-concurrency fills more."
    better = bound(facts, "sample") or 0.0
    if summary.window * facts.n < facts.slots:
        return (
            f"The window was the bottleneck: it holds {summary.window * facts.n} samples, and there are {facts.slots} "
            "slots. A larger --sample-concurrency, or auto, fills them."
        )
    return (
        f"The window was the bottleneck: a place is free only when the slowest sample of its group is done, so slots "
        f"idled ({busy:.0%} busy). --refill sample can keep {better:.0%} busy; a larger --overcommit is a middle way."
    )


def _main_reason(summary: Summary) -> Reason | None:
    behind = summary.facts.behind
    total = sum(behind.values())
    known = [(seconds, reason) for reason, seconds in behind.items() if reason in list(Reason) and reason != "open"]
    seconds, reason = max(known, default=(0.0, ""))
    return Reason(reason) if total and seconds / total >= _MUCH else None


def _groups(summary: Summary) -> str:
    facts = summary.facts
    parts = [f"{facts.trained} completed", f"{summary.dead} dead", f"{summary.lost} lost", f"{facts.doubled} doubled"]
    if summary.dropped:
        parts.append(f"{summary.dropped} dropped")
    if facts.unfinished:
        parts.append(f"{facts.unfinished} unfinished")
    if summary.extras.finished_before:
        parts.append(f"{summary.extras.finished_before} finished by an earlier run")
    return ", ".join(parts)


def _samples(summary: Summary) -> str:
    facts, extras = summary.facts, summary.extras
    reward = "" if extras.mean_reward is None else f", mean reward {extras.mean_reward:.2f}"
    again = facts.count("samples_made_again")
    return f"{facts.count('samples')} made, {again} of them again; {facts.tokens:,} tokens{reward}"


def _gates(summary: Summary) -> list[tuple[str, str]]:
    behind = summary.facts.behind
    total = sum(behind.values()) or 1
    shares = sorted(((seconds / total, reason) for reason, seconds in behind.items()), reverse=True)
    sentences = [f"{share:4.0%} {_sentence(reason)}" for share, reason in shares if share >= 0.01]
    return [("gate" if number == 0 else "", text) for number, text in enumerate(sentences)]


def _sentence(reason: str) -> str:
    return Reason(reason).sentence.partition(":")[0] if reason in list(Reason) else reason


def _trainer(summary: Summary) -> str:
    extras = summary.extras
    if extras.steps_behind_mean is None:
        return "no step"
    age = f"{extras.steps_behind_mean:.1f} on average, {extras.steps_behind_max} at most"
    return f"{extras.steps} steps; age of the groups in steps: {age}"


def _faults(summary: Summary) -> str:
    facts, extras = summary.facts, summary.extras
    return (
        f"{facts.count('retries')} retries, {extras.worker_kills} workers killed, {extras.deaths} other deaths, "
        f"{extras.bad_lines} bad lines"
    )


def _troubles(summary: Summary) -> list[tuple[str, str]]:
    reasons = sorted(summary.extras.dead_reasons.items(), key=lambda pair: -pair[1])
    return [("dead", f"{count} x {reason[:60]}") for reason, count in reasons[:3]]


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{bar(round(share * 100), 100, 30)} {share:4.0%}"


def wrap(text: str, width: int = 78) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines
