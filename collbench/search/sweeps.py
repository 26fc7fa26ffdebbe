"""A sweep: the safe study, then, where hazards were allowed, a second one on top of its winner."""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from collbench.job import Settings
from collbench.lab import Lab
from collbench.search.budget import Budget, parse_budget
from collbench.search.events import Progress
from collbench.search.finish import Draft, beyond
from collbench.search.options import Options
from collbench.search.protocol import run
from collbench.search.result import StudyResult
from collbench.search.storage import has_study
from collbench.space.axes import Space, key
from collbench.space.build import MUST_HOLD, Plan
from collbench.space.spec import Spec

DEFAULT_LAUNCHES = 60
AXIS = "axis "
"""Before the name of an axis among what defines a study."""
HAZARD_SHARE = 2
"""A second study has its search budget divided by it: its space is a few axes."""


def options(
    spec: Spec,
    plan: Plan,
    *,
    nranks: int,
    objective: str | None = None,
    strategy: str | None = None,
    budget: str | None = None,
    seed: int = 0,
    resume: bool = False,
    allow: Sequence[str] = (),
    command: Sequence[str] = (),
    last_profiles: Sequence[Settings] = (),
    surroundings: Mapping[str, Any] | None = None,
) -> Options:
    """Return the options of a sweep from its file and the command line, which wins.

    Args:
        spec: The sweep file.
        plan: Its spaces on this machine.
        nranks: Ranks.
        objective: ``--objective``.
        strategy: ``--strategy``.
        budget: ``--budget``, launches or a time.
        seed: ``--seed``.
        resume: ``--resume``.
        allow: ``--allow``.
        command: The command line of this sweep, to name the one that searches the rest.
        last_profiles: Settings of this machine's profiles, the newest first: where a search begins.
        surroundings: What launches run under besides the sweep file (library, baseline), by name:
            a study must not go on under another.

    Raises:
        CollbenchError: an unknown name or a budget too small.
    """
    table = spec.table.budget
    if budget is not None:
        chosen = parse_budget(budget)
    elif table.time:
        chosen = parse_budget(table.time, where=f"{spec.path}: budget.time")
    else:
        chosen = Budget(launches=table.search or DEFAULT_LAUNCHES)
    rest = [name for name in plan.not_searched if name != "numerics"]
    words = [*(command or ("collbench", "sweep", spec.name))]
    for name in rest:
        words += ["--allow", name]
    if "numerics" in plan.not_searched:
        # another space, so that the study begins anew
        words = [word for word in words if word not in ("--keep-order", "--resume")]
    return Options(
        backend=spec.backend,
        beside=spec.backend == "mpi",
        objective=objective or spec.table.objective,
        strategy=strategy or spec.table.strategy,
        budget=chosen,
        seed=seed,
        resume=resume,
        study=spec.name,
        spec={
            **spec.defining(),
            **(surroundings or {}),
            "nranks": nranks,
            **_plain(plan.space),
        },
        min_gain=table.min_gain_pct / 100,
        wanted_gain=table.wanted_gain_pct / 100,
        slower=spec.table.guard.slower_pct / 100,
        pairs=table.pairs,
        noise_pairs=table.noise_pairs,
        not_searched=plan.not_searched,
        not_searched_command=shlex.join(words) if plan.not_searched else "",
        first=tuple(key(settings) for settings in last_profiles),
    )


def run_sweep(
    lab: Lab,
    plan: Plan,
    given: Options,
    storage: Any,
    progress: Progress | None = None,
    *,
    draft: Draft | None = None,
) -> StudyResult:
    """Run the safe study and, where hazards were allowed, the second one on top.

    Args as in `collbench.search.protocol.run`. The second result is in ``hazard`` of the first:
    its ratio compares with the safe winner, and it is a profile of its own.
    """
    safe = run(lab, plan.space, given, storage, progress, draft=draft)
    if not plan.hazards:
        return safe
    names = sorted(plan.hazards)
    space = Space(
        axes=tuple(one for name in names for one in plan.hazards[name].axes),
        implied={n: k for name in names for n, k in plan.hazards[name].implied.items()},
    )
    launches = given.budget.launches
    name = f"{given.study}+{'+'.join(names)}"
    if given.node is not None:  # nodes with different safe winners have different studies
        name += f"/{zlib.crc32(repr(sorted(safe.settings.items())).encode()):08x}"
    risky = run(
        lab,
        space,
        replace(
            given,
            study=name,
            resume=given.resume and has_study(storage, name),
            base=dict(safe.settings),
            budget=given.budget
            if launches is None
            else Budget(launches=max(12, launches // HAZARD_SHARE)),
            spec={
                **{n: v for n, v in given.spec.items() if not n.startswith(AXIS)},
                **_plain(space),
            },
            hazards=tuple(names),
            not_searched=(),
            not_searched_command="",
            first=(),
        ),
        storage,
        progress,
        draft=draft,
    )
    added = beyond(risky.settings, safe.settings)
    held = [n for n in names if any(one.variables & set(added) for one in plan.hazards[n].axes)]
    return replace(
        safe,
        hazard=replace(
            risky, hazards=tuple(held), must_hold=tuple(MUST_HOLD[name] for name in held)
        ),
        trials=safe.trials + risky.trials,
        trials_reused=safe.trials_reused + risky.trials_reused,
        seconds=safe.seconds + risky.seconds,
    )


def _plain(space: Space) -> dict[str, Any]:
    """Return the axes by name, so that a study of another space is refused by the axis."""
    return {f"{AXIS}{one.name}": [c.label for c in one.choices] for one in space.axes}
