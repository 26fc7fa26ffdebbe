"""A recorded landscape: its truths, its failures, its noise, and the space of its settings.

The truth of a setting is the median of all its launches in the files.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, get_args

from collbench.errors import CollbenchError
from collbench.job import Outcome, Settings
from collbench.knobs import registry
from collbench.space.axes import Axis, Key, Space, axis, key
from collbench.space.known import KNOWN_GOOD

OUTLYING = 0.06
"""A recorded default this far above the median is an outlier, not noise."""
SAME_DEFAULT = 0.25
"""How far (log) the defaults of two files of one landscape may lie apart."""
GUARD_FROM = 65536
GUARD_LIMIT = 1.03
_COLLECTIVES = {"ar": "all_reduce", "ag": "all_gather"}
_JOINT = (("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"), ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Truth:
    """One setting of a landscape, microseconds."""

    step_us: float
    nocomm_us: float
    cases: Mapping[str, float]
    """Case key -> us per call, guarded sizes only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """How a setting failed."""

    share: float
    """Of its launches."""
    outcome: Outcome
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Landscape:
    """What the files say."""

    truths: Mapping[Key, Truth]
    """Of the settings that ended well at least once."""
    failures: Mapping[Key, Failure]
    sd: float
    """Launch-to-launch sd of the default's step, as a fraction, outliers aside."""

    @property
    def names(self) -> frozenset[Key]:
        """Return every setting that was recorded."""
        return frozenset(self.truths) | frozenset(self.failures)

    @property
    def default(self) -> Truth:
        """Return the default's truth."""
        return self.truths[()]

    def passes(self, name: Key) -> bool:
        """Return whether a setting passes the guard, by its truth."""
        return all(
            us <= GUARD_LIMIT * self.default.cases[case]
            for case, us in self.truths[name].cases.items()
        )

    def best_us(self) -> float:
        """Return the lowest step among settings that pass the guard."""
        return min(t.step_us for name, t in self.truths.items() if self.passes(name))

    def regret_pct(self, name: Key, *, guarded: bool = False) -> float:
        """Return the regret; with `guarded`, a choice that fails the guard is the default."""
        chosen = () if guarded and not self.passes(name) else name
        return (self.truths[chosen].step_us / self.best_us() - 1) * 100

    def null(self) -> Landscape:
        """Return the same settings, all as fast as the default."""
        return replace(self, truths=dict.fromkeys(self.truths, self.default))

    def planted(self, percent: float, rng: random.Random) -> tuple[Landscape, tuple[str, str]]:
        """Return a null landscape where one value of one knob is `percent` better everywhere."""
        values: dict[str, set[str]] = defaultdict(set)
        for name in self.truths:
            for variable, value in name:
                values[variable].add(value)
        variable = rng.choice(sorted(values))
        planted = (variable, rng.choice(sorted(values[variable])))
        better = replace(self.default, step_us=self.default.step_us * (1 - percent / 100))
        truths = {n: better if planted in n else self.default for n in self.truths}
        return replace(self, truths=truths), planted


def read(paths: Sequence[Path]) -> Landscape:
    """Read landscape files; settings that hold a hazard are left out.

    Raises:
        CollbenchError: a file is missing, not a landscape, of other cases or another default than
            the first, or no default is in it; file, line and field are named.
    """
    launches: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    failed: dict[Key, list[tuple[Outcome, str]]] = defaultdict(list)
    levels: dict[Path, list[float]] = defaultdict(list)
    cases: set[str] | None = None
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CollbenchError(f"{path}: cannot be read: {error}") from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            launch = _line(line, where=f"{path}:{number}")
            if _hazardous(launch["env"]):
                continue
            if "outcome" in launch:
                failed[key(launch["env"])].append((launch["outcome"], launch["reason"]))
                continue
            if cases is None:
                cases = set(launch["cases"])
            if set(launch["cases"]) != cases:
                differing = ", ".join(sorted(cases ^ set(launch["cases"])))
                raise CollbenchError(
                    f"{path}:{number}: res.ar / res.ag: cases differ from the first launch's: "
                    f"{differing}",
                    fix="give files of one landscape only",
                )
            launches[key(launch["env"])].append(launch)
            if not launch["env"]:
                levels[path].append(launch["step"])
    if len(launches.get((), ())) < 2:
        raise CollbenchError(
            "env: the files hold fewer than two launches of the default ({})",
            fix="give files of one landscape, the default among them",
        )
    if len(launches) < 2:
        raise CollbenchError(
            "env: nothing but the default ended well in the files, hazards aside",
            fix="give a landscape with other settings too",
        )
    _one_machine(levels)
    truths = {
        name: Truth(
            step_us=median(one["step"] for one in found),
            nocomm_us=median(one["nocomm"] for one in found),
            cases={c: median(one["cases"][c] for one in found) for c in sorted(cases or ())},
        )
        for name, found in launches.items()
    }
    failures = {
        name: Failure(
            share=len(found) / (len(found) + len(launches.get(name, ()))),
            outcome=found[0][0],
            reason=found[0][1],
        )
        for name, found in failed.items()
        if name
    }
    sd = _noise([launch["step"] for launch in launches[()]])
    return Landscape(truths=truths, failures=failures, sd=sd)


