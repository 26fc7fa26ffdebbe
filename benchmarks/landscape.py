"""A recorded landscape as a lab: launches are drawn, nothing is timed.

The truth of a setting is the median of all its launches in the files. A draw multiplies it by
launch noise (lognormal), in one launch of twenty by an outlier (10 to 40 % slower), and by a slow
drift of 2 % either way; every case of a launch has noise of its own on top.
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
from typing import Any

from collbench.errors import CollbenchError
from collbench.job import Case, CaseTimes, Run, Settings, StepTimes
from collbench.knobs import registry
from collbench.lab import Purpose
from collbench.space.axes import Axis, Key, Space, axis, key
from collbench.space.known import KNOWN_GOOD

OUTLIERS = 0.05
DRIFT = 0.02
GUARD_FROM = 65536
GUARD_LIMIT = 1.03
_WINDOWS = (0.9985, 0.9995, 1.0, 1.0005, 1.0015)
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
class Landscape:
    """What the files say."""

    truths: Mapping[Key, Truth]
    sd: float
    """Launch-to-launch sd of the default's step, as a fraction."""

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
        CollbenchError: a file is missing, not a landscape, of other cases than the first, or no
            default is in it; file, line and field are named.
    """
    launches: dict[Key, list[dict[str, Any]]] = defaultdict(list)
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
            if cases is None:
                cases = set(launch["cases"])
            if set(launch["cases"]) != cases:
                differing = ", ".join(sorted(cases ^ set(launch["cases"])))
                raise CollbenchError(
                    f"{path}:{number}: res.ar / res.ag: cases differ from the first launch's: "
                    f"{differing}",
                    fix="give files of one landscape only",
                )
            if not _hazardous(launch["env"]):
                launches[key(launch["env"])].append(launch)
    if len(launches.get((), ())) < 2:
        raise CollbenchError(
            "env: the files hold fewer than two launches of the default ({})",
            fix="give files of one landscape, the default among them",
        )
    defaults = [launch["step"] for launch in launches[()]]
    truths = {
        name: Truth(
            step_us=median(one["step"] for one in found),
            nocomm_us=median(one["nocomm"] for one in found),
            cases={c: median(one["cases"][c] for one in found) for c in sorted(cases or ())},
        )
        for name, found in launches.items()
    }
    return Landscape(truths=truths, sd=stdev(defaults) / mean(defaults))


def _line(line: str, *, where: str) -> dict[str, Any]:
    try:
        plain = json.loads(line)
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
    variables = sorted({n for name in landscape.truths for n, _ in name})
    axes: list[Axis] = []
    joint = {v: pair for pair in _JOINT for v in pair if set(pair) <= set(variables)}
    done: set[str] = set()
    for variable in variables:
        if variable in done:
            continue
        together = set(joint.get(variable, (variable,)))
        done |= together
        parts = {key({n: v for n, v in name if n in together}) for name in landscape.truths}
        ordered = sorted(parts - {()}, key=lambda part: (len(part), [_order(v) for _, v in part]))
        axes.append(axis(" + ".join(sorted(together)), [dict(part) for part in ordered]))
    members = frozenset(landscape.truths)
    seeds = [key(s) for s in KNOWN_GOOD["nccl"] if key(s) in members]
    return Space(axes=tuple(axes), seeds=tuple(seeds), members=members)


def _order(value: str) -> tuple[int, str]:
    return (int(value), "") if value.isdigit() else (0, value)


class ReplayLab:
    """Answers launches from a landscape."""

    def __init__(self, landscape: Landscape, sd: float, seed: int) -> None:
        self._landscape = landscape
        self._sd = sd
        self._rng = random.Random(seed)
        self._phase = self._rng.uniform(0, 2 * math.pi)
        self._period = self._rng.uniform(80, 240)
        self._cases = {c: _case(c) for c in landscape.default.cases}
        self.count = 0

    def launch(self, settings: Settings, purpose: Purpose, *, env_file: Path | None = None) -> Run:
        """Draw one launch."""
        truth = self._landscape.truths[key(settings)]
        self.count += 1
        drift = DRIFT * math.sin(2 * math.pi * self.count / self._period + self._phase)
        factor = math.exp(drift + self._rng.gauss(0, self._sd))
        if self._rng.random() < OUTLIERS:
            factor *= 1 + self._rng.uniform(0.10, 0.40)
        step = truth.step_us * factor
        times = tuple(
            CaseTimes(
                case=self._cases[case],
                times_us=[[us * factor * math.exp(self._rng.gauss(0, self._sd))]],
            )
            for case, us in truth.cases.items()
        )
        return Run(
            job_id="replay",
            settings=dict(settings),
            outcome="ok",
            cases=times,
            step=StepTimes(
                total_us=[[step * window for window in _WINDOWS]],
                nocomm_us=[[truth.nocomm_us * factor]],
            ),
        )

    def launch_communicators(
        self, shared: Settings, each: Sequence[Settings], purpose: Purpose
    ) -> list[Run]:
        """Draw one launch for each; the record holds fresh processes only."""
        return [self.launch({**shared, **one}, purpose) for one in each]


def _case(text: str) -> Case:
    collective, size, dtype, _ = text.split("/")
    return Case(collective=collective, size_bytes=int(size), dtype=dtype, mode="graph")
