"""What /metrics shows: counters and histograms of requests, gauges of queue, pages and models."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from localllm.server.record import Record

FIRST = (0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)  # prompts on a CPU
GAP = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
WHOLE = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)

ENGINE = {  # a number of the engine -> its metric, a gauge unless it counts
    "running": ("sequences_running", "Sequences in the engine."),
    "queued": ("sequences_queued", "Sequences that wait for pages."),
    "pages_used": ("pages_used", "Pages of KV that running sequences hold."),
    "pages_cached": ("pages_cached", "Pages of KV kept for their prefixes."),
    "pages_free": ("pages_free", "Pages of KV that hold nothing."),
    "preemptions": ("preemptions_total", "Sequences that gave up their pages for older ones."),
    "evictions": ("evictions_total", "Cached pages given up to make room."),
    "draft_tokens": ("draft_tokens_total", "Guesses at tokens of answers that were computed."),
    "accepted_tokens": ("accepted_tokens_total", "Of those, the ones that came true."),
}


class Metrics:
    """One server's numbers. `gauges` is asked at each scrape: (metric, help, labels, value)."""

    def __init__(self, gauges: Callable[[], Iterable[tuple[str, str, dict[str, str], float]]]):
        self.registry, self._gauges = CollectorRegistry(), gauges
        self.registry.register(self)  # type: ignore[arg-type]
        self.requests = self._counter("requests", "Requests answered.", "path", "status")
        self.finished = self._counter("finished", "Answers by how they ended.", "model", "reason")
        self.prompt = self._counter("prompt_tokens", "Tokens of prompts.", "model")
        self.cached = self._counter("prefix_hit_tokens", "Of those, taken from the cache.", "model")
        self.generated = self._counter("generated_tokens", "Tokens of answers.", "model")
        self.cancelled = self._counter("cancellations", "Requests given up by clients.", "model")
        self.first = self._histogram("time_to_first_token_seconds", "Request to token 1.", FIRST)
        self.gap = self._histogram("inter_token_latency_seconds", "Between two tokens.", GAP)
        self.whole = self._histogram("request_seconds", "Request to last byte.", WHOLE)

    def done(self, record: Record, route: str, seconds: float) -> None:
        """Count a request that is over. `route` is a path of ours, never the client's text."""
        self.requests.labels(route, str(record.status)).inc()
        if not record.finish:
            return
        model = record.model
        self.finished.labels(model, record.finish).inc()
        self.prompt.labels(model).inc(record.prompt_tokens)
        self.cached.labels(model).inc(record.cached_tokens)
        self.generated.labels(model).inc(record.completion_tokens)
        self.whole.labels(model).observe(seconds)
        if record.finish == "cancelled":
            self.cancelled.labels(model).inc()
        if record.ttft is not None:
            self.first.labels(model).observe(record.ttft)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """The numbers that are read rather than counted, as prometheus_client asks for them."""
        families: dict[str, Any] = {}
        for name, help, labels, value in self._gauges():
            if name not in families:
                kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                families[name] = kind(f"localllm_{name}", help, labels=list(labels))
            families[name].add_metric(list(labels.values()), value)
        yield from families.values()

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"localllm_{name}", help, labels, registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"localllm_{name}", help, ("model",), registry=self.registry, buckets=buckets
        )
