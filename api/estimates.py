"""What would change if a setting were another: estimates, each with how it comes about."""

from rolloutfleet.window import Window

_WORTH = 0.05  # gains below this are noise


def with_refill_sample(
    window: Window, slots: int, utilisation: float | None, active_full: float | None
) -> float | None:
    """Utilisation (0 to 1) that refill = sample would reach; None: it is on already, or too little is known.

    With refill = group a place stays taken until its group's slowest sample is done, so slots idle while the window is
    full. With refill = sample the places are counted in samples: of S samples about (n - 1) / 2 wait for a whole place
    to be free, hence at most S * (1 - (n - 1) / 2S) slots are busy, and no more than there are. Only the time behind
    `active_full` (a share of the last minutes) can be gained, since in the rest something else kept the slots idle:

        measured + active_full * (bound - measured)
    """
    if window.refill == "sample" or utilisation is None or active_full is None or slots <= 0 or window.samples <= 0:
        return None
    samples = window.samples * window.overcommit / 1000
    bound = min(1.0, max(0.0, samples - (window.n - 1) / 2) / slots)
    return utilisation + active_full * max(0.0, bound - utilisation)


def is_worth_it(estimate: float | None, utilisation: float | None) -> bool:
    return estimate is not None and utilisation is not None and estimate - utilisation > _WORTH
