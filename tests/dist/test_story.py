"""A profile is made, lost and missed: real benches, real servers, and what diagnose says."""

import dataclasses
from pathlib import Path

import pytest

from benchmarks import story

pytestmark = [pytest.mark.dist, pytest.mark.slow]
ATTEMPTS = 3
"""A CPU host changes its speed between launches; the baseline has to hold still for one story."""


NOISE = 0.15
"""With more between launches of one setting no cost can be expected to within a quarter."""


def test_a_lost_profile_and_a_late_rank_are_told_apart(tmp_path: Path) -> None:
    scene = dataclasses.replace(story.SCENES["mpi"], launches=1, turns=2)
    told = []
    quiet = False
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        one = story.tell(scene, folder)
        faults = one.faults()
        if not faults:
            return
        told.append(faults)
        quiet = quiet or one.noise < NOISE
    if not quiet:
        pytest.skip(f"launches of one setting differ by more than {NOISE:.0%}: {told}")
    pytest.fail(f"never told rightly: {told}")


def test_the_story_notices_when_it_is_told_wrongly() -> None:
    finding = {"code": "env.profile_absent", "expected_ms": 5.0}
    right = story.Told(
        absent={"verdict": "regression", "measured_delta_ms": 5.5, "findings": [finding]},
        late={"findings": [{"code": "verify.skew_not_transfer"}]},
    )
    assert right.faults() == []
    right.absent["measured_delta_ms"] = 8.0
    right.late["findings"].append({"code": "env.profile_absent"})
    assert len(right.faults()) == 2
