"""The protocol of a study, from A/A to proof: the one entry the sweep calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from collbench.lab import Lab
from collbench.search import samplers
from collbench.search.backings import is_shared
from collbench.search.events import Progress, Silent
from collbench.search.finish import Draft
from collbench.search.options import Options
from collbench.search.result import StudyResult
from collbench.search.shared import Peers
from collbench.search.storage import open_study
from collbench.search.study import Study
from collbench.space.axes import Key, Space


def run(
    lab: Lab,
    space: Space,
    options: Options,
    storage: Any,
    progress: Progress | None = None,
    *,
    draft: Draft | None = None,
) -> StudyResult:
    """Run a study from A/A to proof.

    Called by rank 0 alone; the lab reaches the other ranks. Everything that was launched is in
    the storage at once, so that a killed study goes on with ``resume`` where it stopped.

    Args:
        lab: Starts the launches.
        space: What may be proposed (`collbench.space`).
        options: What to do.
        storage: Optuna storage or its URL.
        progress: Listens.
        draft: Writes the env file of given settings and returns its path; two launches an arm of
            the confirmation start by exec from it. None: no such launches.

    Raises:
        CollbenchError: unknown option, budget too small to confirm, spec changed since the study
            began, the default cannot be measured, or the lab can launch no more (the study then
            stays resumable).
    """
    shared = options.node is not None and isinstance(storage, str) and is_shared(storage)
    study = open_study(
        storage,
        options.study,
        options.defining(),
        resume=options.resume,
        join=shared,
        sampler=samplers.sampler(options.strategy, options.seed),
    )
    space = _seeded(space, options.first)
    running = Study(lab, space, options, study, progress or Silent(), draft)
    if shared:
        assert options.node is not None
        running.share(Peers(study, options.node))
    return running.run()


LAST_PROFILES = 3
"""Profiles that a search begins with; each costs it a launch."""


def _seeded(space: Space, first: Sequence[Key]) -> Space:
    """Return the space with the last profiles as its first seeds, as far as it can express them."""
    fitting = [name for name in dict.fromkeys(first) if name and space.contains(dict(name))]
    return replace(space, seeds=tuple(dict.fromkeys([*fitting[:LAST_PROFILES], *space.seeds])))
