"""Rounds of cases and step: what is timed when, what a failure leaves; needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collbench.job import Case, Job, Plan, RankResult, Step, StepCall
from collbench.measure.results import Findings, ResultFile
from tests.contract.replayed import Alone, Replayed

pytestmark = pytest.mark.dist


class Explaining(Alone):
    """The device, with an opinion on errors."""

    def explain(self, error: Exception) -> Exception:
        return error


def case(size: int, dtype: str = "float32") -> Case:
    return Case(collective="all_reduce", size_bytes=size, dtype=dtype, mode="graph")


SMALL, MIDDLE, LARGE = case(64), case(1 << 20), case(16 << 20)
STEP = Step(
    name="s",
    calls=(StepCall(collective="all_reduce", size_bytes=64, dtype="float32", count=7),),
)


def rounds(
    path: Path, *cases: Case, clock: Any, step: Step | None = None, replays: int = 6
) -> RankResult:
    from collbench.measure.rounds import in_rounds

    job = Job(
        job_id="r",
        backend="alone",
        nranks=1,
        cases=cases,
        step=step,
        plan=Plan(replays=replays, step_replays=2, pool_bytes=64),
    )
    file = ResultFile(str(path / "r.json"), 0)
    findings = Findings(job, clock.backend, file)
    done = in_rounds(job, clock, cases, findings)
    assert (done is None) == (step is None)
    outcome, reason = findings.outcome()
    file.update(outcome=outcome, reason=reason)
    return file.part


def test_windows_of_every_case_and_of_the_step_are_spread_over_the_launch(tmp_path: Path) -> None:
    clock = Replayed(Explaining())
    part = rounds(tmp_path, SMALL, LARGE, MIDDLE, clock=clock, step=STEP)
    small, large, middle, step, bare = 100, 5, 50, 7, 0
    assert clock.timed == [
        (large, 6),
        *((small, 2), (middle, 2), (step, 1), (bare, 1)),
        *((small, 2), (middle, 2), (step, 1), (bare, 1)),
        *((small, 1), (middle, 1)),
        *((small, 1), (middle, 1)),
    ]
    assert [share.case for share in part.cases] == [SMALL, LARGE, MIDDLE]
    assert [share.times_us for share in part.cases] == [[1 / n] * 6 for n in (small, large, middle)]
    assert part.outcome == "ok"


def test_no_graph_outlives_its_rounds(tmp_path: Path) -> None:
    """A communicator that a graph refers to cannot be destroyed, and nothing collects cycles."""
    import gc

    clock = Replayed(Explaining())
    gc.disable()
    try:
        rounds(tmp_path, SMALL, LARGE, case(64, "float128"), clock=clock, step=STEP)
        assert len(clock.captured) == 6
        assert not any(graph() for graph in clock.captured)
    finally:
        gc.enable()


def test_a_case_that_cannot_be_done_costs_itself_only(tmp_path: Path) -> None:
    part = rounds(tmp_path, case(64, "float128"), SMALL, clock=Replayed(Explaining()))
    odd, fine = part.cases
    assert odd.error is not None
    assert odd.error.startswith("unsupported: ")
    assert (odd.times_us, len(fine.times_us), fine.error) == ([], 6, None)
    assert part.outcome == "ok"


@pytest.mark.parametrize("ends", [1, 3])
def test_a_failure_keeps_the_windows_before_it(tmp_path: Path, ends: int) -> None:
    """`ends`: the go of the second case in which it fails; the first has had as many by then."""
    clock = Replayed(Explaining())
    real = clock.windows

    def windows(graph: Any) -> Any:
        made = real(graph)
        if len(graph.body) != 50:
            return made
        goes = iter(range(1, 9))
        timed = made.time

        def time(count: int) -> list[float]:
            if next(goes) == ends:
                raise ConnectionResetError("the other rank is gone")
            return list(timed(count))

        made.time = time
        return made

    clock.windows = windows  # type: ignore[method-assign]
    file = tmp_path / "r.json"
    with pytest.raises(ConnectionResetError):
        rounds(tmp_path, SMALL, MIDDLE, clock=clock, replays=8)
    part = parts_of(file)
    kept = {share.case: share for share in part.cases}
    assert part.outcome == "hung"
    assert part.reason == MIDDLE.key
    assert kept[MIDDLE].error == "died: the other rank is gone"
    assert len(kept[SMALL].times_us if SMALL in kept else ()) == 2 * (ends - 1)


def test_a_step_that_cannot_be_done_leaves_the_cases(tmp_path: Path) -> None:
    from collbench.measure.rounds import in_rounds

    odd = Step(
        name="odd",
        calls=(StepCall(collective="all_reduce", size_bytes=64, dtype="float128", count=1),),
    )
    clock: Any = Replayed(Explaining())
    job = Job(job_id="r", backend="alone", nranks=1, cases=(SMALL,), step=odd)
    file = ResultFile(str(tmp_path / "r.json"), 0)
    findings = Findings(job, clock.backend, file)
    assert in_rounds(job, clock, (SMALL,), findings) is None
    assert findings.outcome() == ("ok", "")
    assert len(file.part.cases[0].times_us) == 20


def parts_of(path: Path) -> RankResult:
    import json

    from collbench.job import from_plain

    (part,) = json.loads(path.read_text())["parts"]
    return from_plain(RankResult, part)


def test_wrong_data_after_the_rounds_is_noticed(tmp_path: Path) -> None:
    class Flips(Explaining):
        reads = 0

        def read(self, memory: Any, nbytes: int) -> bytes:
            self.reads += 1
            data = super().read(memory, nbytes)
            return data if self.reads <= 1 else bytes([data[0] ^ 1]) + data[1:]

    part = rounds(tmp_path, SMALL, clock=Replayed(Flips()))
    assert part.outcome == "wrong"
    assert part.cases[0].wrong > 0
    assert len(part.cases[0].times_us) == 6


def test_unsupported_alone_is_the_outcome(tmp_path: Path) -> None:
    part = rounds(tmp_path, case(64, "float128"), clock=Replayed(Explaining()))
    assert part.outcome == "unsupported"
    assert "float128" in part.reason
