"""Numbers about the server, as Prometheus reads them."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["Counters"]

# Upper ends of the bins of seconds.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Counters:
    """Counts of requests, batches, rows and loads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._bins = [0] * len(_SECONDS)
        self._seconds, self._timed = 0.0, 0
        self._batches = self._batched = self._rows = 0
        self._loads: Counter[tuple[str, str]] = Counter()

    def request(self, path: str, status: int, seconds: float) -> None:
        """Note a request that has been answered."""
        with self._lock:
            self._requests[path, status] += 1
            if path == "/predict":
                self._seconds += seconds
                self._timed += 1
                for i, end in enumerate(_SECONDS):
                    self._bins[i] += seconds <= end

    def batch(self, requests: int, rows: int) -> None:
        """Note that requests were predicted together."""
        with self._lock:
            self._batches += 1
            self._batched += requests
            self._rows += rows

    def load(self, name: str, good: bool) -> None:
        """Note that a new file was found."""
        with self._lock:
            self._loads[name, "good" if good else "failed"] += 1

    def text(self, waiting: int) -> str:
        """Return all numbers in the text format of Prometheus."""
        with self._lock:
            lines = ["# TYPE mcdensity_requests_total counter"]
            lines += [
                f'mcdensity_requests_total{{path="{path}",status="{status}"}} {count}'
                for (path, status), count in sorted(self._requests.items())
            ]
            lines.append("# TYPE mcdensity_predict_seconds histogram")
            lines += [
                f'mcdensity_predict_seconds_bucket{{le="{end:g}"}} {count}'
                for end, count in zip(_SECONDS, self._bins, strict=True)
            ]
            lines += [
                f'mcdensity_predict_seconds_bucket{{le="+Inf"}} {self._timed}',
                f"mcdensity_predict_seconds_sum {self._seconds:.6f}",
                f"mcdensity_predict_seconds_count {self._timed}",
            ]
            for name, kind, value in (
                ("mcdensity_batches_total", "counter", self._batches),
                ("mcdensity_batched_requests_total", "counter", self._batched),
                ("mcdensity_rows_total", "counter", self._rows),
                ("mcdensity_requests_waiting", "gauge", waiting),
            ):
                lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
            lines.append("# TYPE mcdensity_loads_total counter")
            lines += [
                f'mcdensity_loads_total{{model="{_escaped(name)}",result="{result}"}} {count}'
                for (name, result), count in sorted(self._loads.items())
            ]
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
