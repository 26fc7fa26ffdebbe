"""From two records to a verdict per case. Sizes are never averaged over.

Launches are compared, not windows. The smallest p that the number of launches can reach is
computed first: where it is above the level the answer is "too few launches", never "no
difference". The cases are one family (Holm); the step is the primary figure and stands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from collbench import stats
from collbench.compare.keys import KEYS, Difference, changed_settings, differences
from collbench.errors import CollbenchError, Exit
from collbench.record import RunRecord
from collbench.results import CaseResult, Results, StepResult, results

Verdict = Literal["faster", "slower", "no_difference", "too_few_launches", "not_comparable"]
ALPHA = 0.05
MARGIN = 0.01
"""Smallest difference that is called one: launches of one sitting say nothing of the next day's."""
STEP = "step"


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseComparison:
    """One case, or the step, in both records."""

    key: str
    verdict: Verdict
    a_us: float | None = None
    b_us: float | None = None
    ratio: float | None = None
    """B / A: below 1, B is faster."""
    interval: tuple[float, float] | None = None
    """95 % bootstrap interval of the ratio over launches."""
    launches: tuple[int, int] = (0, 0)
    p: float | None = None
    """Two-sided rank test over launches, before any adjustment."""
    p_adjusted: float | None = None
    """Holm's, over all cases."""
    smallest_p: float | None = None
    """Smallest p that so many launches can reach."""
    differs: tuple[str, ...] = ()
    """Why it is not comparable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two records, compared."""

    cases: tuple[CaseComparison, ...]
    differs: tuple[Difference, ...]
    """Keys that keep them from being compared."""
    accepted: tuple[Difference, ...]
    """Keys that differ and were accepted."""
    settings: tuple[Difference, ...]
    paired: bool
    tested: int
    """Cases in the family of the Holm adjustment."""
    margin: float
    warnings: tuple[str, ...]

    @property
    def exit_code(self) -> Exit:
        """5 over 3 over 4 over 0."""
        verdicts = {case.verdict for case in self.cases}
        if "not_comparable" in verdicts or self.differs or not self.cases:
            return Exit.NOT_COMPARABLE
        if "slower" in verdicts:
            return Exit.FINDINGS
        return Exit.UNDECIDED if "too_few_launches" in verdicts else Exit.OK


def compare(
    a: RunRecord, b: RunRecord, *, margin: float = MARGIN, across: Sequence[str] = ()
) -> Comparison:
    """Compare record `b` with record `a`.

    Args:
        a: The reference.
        b: What is compared with it.
        margin: Differences of the ratio from 1 below this are no difference.
        across: Keys (of `KEYS`, or ``cases``) that may differ, because they are what is compared:
            a library version, a machine.

    Raises:
        CollbenchError: `margin` or a key of `across` is wrong.
    """
    if not 0 <= margin < 1:
        raise CollbenchError(f"--margin: {margin} is not from 0 to below 1", fix="use 0.01 for 1 %")
    for key in across:
        if key not in KEYS and key != "cases":
            raise CollbenchError(
                f"--across: unknown key {key!r}", fix=f"use {', '.join([*KEYS, 'cases'])}"
            )
    found, unsaid = differences(a, b)
    blocking = tuple(difference for difference in found if difference.key not in across)
    paired = a.interleaved is not None and a.interleaved == b.interleaved
    mine, other = results(a), results(b)
    step = _step(a, b, mine.step, other.step, paired=paired)
    cases = _cases(mine.cases, other.cases, paired=paired)
    if "cases" in across:
        cases = [case for case in cases if not set(case.differs) & {"only in A", "only in B"}]
    family = [case for case in cases if case.p is not None]
    adjusted = iter(stats.holm(case.p for case in family if case.p is not None))
    level = ALPHA / max(1, len(family))
    judged = [
        _judged(case, next(adjusted) if case.p is not None else None, level, margin, blocking)
        for case in cases
    ]
    if step is not None:
        judged.insert(0, _judged(step, step.p, ALPHA, margin, blocking))
    return Comparison(
        cases=tuple(judged),
        differs=blocking,
        accepted=tuple(difference for difference in found if difference.key in across),
        settings=tuple(changed_settings(a, b)),
        paired=paired,
        tested=len(family),
        margin=margin,
        warnings=tuple(_warnings(mine, other, unsaid)),
    )


def _warnings(a: Results, b: Results, unsaid: Sequence[str]) -> list[str]:
    said = [f"{key}: only one record says it; not compared" for key in unsaid]
    for name, one in (("A", a), ("B", b)):
        said += [f"{name}: {what}: {why}" for what, why in one.failed]
        said += [
            f"{name}: {case.case.key}: timed the launch, not the transfer (host bound)"
            for case in one.cases
            if case.host_bound
        ]
    return said


