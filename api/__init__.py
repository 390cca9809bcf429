"""The status service: why is the fleet idle, since when, and what to do about it. Run as `python -m api`."""
