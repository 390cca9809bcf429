"""The rollout worker: one process beside one engine. `python -m worker`; `worker.py` is where to begin reading."""
