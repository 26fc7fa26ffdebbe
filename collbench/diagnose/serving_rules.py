"""One run as its server tells it: nothing to compare, but what it cannot tell is said."""

from __future__ import annotations

from collbench.findings import Finding
from collbench.readers import Given, Reading
from collbench.readers.serving import Speed

CAPTURED_SHARE = 0.5


def judge_serving(reading: Reading, given: Given) -> list[Finding]:
    """Return what a single run shows by itself."""
    speed: Speed = reading.signs["speed"]
    found = []
    if speed.graph_share is not None and speed.graph_share < CAPTURED_SHARE:
        found.append(
            Finding(
                code="verify.not_captured",
                confidence="medium",
                evidence=f"{100 * (1 - speed.graph_share):.0f} % of the steps ran outside a graph",
                next="capture larger batches (--cuda-graph-max-bs, cudagraph_capture_sizes)",
            )
        )
    if speed.tok_s is not None and speed.step_ms is None:
        found.append(
            Finding(
                code="verify.time_unknown",
                evidence=f"{speed.source} gives {speed.tok_s:g} tokens/s and no step time",
                next="compare step times: decode lines of the log, median_itl_ms, or a trace",
            )
        )
    return found