def _noise(defaults: Sequence[float]) -> float:
    """Return the sd of the default's launches over their mean; a draw adds outliers of its own."""
    calm = [us for us in defaults if us <= (1 + OUTLYING) * median(defaults)]
    return stdev(calm) / mean(calm) if len(calm) > 1 else stdev(defaults) / mean(defaults)


def _one_machine(levels: Mapping[Path, Sequence[float]]) -> None:
    """Refuse files whose defaults have nothing to do with each other."""
    (first, known), *others = ((path, median(steps)) for path, steps in levels.items())
    for path, step in others:
        if abs(math.log(step / known)) > SAME_DEFAULT:
            raise CollbenchError(
                f"{path}: res.step_us of the default is {step:.0f}, {known:.0f} in {first}: "
                "another machine, workload or library",
                fix="give files of one landscape only",
            )


def _failed(plain: Any) -> tuple[Outcome, str] | None:
    """Return outcome and reason of a launch that did not end well, or None.

    Such a line has an ``outcome``, or an ``error`` (a ``reason``) instead of times, or no ``res``.
    """
    if not isinstance(plain, dict) or not isinstance(plain.get("env"), dict):
        return None
    result = plain.get("res")
    within = result if isinstance(result, dict) else {}
    said = str(plain.get("outcome") or "ok")
    words = (plain.get("reason"), plain.get("error"), within.get("error"))
    reason = next((str(word) for word in words if word), "")
    empty = "res" in plain and not result
    if said == "ok" and ("step_us" in within or not (reason or empty)):
        return None
    for outcome in get_args(Outcome):
        if outcome == said != "ok":
            return outcome, reason
    text = f"{said} {reason}".lower()
    hung = any(word in text for word in ("hung", "hang", "timed out", "timeout", "deadline"))
    return ("hung" if hung else "died"), reason or "no result was recorded"


def _line(line: str, *, where: str) -> dict[str, Any]:
    try:
        plain = json.loads(line)
        failure = _failed(plain)
        if failure is not None:
            env = {str(n): str(v) for n, v in plain["env"].items()}
            return {"env": env, "outcome": failure[0], "reason": failure[1]}
        result = plain["res"]
        cases = {
            f"{_COLLECTIVES[kind]}/{size}/bfloat16/graph": median(result[kind][size])
            for kind in _COLLECTIVES
            for size in result.get(kind, {})
            if int(size) >= GUARD_FROM
        }
        env = {str(n): str(v) for n, v in plain["env"].items()}
        step, nocomm = median(result["step_us"]), median(result["step_nocomm_us"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CollbenchError(
            f"{where}: not a launch of a landscape: {type(error).__name__} {error}",
            fix="each line needs env, res.ar, res.ag, res.step_us and res.step_nocomm_us",
        ) from error
    return {"env": env, "cases": cases, "step": step, "nocomm": nocomm}


def _hazardous(env: Settings) -> bool:
    known = registry()
    return any(n in known and known[n].hazard_of(v) is not None for n, v in env.items())


def space_of(landscape: Landscape) -> Space:
    """Return the space whose members are the settings that were recorded."""
    members = landscape.names
    variables = sorted({n for name in members for n, _ in name})
    axes: list[Axis] = []
    joint = {v: pair for pair in _JOINT for v in pair if set(pair) <= set(variables)}
    done: set[str] = set()
    for variable in variables:
        if variable in done:
            continue
        together = set(joint.get(variable, (variable,)))
        done |= together
        parts = {key({n: v for n, v in name if n in together}) for name in members}
        ordered = sorted(parts - {()}, key=lambda part: (len(part), [_order(v) for _, v in part]))
        axes.append(axis(" + ".join(sorted(together)), [dict(part) for part in ordered]))
    seeds = [key(s) for s in KNOWN_GOOD["nccl"] if key(s) in members]
    return Space(axes=tuple(axes), seeds=tuple(seeds), members=members)


def _order(value: str) -> tuple[int, str]:
    return (int(value), "") if value.isdigit() else (0, value)