def _cases(
    a: Sequence[CaseResult], b: Sequence[CaseResult], *, paired: bool
) -> list[CaseComparison]:
    other = {result.case: result for result in b}
    joined = [_joined(result, other.get(result.case), b, "A", paired=paired) for result in a]
    known = {result.case for result in a}
    return joined + [
        _joined(result, None, a, "B", paired=paired) for result in b if result.case not in known
    ]


def _joined(
    one: CaseResult,
    two: CaseResult | None,
    candidates: Sequence[CaseResult],
    name: str,
    *,
    paired: bool,
) -> CaseComparison:
    if two is None:
        return CaseComparison(
            key=one.case.key, verdict="not_comparable", differs=_why(one, candidates, name)
        )
    wrong = [f"wrong data in {n}" for n, r in (("A", one), ("B", two)) if r.wrong]
    if wrong:
        return CaseComparison(key=one.case.key, verdict="not_comparable", differs=tuple(wrong))
    return _tested(
        one.case.key,
        dict(zip(one.launch_index, one.values_us, strict=True)),
        dict(zip(two.launch_index, two.values_us, strict=True)),
        paired=paired,
    )


def _why(one: CaseResult, candidates: Sequence[CaseResult], name: str) -> tuple[str, ...]:
    """Return what keeps a case from being found in the other record."""
    near = [
        r.case
        for r in candidates
        if (r.case.collective, r.case.size_bytes) == (one.case.collective, one.case.size_bytes)
    ]
    if not near:
        return (f"only in {name}",)
    fields = [
        field
        for field in ("dtype", "mode")
        if all(getattr(case, field) != getattr(one.case, field) for case in near)
    ]
    return tuple(fields) or (f"only in {name}",)


def _step(
    a: RunRecord, b: RunRecord, one: StepResult | None, two: StepResult | None, *, paired: bool
) -> CaseComparison | None:
    if one is None and two is None:
        return None
    why = []
    if one is None or two is None:
        why.append("only in B" if one is None else "only in A")
    elif a.job.step != b.job.step:
        why.append("workload")
    elif one.wrong or two.wrong:
        why += [f"wrong data in {name}" for name, s in (("A", one), ("B", two)) if s.wrong]
    if why or one is None or two is None:
        return CaseComparison(key=STEP, verdict="not_comparable", differs=tuple(why))
    return _tested(
        STEP,
        dict(zip(one.launch_index, one.values_us, strict=True)),
        dict(zip(two.launch_index, two.values_us, strict=True)),
        paired=paired,
    )


def _tested(key: str, a: dict[int, float], b: dict[int, float], *, paired: bool) -> CaseComparison:
    """Return ratio, interval and p of a case; the verdict is still open."""
    if paired:
        both = sorted(set(a) & set(b))
        left, right = [a[i] for i in both], [b[i] for i in both]
    else:
        left, right = list(a.values()), list(b.values())
    if not left or not right:
        return CaseComparison(key=key, verdict="not_comparable", differs=("no common launch",))
    test = stats.signed_rank_p if paired else stats.rank_sum_p
    return CaseComparison(
        key=key,
        verdict="no_difference",
        a_us=stats.percentile(left, 50),
        b_us=stats.percentile(right, 50),
        ratio=stats.ratio_of_medians(left, right, paired=paired),
        interval=stats.ratio_interval(left, right, paired=paired),
        launches=(len(left), len(right)),
        p=test(left, right),
        smallest_p=stats.smallest_p(len(left), len(right), paired=paired),
    )


def _judged(
    case: CaseComparison,
    adjusted: float | None,
    level: float,
    margin: float,
    blocking: Sequence[Difference],
) -> CaseComparison:
    """Return the case with its verdict.

    Args:
        case: With its p.
        adjusted: Its p after Holm.
        level: What its smallest reachable p must not exceed.
        margin: As in `compare`.
        blocking: Keys that forbid any comparison.
    """
    if case.verdict == "not_comparable":
        return case
    if blocking:
        return CaseComparison(
            key=case.key,
            verdict="not_comparable",
            a_us=case.a_us,
            b_us=case.b_us,
            launches=case.launches,
            differs=tuple(difference.key for difference in blocking),
        )
    verdict: Verdict = "no_difference"
    assert case.smallest_p is not None
    assert case.ratio is not None
    if case.smallest_p > level or case.interval is None:
        verdict = "too_few_launches"
    elif adjusted is not None and adjusted <= ALPHA:
        if case.ratio >= 1 + margin and case.interval[0] > 1:
            verdict = "slower"
        elif case.ratio <= 1 - margin and case.interval[1] < 1:
            verdict = "faster"
    return replace(case, verdict=verdict, p_adjusted=adjusted)
