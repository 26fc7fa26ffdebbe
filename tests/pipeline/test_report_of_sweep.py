"""From a whole study, published as the sweep publishes it, to its page; the lab is made up."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_lab import SPACE, FakeLab
from jsonschema import Draft202012Validator

from collbench.job import Job, Step, StepCall
from collbench.machine import Fingerprint
from collbench.profiles import machine_slug
from collbench.report import write_sweep
from collbench.report.sources import read
from collbench.search.budget import Budget
from collbench.search.options import Options
from collbench.search.protocol import run
from collbench.sweep.publish import Context, document, publish_profile
from collbench.terminal.summary import sweep_summary

pytestmark = pytest.mark.slow

SCHEMA = Path(__file__).parent.parent.parent / "docs" / "schema" / "sweep.json"
STEP = Step(
    name="step",
    calls=(
        StepCall(collective="all_reduce", size_bytes=57344, dtype="bfloat16", count=122),
        StepCall(collective="all_gather", size_bytes=1310720, dtype="bfloat16", count=1),
    ),
)
MACHINE = Fingerprint(host="node", library="NCCL 2.28.9")


def sweep(folder: Path, lab: FakeLab, **given: Any) -> tuple[Path, dict[str, Any]]:
    """Run and publish a study as `collbench sweep` does; return the document's path and text."""
    slug = machine_slug(MACHINE.model_dump(mode="json"))
    own = folder / slug / "studies" / "decode-20260102T030405Z.json"
    own.parent.mkdir(parents=True)
    options = Options(backend="nccl", beside=False, budget=Budget(launches=40), **given)
    result = run(lab, SPACE, options, f"sqlite:///{own.with_suffix('.db')}")
    context = Context(
        spec="decode",
        backend="nccl",
        nranks=2,
        step=STEP,
        machine=MACHINE,
        baseline={},
        pinned={"NCCL_P2P_DISABLE": "1"},
        like="none",
        command=("collbench", "sweep", "decode"),
        job=Job(job_id="0", backend="nccl", nranks=2),
    )
    profile = publish_profile(result, context, folder) if result.settings else None
    plain = document(result, context, profile, warnings=["/dev/shm is small"])
    own.write_text(json.dumps(plain))
    return own, plain


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    bad = {"NCCL_NTHREADS": "256"}

    def outcome(settings: Any, count: int) -> tuple[str, str] | None:
        return ("hung", "no answer in 30 s") if bad.items() <= dict(settings).items() else None

    return sweep(
        tmp_path_factory.mktemp("results"), FakeLab(outcome=outcome), not_searched=("p2p",)
    )


def test_the_document_of_a_sweep_is_what_its_schema_says(
    adopted: tuple[Path, dict[str, Any]],
) -> None:
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(
        json.loads(adopted[0].read_text())
    )


def test_the_page_of_an_adopted_profile_holds_its_study(
    adopted: tuple[Path, dict[str, Any]],
) -> None:
    own, plain = adopted
    page = write_sweep(own, Path(plain["profile"]))
    assert page == Path(plain["profile"]) / "report.html"
    (story,) = read(Path(plain["profile"]))
    assert story.settings == {"NCCL_MIN_NCHANNELS": "16"}
    assert len(story.trials) == plain["trials"]
    assert {t.stage for t in story.trials} >= {"aa", "search", "shortlist", "confirm"}
    assert [(arm.name, len(arm.runs) > 10) for arm in story.arms][:2] == [
        ("default", True),
        ("profile", True),
    ]
    assert story.paired
    text = page.read_text()
    for part in (
        "Faster: ",
        "no answer in 30 s",
        "Every launch, in the order measured",
        "Guarded sizes",
        "Not searched: p2p.",
    ):
        assert part in text


def test_the_study_and_the_document_lead_to_the_same_page(
    adopted: tuple[Path, dict[str, Any]],
) -> None:
    (from_document,) = read(adopted[0])
    (from_profile,) = read(Path(adopted[1]["profile"]))
    (from_machine,) = read(adopted[0].parent.parent)
    assert from_document == from_profile == from_machine
    (study,) = read(adopted[0].with_suffix(".db"))
    assert [t.ratio for t in study.trials] == [t.ratio for t in from_profile.trials]


def test_a_moved_results_folder_still_finds_its_profile(
    adopted: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    machine = adopted[0].parent.parent
    moved = tmp_path / "elsewhere"
    machine.rename(moved)
    try:
        (story,) = read(moved / "studies" / adopted[0].name)
        assert story.kind == "profile"
        assert story.trials
    finally:
        moved.rename(machine)


def test_the_page_of_a_kept_default_says_why(tmp_path: Path) -> None:
    own, plain = sweep(tmp_path, FakeLab(effects={}, sd=0.004))
    assert plain["verdict"] == "keep_default"
    page = write_sweep(own, None)
    assert page == own.parent / "report.html"
    (story,) = read(own)
    assert len(story.trials) == plain["trials"]
    assert plain["reason"] in page.read_text()
    assert story.machine == MACHINE


def test_the_page_of_a_sweep_for_two_goals_shows_their_front(tmp_path: Path) -> None:
    _, plain = sweep(tmp_path, FakeLab(), objective="pareto")
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(json.loads(json.dumps(plain)))
    (story,) = read(Path(plain["profile"]))
    assert len(story.front) == len(plain["front"]) >= 1
    assert sum(point.knee for point in story.front) == 1
    # the page's times are those of the objective, as the document's are
    measured = [t.value_us for t in story.trials if t.stage == "aa" and t.value_us is not None]
    assert sorted(measured)[8] == pytest.approx(plain["default_us"], rel=0.05)
    page = write_sweep(tmp_path / "unused.json", Path(plain["profile"]))
    assert page is not None
    assert "Decode step against prefill time" in page.read_text()


def test_the_summary_of_a_real_document_fits_the_terminal(
    adopted: tuple[Path, dict[str, Any]],
) -> None:
    text = sweep_summary(adopted[1])
    assert text.startswith("Faster: ")
    assert "Warning       /dev/shm is small" in text
    assert all(
        len(line) <= 80 or " " not in line.split(maxsplit=1)[-1] for line in text.splitlines()
    )
