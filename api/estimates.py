"""What would change if a setting were another: estimates, each with how it comes about."""

from collections.abc import Sequence

from rolloutfleet.window import Window, sample_refill_share

_WORTH = 0.05  # gains below this are noise


def with_refill_sample(
    window: Window, slots: Sequence[int], utilisation: float | None, active_full: float | None
) -> float | None:
    """Utilisation (0 to 1) that refill = sample would reach; None: it is on already, or too little is known.

    With refill = group a place stays taken until its group's slowest sample is done, so slots idle while the window is
    full. With refill = sample the places are counted in samples, but groups come whole and stay with the worker that
    claimed them: `window.sample_refill_share`, with each worker's slots in `slots`. Only the time behind `active_full`
    (a share of the last minutes) can be gained, since in the rest something else kept the slots idle:

        measured + active_full * (bound - measured)
    """
    total, engines = sum(slots), sum(1 for number in slots if number)
    if window.refill == "sample" or utilisation is None or active_full is None or not total or window.samples <= 0:
        return None
    bound = sample_refill_share(window.samples * window.overcommit / 1000, window.n, total, engines)
    return utilisation + active_full * max(0.0, bound - utilisation)


def is_worth_it(estimate: float | None, utilisation: float | None) -> bool:
    return estimate is not None and utilisation is not None and estimate - utilisation > _WORTH
