"""All metrics, on one page. Each process makes its own, with a registry of its own: nothing here is global."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_BATCH = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class WorkerMetrics:
    """What a worker counts. Times are in seconds; label values are words of the code, never of the input."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"rolloutfleet_worker_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"rolloutfleet_worker_{name}", text, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"rolloutfleet_worker_{name}", text, buckets=buckets, registry=self.registry)

        self.samples = counter("samples", "Samples made and stored.")
        self.samples_again = counter("samples_made_again", "Samples whose index was stored already, by another holder.")
        self.tokens = counter("tokens", "Tokens of the samples made.")
        self.groups = counter("groups", "Groups by how this worker's hold on them ended.", "outcome")
        self.claims = counter("claims", "Claims by the broker's answer.", "reason")
        self.retries = counter("retries", "Requests made again, by cause.", "cause")
        self.beats_failed = counter("heartbeats_failed", "Heartbeats that the broker did not answer.")

        self.slots = gauge("slots", "Sample slots of the engine.")
        self.busy = gauge("slots_busy", "Sample slots in use.")
        self.held = gauge("groups_held", "Groups that this worker holds.")
        self.fit = gauge("fit", "1 while this worker may claim.")

        self.engine_seconds = histogram("engine_seconds", "Time of one request to the engine.")
        self.reward_seconds = histogram("reward_seconds", "Time until one sample had its reward, tries included.")
        self.group_seconds = histogram("group_seconds", "Time from claim to the end of the hold.")
        self.put_batch = histogram("put_batch_samples", "Samples stored in one round trip.", _BATCH)
