"""Step timings before and after, from whatever a server gives: one file with both runs, or two."""

from __future__ import annotations

from pathlib import Path

from collbench.errors import CollbenchError
from collbench.findings import Finding
from collbench.readers import Reading, UnreadableError
from collbench.readers.e2e import PAIR, compare_runs
from collbench.readers.serving import Speed, looks_served, read_speed
from collbench.readers.steps import Run, StepFile, parse_steps
from collbench.readers.text import decode, read_whole, sections

_ALLOWED = (
    "steps as CSV or JSON, SGLang decode lines, bench_serving JSON, a saved /metrics page, or a "
    "torch profiler trace"
)


def load_steps(paths: list[Path]) -> tuple[StepFile, list[str]]:
    """Return both runs of one or two files, and what their sources cannot tell.

    Raises:
        CollbenchError: a file cannot be read, or the runs are not two.
    """
    if len(paths) == 1:
        found, cannot = _load(paths[0])
        if set(found.runs) != set(PAIR):
            raise CollbenchError(
                f"--steps {paths[0]}: holds {', '.join(found.runs) or 'one run'}, not before and "
                "after",
                fix="give two files, before then after: --steps BEFORE --steps AFTER",
            )
        return found, cannot
    if len(paths) != 2:
        raise CollbenchError(
            f"--steps: {len(paths)} files",
            fix="give one file with both runs, or two: before, then after",
        )
    both = StepFile()
    cannot_tell: list[str] = []
    for label, path in zip(PAIR, paths, strict=True):
        found, cannot = _load(path)
        cannot_tell += [text for text in cannot if text not in cannot_tell]
        # Of a file with both runs, the one of its place counts.
        run = found.runs.get(label) or next(iter(found.runs.values()))
        both.runs[label] = Run(
            label,
            run.verify_ms,
            run.accept_len,
            run.tok_s,
            run.repeats,
            known=found.known | run.known,
        )
    return both, cannot_tell


def _load(path: Path) -> tuple[StepFile, list[str]]:
    try:
        text = decode(read_whole(path))
        section = next(s for s in sections(text) if s.text.strip())
        if looks_served(section.text):
            speed = read_speed(section)
            return _of_speed(speed), speed.cannot_tell
        return parse_steps(section), []
    except UnreadableError as error:
        raise CollbenchError(f"--steps {path}: {error.reason}", fix=f"give {_ALLOWED}") from error


def _of_speed(speed: Speed) -> StepFile:
    """Return what a server says of one run as a run of steps."""
    run = Run("")
    run.verify_ms = list(speed.steps_ms) or ([speed.step_ms] if speed.step_ms else [])
    single = [speed.accept_len] if speed.accept_len is not None else []
    run.accept_len = list(speed.accepts) or single
    run.tok_s = [speed.tok_s] if speed.tok_s is not None else []
    if speed.graph_share is not None:
        run.known["graph"] = speed.graph_share >= 0.5
    if speed.comm_ms is not None:
        run.known["comm_ms"] = speed.comm_ms
    return StepFile({"": run})


def compare_loaded(found: StepFile) -> Reading | Finding:
    """Return the facts of both runs, or the finding that there is no step time to compare."""
    try:
        return compare_runs(found)
    except UnreadableError as error:
        if all(found.runs[label].tok_s for label in PAIR if label in found.runs):
            rates = [sum(r.tok_s) / len(r.tok_s) for r in (found.runs[label] for label in PAIR)]
            return Finding(
                code="verify.time_unknown",
                evidence=f"{rates[0]:.4g} to {rates[1]:.4g} tokens/s, and no step time: fewer "
                "accepted tokens and a slower step look the same",
                next="record step times: decode lines of the log with accept len, or median_itl_ms",
            )
        raise CollbenchError(f"--steps: {error.reason}", fix=f"give {_ALLOWED}") from error
