"""What each chapter of a report says, against figures computed by hand or planted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import CollbenchError
from collbench.job import Case, CaseTimes, PairTimes, Run, StepTimes
from collbench.machine import Fingerprint, Gpu
from collbench.report import build, links, mattered, sizes, skew, sources, step, trials
from collbench.report.parts import Drawing, Figure, Section, Table
from collbench.report.story import Arm, FrontPoint, Story, Trial
from collbench.report.values import busbw_gbs, ratio_of, value_of

Make = Callable[..., Path]


def launch(times: dict[int, list[list[float]]], settings: dict[str, str] | None = None) -> Run:
    cases = tuple(
        CaseTimes(
            case=Case(collective="all_reduce", size_bytes=size, dtype="bfloat16", mode="graph"),
            times_us=ranks,
        )
        for size, ranks in times.items()
    )
    return Run(job_id="1", settings=settings or {}, outcome="ok", cases=cases)


def story(*arms: Arm, **fields: Any) -> Story:
    return Story(
        title="t",
        path="p",
        kind="run",
        **{"backend": "nccl", "nranks": 2, "arms": list(arms), **fields},
    )


def figure(section: Section, name: str) -> Figure:
    return next(p for p in section.parts if isinstance(p, Figure) and p.name == name)


def test_busbw_of_two_ranks_equals_bytes_over_time() -> None:
    case = Case(collective="all_reduce", size_bytes=1_000_000, dtype="bfloat16", mode="graph")
    assert busbw_gbs(case, 100.0, 2) == pytest.approx(10.0)
    assert busbw_gbs(case, 100.0, 8) == pytest.approx(17.5)
    assert busbw_gbs(case, 100.0, 1) is None


def test_an_interval_holds_its_median_and_one_launch_has_none() -> None:
    value = value_of([10.0, 11.0, 12.0, 10.5, 10.2])
    assert value.low <= value.mid == 10.5 <= value.high
    assert value.low < value.high
    assert not value_of([10.0]).has_interval


def test_a_ratio_is_candidate_over_default() -> None:
    ratio = ratio_of([8.0, 8.2, 8.1], [10.0, 10.0, 10.0])
    assert ratio.mid == pytest.approx(0.81)
    assert ratio.low <= 0.81 <= ratio.high


def test_times_are_plotted_per_call_with_the_median_over_ranks_and_launches() -> None:
    arm = Arm(
        name="default",
        settings={},
        runs=[
            launch({8192: [[10.0], [12.0]], 65536: [[20.0], [20.0]]}),
            launch({8192: [[14.0], [12.0]], 65536: [[22.0], [22.0]]}),
        ],
    )
    section = sizes.section(story(arm))
    times = figure(section, "all-reduce-bfloat16-us").data[0]
    assert times["x"] == [8192, 65536]
    assert times["y"] == [12.0, 21.0]
    busbw = figure(section, "all-reduce-bfloat16-busbw").data[0]
    assert busbw["y"] == [pytest.approx(8192 / 12.0 / 1e3), pytest.approx(65536 / 21.0 / 1e3)]


def test_mpi_and_entry_take_the_slowest_rank() -> None:
    arm = Arm(
        name="default", settings={}, runs=[launch({8192: [[10.0], [30.0]], 16384: [[1], [2]]})]
    )
    data = figure(sizes.section(story(arm, backend="mpi")), "all-reduce-bfloat16-us").data
    assert data[0]["y"] == [30.0, 2.0]


def test_the_guard_line_is_drawn_only_where_a_guarded_size_was_timed() -> None:
    def shapes(size: int) -> int:
        one = Arm(name="default", settings={}, runs=[launch({size: [[10.0]], size * 2: [[10.0]]})])
        two = Arm(name="profile", settings={"A": "1"}, runs=one.runs)
        ratio = figure(sizes.section(story(one, two)), "all-reduce-bfloat16-ratio")
        return len(ratio.layout["shapes"])

    assert (shapes(8192), shapes(1 << 20)) == (1, 2)


def test_failed_launches_and_failed_cases_carry_no_times() -> None:
    case = Case(collective="all_reduce", size_bytes=8192, dtype="bfloat16", mode="graph")
    bad = CaseTimes(case=case, times_us=[], error="rank 1 died")
    runs = [
        Run(job_id="1", settings={}, outcome="hung", reason="no answer"),
        Run(job_id="2", settings={}, outcome="ok", cases=(bad,)),
    ]
    assert sizes.section(story(Arm(name="default", settings={}, runs=runs))).parts == []


def test_the_step_is_split_into_compute_and_what_communication_adds() -> None:
    run = Run(
        job_id="1",
        settings={},
        outcome="ok",
        step=StepTimes(total_us=[[4000.0], [4200.0]], nocomm_us=[[2000.0], [2000.0]]),
    )
    section = step.section(story(Arm(name="default", settings={}, runs=[run])))
    plot = figure(section, "step-split")
    assert [trace["x"] for trace in plot.data] == [[2.0], [2.1]]
    assert "of it 2.100 ms (51 %) exposed" in plot.says


def test_a_step_without_compute_is_not_split() -> None:
    run = Run(
        job_id="1", settings={}, outcome="ok", step=StepTimes(total_us=[[50.0]], nocomm_us=[])
    )
    plot = figure(step.section(story(Arm(name="default", settings={}, runs=[run]))), "step-split")
    assert [trace["name"] for trace in plot.data] == ["step"]


def test_the_late_rank_is_named() -> None:
    arm = Arm(
        name="default",
        settings={},
        runs=[launch({8192: [[10.0], [10.0], [60.0]], 16384: [[10.0], [10.0], [61.0]]})],
    )
    plot = figure(skew.section(story(arm)), "rank-skew")
    assert plot.says.startswith("Largest: rank 2, 51 us at all_reduce 16 KiB")


def test_waiting_is_told_from_transfer_by_the_rank_that_comes_last() -> None:
    run = Run(
        job_id="1",
        settings={},
        outcome="ok",
        step=StepTimes(total_us=[[9000.0], [9000.0]], nocomm_us=[[2000.0], [7000.0]]),
    )
    table = skew.section(story(Arm(name="default", settings={}, runs=[run]))).parts[0]
    assert isinstance(table, Table)
    assert [list(row) for row in table.rows] == [
        ["default", 0, 9.0, 2.0, 7.0, 5.0],
        ["default", 1, 9.0, 7.0, 2.0, 0.0],
    ]


def test_modes_share_a_plot_and_bandwidth_is_that_of_the_chains() -> None:
    def times(mode: Any, value: float) -> tuple[CaseTimes, ...]:
        return tuple(
            CaseTimes(
                case=Case(collective="all_reduce", size_bytes=size, dtype="bfloat16", mode=mode),
                times_us=[[value], [value]],
                enqueue_us=[value * 0.9] * 2 if mode == "eager" else None,
            )
            for size in (8192, 65536)
        )

    run = Run(
        job_id="1",
        settings={},
        outcome="ok",
        cases=(*times("graph", 10.0), *times("eager", 40.0), *times("entry", 60.0)),
    )
    section = sizes.section(story(Arm(name="default", settings={}, runs=[run])))
    plot = figure(section, "all-reduce-bfloat16-us")
    assert [trace["name"] for trace in plot.data] == ["graph", "eager", "entry"]
    busbw = figure(section, "all-reduce-bfloat16-busbw")
    assert [trace["name"] for trace in busbw.data] == ["graph"]
    assert plot.table is not None
    assert [row[-1] for row in plot.table.rows if row[0] == "eager"] == ["host bound"] * 2


def test_best_so_far_falls_by_ratio_to_the_default_near_it() -> None:
    seen = [
        Trial(number=0, stage="aa", settings={}, outcome="ok", value_us=100, default_us=100),
        Trial(
            number=1, stage="search", settings={"A": "1"}, outcome="ok", value_us=90, default_us=100
        ),
        # Faster on the clock, but only because the machine sped up: its default is faster too.
        Trial(
            number=2, stage="search", settings={"A": "2"}, outcome="ok", value_us=80, default_us=80
        ),
        Trial(number=3, stage="search", settings={"A": "3"}, outcome="hung", reason="30 s"),
    ]
    section = trials.section(story(trials=seen))
    plot = figure(section, "search-history")
    best = next(trace for trace in plot.data if trace["name"] == "best so far")
    assert best["x"] == [1, 2]
    assert best["y"] == [0.9, 0.9]
    assert "4 launches: 3 ok, 1 hung. Best of the search: launch 1, 0.900 x the" in plot.says
    failed = next(p for p in section.parts if isinstance(p, Table))
    assert list(failed.rows[0]) == [3, "hung", "A=3", "30 s"]


def test_values_are_told_apart_by_the_ratios_of_the_search_alone() -> None:
    def trial(number: int, stage: str, settings: dict[str, str], value: float) -> Trial:
        return Trial(
            number=number,
            stage=stage,
            settings=settings,
            outcome="ok",
            value_us=value,
            default_us=100.0,
        )

    seen = [
        trial(0, "search", {"A": "1"}, 90),
        trial(1, "search", {"A": "1", "B": "1"}, 94),
        trial(2, "search", {"B": "1"}, 130),
        trial(3, "confirm", {"A": "1"}, 500),
    ]
    plot = figure(mattered.section(story(trials=seen)), "values")
    assert plot.table is not None
    assert [list(row) for row in plot.table.rows] == [
        ["A=1", pytest.approx(0.92), 0.9, 0.94, 2],
        ["B=1", pytest.approx(1.12), 0.94, 1.3, 2],
    ]
    assert plot.says.startswith("Lowest median: A=1, 0.920 over 2 launches")


def test_a_front_names_its_knee() -> None:
    points = [
        FrontPoint(settings={"A": "1"}, decode_ratio=0.90, prefill_ratio=1.02),
        FrontPoint(settings={"A": "2"}, decode_ratio=0.92, prefill_ratio=0.95, knee=True),
        FrontPoint(settings={"A": "3"}, decode_ratio=0.99, prefill_ratio=1.10, on_front=False),
    ]
    plot = figure(mattered.front_section(story(front=points)), "front")
    assert [trace["name"] for trace in plot.data] == ["dominated", "front", "recommended"]
    assert plot.says == "2 settings are on the front: none is better in both. Recommended: A=2."


def test_the_worst_pair_is_named() -> None:
    pairs = tuple(
        PairTimes(src=a, dst=b, latency_us=9.0 if {a, b} == {0, 3} else 3.0, bandwidth_gbs=20.0)
        for a in range(4)
        for b in range(4)
        if a != b
    )
    run = Run(job_id="1", settings={}, outcome="ok", pairs=pairs)
    section = links.section(story(Arm(name="default", settings={}, runs=[run])))
    plot = figure(section, "pairs-latency")
    assert "3 to 9 us; worst from rank 0 to rank 3" in plot.says
    assert plot.data[0]["z"][0] == [None, 3.0, 3.0, 9.0]


def test_the_topology_says_every_gpu_with_its_island_and_link() -> None:
    gpus = [
        Gpu(index=i, name="RTX <5090>", numa_node=i // 2, link_gen_max=5, link_width_max=16 - 8 * i)
        for i in range(2)
    ]
    drawing = links.topology(Fingerprint(gpus=[*gpus, Gpu(index=2, name="x")]))
    assert isinstance(drawing, Drawing)
    assert "GPU 1 (RTX <5090>) in NUMA node 0, Gen5 x8" in drawing.says
    assert "GPU 2 (x) in NUMA node not known, link not known" in drawing.says
    assert "RTX &lt;5090&gt;" in drawing.svg
    assert links.topology(Fingerprint()) is None


def test_a_report_of_a_kept_default_says_so() -> None:
    kept = {"verdict": "keep_default", "default_us": 4338.0, "noise_pct": 0.4}
    verdict, good = build.verdict_of(story(document=kept))
    assert verdict.startswith("Keep the default (4.338 ms)")
    assert good is None


def test_launches_that_all_failed_are_the_verdict() -> None:
    runs = [Run(job_id="1", settings={}, outcome="hung", reason="no answer in 30 s")]
    verdict, good = build.verdict_of(story(Arm(name="default", settings={}, runs=runs)))
    assert verdict == "Nothing was measured: hung: no answer in 30 s."
    assert good is False


def test_a_run_record_becomes_default_and_profile_by_settings(make_record: Make) -> None:
    (read,) = sources.read(make_record())
    assert [(arm.name, len(arm.runs)) for arm in read.arms] == [("default", 6), ("profile", 6)]


def test_two_runs_are_compared_as_b_over_a(make_record: Make, confirmed: list[Run]) -> None:
    default = make_record("a.json", [r for r in confirmed if not r.settings], settings={})
    winner = make_record("b.json", [r for r in confirmed if r.settings])
    page = build.page_of([sources.read(default), sources.read(winner)])
    assert page.verdict.startswith(
        "The step, B against A: faster (ratio 0.927, 95 % interval 0.923 to 0.932). Cases: "
    )
    other = make_record("c.json", [r for r in confirmed if r.settings], nranks=4)
    page = build.page_of([sources.read(default), sources.read(other)])
    assert page.verdict.startswith("Not comparable: A and B differ in ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.json", None, "No such file"),
        ("cut.json", b'{"schema": 1, "kind": "run"', "not a JSON record"),
        ("other.json", b'{"schema": 1, "kind": "study9"}', "nothing a report is made of"),
        ("new.json", b'{"schema": 99, "kind": "run"}', "newer than this collbench"),
        ("field.json", b'{"schema": 1, "kind": "run", "backend": 3}', "field.json: "),
        ("junk.db", b"SQLite format 3\x00" + b"\xff" * 200, "not a readable SQLite file"),
        ("binary.json", b"\x00\x01\x02\xff\xfe", "not a JSON record"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CollbenchError) as caught:
        sources.read(path)
    assert message in str(caught.value)
    assert name in caught.value.what
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("evidence", "field"),
    [
        ({"default_us": "fast"}, "default_us"),
        ({"interval": [0.9]}, "interval"),
        ({"ablation": [{"dropped": 3}]}, "ablation.0.dropped"),
        ({"guard": ["x"]}, "guard.0"),
        ({"front": {"a": 1}}, "front"),
        ({"proof": {"outcome": "ok", "choices": [{"algorithm": 1}]}}, "proof: choices.0"),
    ],
)
def test_wrong_evidence_in_a_profile_is_named(
    make_profile: Make, evidence: dict[str, Any], field: str
) -> None:
    with pytest.raises(CollbenchError) as caught:
        sources.read(make_profile(evidence=evidence))
    assert field in caught.value.what


def test_under_hazards_the_safe_profile_is_the_reference() -> None:
    safe, risky = {"NCCL_MIN_NCHANNELS": "16"}, {"NCCL_GRAPH_MIXING_SUPPORT": "0"}
    runs = [launch({8192: [[8.0]]}, safe | risky), launch({8192: [[10.0]]}, safe)]
    arms = sources.arms_of(runs, safe | risky, reference=safe)
    assert [arm.name for arm in arms] == ["safe profile", "profile"]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CollbenchError, match="holds no profile and no sweep"):
        sources.read(tmp_path)
