"""Text from strangers (workers' facts, raw entries), made fit to be shown."""

_LONGEST = 2000  # characters of one fact


def shown(value: object) -> str:
    """As text that any encoder takes (a lone surrogate is none), cut where it is endless."""
    return str(value)[:_LONGEST].encode(errors="replace").decode()
