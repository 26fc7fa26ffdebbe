"""From two records to a verdict per case. Sizes are never averaged over.

Launches are compared, not windows. The smallest p that the number of launches can reach is
computed first: where it is above the level the answer is "too few launches", never "no
difference". The cases are one family (Holm); the step is the primary figure and stands alone.
Launches that alternated are tested in pairs where there are pairs enough for the level, else as
independent ones, which then can speak earlier and is the safer side.
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
NOISY = 0.05
"""Launch-to-launch sd, as a fraction, from which a machine is called noisy."""
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
    judged = _judge(cases, margin, blocking, paired=paired)
    if step is not None:
        judged = [*_judge([step], margin, blocking, paired=paired), *judged]
    return Comparison(
        cases=tuple(judged),
        differs=blocking,
        accepted=tuple(difference for difference in found if difference.key in across),
        settings=tuple(changed_settings(a, b)),
        paired=paired,
        tested=sum(joined.testable for joined in cases),
        margin=margin,
        warnings=tuple(_warnings(mine, other, unsaid, paired=paired)),
    )


def _warnings(a: Results, b: Results, unsaid: Sequence[str], *, paired: bool) -> list[str]:
    said = [f"{key}: only one record says it; not compared" for key in unsaid]
    for name, one in (("A", a), ("B", b)):
        said += [f"{name}: {what}: {why}" for what, why in one.failed]
        said += [
            f"{name}: {case.case.key}: timed the launch, not the transfer (host bound)"
            for case in one.cases
            if case.host_bound
        ]
        spreads = [(stats.relative_sd(c.values_us) or 0.0, c.case.key) for c in one.cases]
        worst, key = max(spreads, default=(0.0, ""))
        if worst > NOISY:
            remedy = "" if paired else "; only records whose launches alternate can tell then"
            said.append(f"{name}: launches of {key} differ by {worst:.0%} (sd): noisy{remedy}")
    return said


@dataclass(frozen=True, slots=True)
class _Joined:
    """One case of both records, before any test."""

    key: str
    a: tuple[float, ...] = ()
    b: tuple[float, ...] = ()
    """One value a launch; value k of both is a pair where launches alternated."""
    differs: tuple[str, ...] = ()

    @property
    def testable(self) -> bool:
        return not self.differs


def _cases(a: Sequence[CaseResult], b: Sequence[CaseResult], *, paired: bool) -> list[_Joined]:
    other = {result.case: result for result in b}
    known = {result.case for result in a}
    joined = []
    for one in a:
        two = other.get(one.case)
        if two is None:
            joined.append(_Joined(one.case.key, differs=_why(one, b, "A")))
        else:
            joined.append(_join(one.case.key, one, two, paired=paired))
    lone = [result for result in b if result.case not in known]
    return joined + [_Joined(two.case.key, differs=_why(two, a, "B")) for two in lone]


def _join(
    key: str, one: CaseResult | StepResult, two: CaseResult | StepResult, *, paired: bool
) -> _Joined:
    wrong = tuple(f"wrong data in {name}" for name, r in (("A", one), ("B", two)) if r.wrong)
    if wrong:
        return _Joined(key, differs=wrong)
    if not paired:
        return _Joined(key, one.values_us, two.values_us)
    left = dict(zip(one.launch_index, one.values_us, strict=True))
    right = dict(zip(two.launch_index, two.values_us, strict=True))
    both = sorted(set(left) & set(right))
    if not both:
        return _Joined(key, differs=("no launch in common",))
    return _Joined(key, tuple(left[i] for i in both), tuple(right[i] for i in both))


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
) -> _Joined | None:
    if one is None and two is None:
        return None
    if one is None or two is None:
        return _Joined(STEP, differs=("only in B" if one is None else "only in A",))
    if a.job.step != b.job.step:
        return _Joined(STEP, differs=("workload",))
    return _join(STEP, one, two, paired=paired)


def _judge(
    family: Sequence[_Joined], margin: float, blocking: Sequence[Difference], *, paired: bool
) -> list[CaseComparison]:
    """Return the verdicts on cases that are tested together."""
    if blocking:
        why = tuple(difference.key for difference in blocking)
        return [
            CaseComparison(
                key=one.key,
                verdict="not_comparable",
                a_us=stats.percentile(one.a, 50) if one.a else None,
                b_us=stats.percentile(one.b, 50) if one.b else None,
                launches=(len(one.a), len(one.b)),
                differs=one.differs or why,
            )
            for one in family
        ]
    level = ALPHA / max(1, sum(one.testable for one in family))
    tested = [_test(one, level, paired=paired) for one in family]
    adjusted = iter(stats.holm(case.p for case in tested if case.p is not None))
    return [
        case if case.p is None else _verdict(case, next(adjusted), level, margin) for case in tested
    ]


def _test(one: _Joined, level: float, *, paired: bool) -> CaseComparison:
    """Return ratio, interval and p of a case; the verdict is still open."""
    if not one.testable:
        return CaseComparison(key=one.key, verdict="not_comparable", differs=one.differs)
    n, m = len(one.a), len(one.b)
    in_pairs = paired and stats.smallest_p(n, m, paired=True) <= level
    return CaseComparison(
        key=one.key,
        verdict="no_difference",
        a_us=stats.percentile(one.a, 50),
        b_us=stats.percentile(one.b, 50),
        ratio=stats.ratio_of_medians(one.a, one.b, paired=paired),
        interval=stats.ratio_interval(one.a, one.b, paired=paired),
        launches=(n, m),
        p=(stats.signed_rank_p if in_pairs else stats.rank_sum_p)(one.a, one.b),
        smallest_p=stats.smallest_p(n, m, paired=in_pairs),
    )


def _verdict(case: CaseComparison, adjusted: float, level: float, margin: float) -> CaseComparison:
    """Return a tested case with its verdict.

    Args:
        case: With its p.
        adjusted: Its p after Holm.
        level: What its smallest reachable p must not exceed.
        margin: As in `compare`.
    """
    assert case.smallest_p is not None
    assert case.ratio is not None
    verdict: Verdict = "no_difference"
    if case.smallest_p > level or case.interval is None:
        verdict = "too_few_launches"
    elif adjusted <= ALPHA and case.ratio >= 1 + margin and case.interval[0] > 1:
        verdict = "slower"
    elif adjusted <= ALPHA and case.ratio <= 1 - margin and case.interval[1] < 1:
        verdict = "faster"
    return replace(case, verdict=verdict, p_adjusted=adjusted)
