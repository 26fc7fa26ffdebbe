"""Ranking causes, pricing them from records, and the watch."""
# ruff: noqa: E501

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from collbench.cli.diagnose import diagnose
from collbench.diagnose import prom
from collbench.diagnose.causes import Diagnosis, Evidence, conclude
from collbench.diagnose.record_rules import judge_record
from collbench.errors import CollbenchError
from collbench.findings import Finding, ranked
from collbench.job import Case, CaseTimes, Job, PairTimes, RankFacts, Run
from collbench.machine import Fingerprint
from collbench.profiles import Profile, Scope
from collbench.profiles.store import load, publish
from collbench.record import RunRecord, dump

WANT = {"NCCL_MIN_NCHANNELS": "16"}
LOG = (
    "n:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\n"
    "n:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 1000 "
    "commId 0x1 - Init START\n"
)


def record(
    latencies: Mapping[tuple[str, int], float],
    settings: dict[str, str] | None = None,
    pairs: tuple[PairTimes, ...] = (),
    ranks: tuple[RankFacts, ...] = (),
    wrong: int = 0,
) -> RunRecord:
    cases = [Case(collective=c, size_bytes=s, dtype="bfloat16", mode="graph") for c, s in latencies]
    launches = [
        Run(
            job_id="j",
            settings=settings or {},
            outcome="ok",
            pairs=pairs,
            ranks=ranks,
            cases=tuple(
                CaseTimes(case=case, times_us=[[us * shift] * 5] * 2, wrong=[wrong, 0])
                for case, us in zip(cases, latencies.values(), strict=True)
            ),
        )
        for shift in (0.999, 1.0, 1.001)
    ]
    return RunRecord(
        created="2026-01-01T00:00:00Z",
        backend="nccl",
        nranks=2,
        machine=Fingerprint(),
        settings=settings or {},
        job=Job(job_id="j", backend="nccl", nranks=2, cases=tuple(cases)),
        launches=launches,
    )


def make_profile(folder: Path, *, with_records: bool = True, **evidence: Any) -> Path:
    profile = Profile(
        settings=WANT,
        scope=Scope(nranks=1),
        evidence=evidence,
        machine={"library": "NCCL 2.28.9"},
    )
    files = {}
    if with_records:
        files = {
            "records/default.json": dump(record({("all_reduce", 57344): 66.0})),
            "records/profile.json": dump(record({("all_reduce", 57344): 25.0}, WANT)),
        }
    return publish(folder / "results", "machine", profile, files=files)


def steps(path: Path, values: list[float], **known: Any) -> str:
    path.write_text(json.dumps({"verify_ms": values, **known}))
    return str(path)


def ask(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(
        diagnose, ["--no-processes", "--json", *arguments], standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception
    document: dict[str, Any] = json.loads(result.output)
    assert result.return_value == document["exit_code"]
    return document


FAST = [24.9, 25.0, 25.1, 24.95, 25.05, 25.0]
SLOW = [30.0, 30.1, 29.9, 30.05, 29.95, 30.0]
CALLS = {"allreduce": {"count": 123, "bytes": 57344}}


def test_a_lost_profile_is_named_first_with_what_it_costs(tmp_path: Path) -> None:
    profile = make_profile(tmp_path)
    log = tmp_path / "server.log"
    log.write_text(LOG)
    found = ask(
        *("--profile", str(profile), "--log", str(log)),
        *("--steps", steps(tmp_path / "a", FAST, **CALLS)),
        *("--steps", steps(tmp_path / "b", SLOW, **CALLS)),
    )
    assert found["verdict"] == "regression"
    assert found["measured_delta_ms"] == 5.0
    first = found["findings"][0]
    assert first["code"] == "env.profile_absent"
    assert first["expected_ms"] == pytest.approx(123 * 41 / 1000)
    assert "123 x (66.0 - 25.0) us" in first["evidence"]


def test_without_records_the_confirmed_step_gives_the_cost(tmp_path: Path) -> None:
    profile = make_profile(tmp_path, with_records=False, default_us=30000.0, winner_us=25000.0)
    log = tmp_path / "server.log"
    log.write_text(LOG)
    found = ask("--profile", str(profile), "--log", str(log), "--fail-on", "regression")
    assert found["findings"][0]["expected_ms"] == 5.0
    assert (found["verdict"], found["exit_code"]) == ("regression", 3)


def test_a_change_beyond_what_the_profile_is_worth_has_another_cause_too(tmp_path: Path) -> None:
    profile = make_profile(tmp_path, with_records=False, default_us=25500.0, winner_us=25000.0)
    log = tmp_path / "server.log"
    log.write_text(LOG)
    found = ask(
        *("--profile", str(profile), "--log", str(log)),
        *("--steps", steps(tmp_path / "a", FAST), "--steps", steps(tmp_path / "b", SLOW)),
    )
    codes = [finding["code"] for finding in found["findings"]]
    assert codes[:2] == ["verify.beyond_comm", "env.profile_absent"]


def test_memory_of_the_workers_wins_over_a_log_and_a_snippet() -> None:
    absent = Finding(code="env.profile_absent", evidence="log", next="x", source="server.log")
    kept = conclude(Evidence(findings=[absent])).findings
    dropped = conclude(Evidence(findings=[absent], live="live")).findings
    assert [f.code for f in kept] == ["env.profile_absent"]
    assert dropped == []


def test_waiting_for_a_late_rank_comes_before_what_costs_nothing() -> None:
    skew = Finding(code="verify.skew_not_transfer", evidence="x", next="x")
    shm = Finding(code="transport.shm", evidence="x", next="x")
    hang = Finding(code="p2p.grant_hang", evidence="x", next="x")
    evidence = Evidence(findings=[shm, skew, hang], delta_ms=4.0, slower=True)
    codes = [finding.code for finding in conclude(evidence).findings]
    assert codes == ["p2p.grant_hang", "verify.skew_not_transfer", "transport.shm"]


@pytest.mark.parametrize(
    ("before", "after", "verdict", "code"),
    [
        (FAST, SLOW, "regression", 3),
        (FAST, FAST, "no_change", 0),
        (SLOW, FAST, "no_change", 0),
        (FAST, [22.0, 41.7, 23.1, 30.8, 52.6, 27.9], "undecided", 4),
        (FAST[:2], SLOW[:2], "undecided", 4),
    ],
)
def test_verdict_and_exit_code_of_the_watch(
    tmp_path: Path, before: list[float], after: list[float], verdict: str, code: int
) -> None:
    found = ask(
        *("--steps", steps(tmp_path / "a", before), "--steps", steps(tmp_path / "b", after)),
        *("--fail-on", "regression"),
    )
    assert (found["verdict"], found["exit_code"]) == (verdict, code)


def decode_line(rate: float, accept: float | None = 2.9, graph: bool = True) -> str:
    spoken = f", accept len: {accept:.2f}" if accept is not None else ""
    return (
        f"[2026-03-11 18:20:02 TP0] Decode batch. #running-req: 1, #token: 9, token usage: 0.01"
        f"{spoken}, cuda graph: {graph}, gen throughput (token/s): {rate:.2f}, #queue-req: 0\n"
    )


def test_decode_lines_tell_acceptance_from_time(tmp_path: Path) -> None:
    paths = []
    for name, rate, accept in (("a", 116.0, 2.9), ("b", 72.0, 1.8), ("c", 96.6, 2.9)):
        path = tmp_path / name
        path.write_text("".join(decode_line(rate + i % 3 * 0.1, accept) for i in range(12)))
        paths.append(str(path))
    fewer = ask("--steps", paths[0], "--steps", paths[1])
    assert [f["code"] for f in fewer["findings"]] == ["verify.acceptance_not_comm"]
    slower = ask("--steps", paths[0], "--steps", paths[2])
    assert slower["measured_delta_ms"] == pytest.approx(5.0, abs=0.1)
    assert "communication" in slower["cannot_tell"]


def test_a_lost_graph_shows_in_decode_lines(tmp_path: Path) -> None:
    for name, rate, graph in (("a", 116.0, True), ("b", 76.0, False)):
        (tmp_path / name).write_text(
            "".join(decode_line(rate + i % 3 * 0.1, graph=graph) for i in range(12))
        )
    found = ask("--steps", str(tmp_path / "a"), "--steps", str(tmp_path / "b"))
    assert found["findings"][0]["code"] == "verify.not_captured"


def test_a_throughput_alone_decides_nothing(tmp_path: Path) -> None:
    for name, rate in (("a", 98.0), ("b", 60.0)):
        (tmp_path / name).write_text(json.dumps({"tok_s": [rate] * 8}))
    found = ask("--steps", str(tmp_path / "a"), "--steps", str(tmp_path / "b"))
    assert found["verdict"] == "undecided"
    assert [f["code"] for f in found["findings"]] == ["verify.time_unknown"]


@pytest.mark.parametrize(
    ("text", "step_ms", "accept"),
    [
        ('{"median_itl_ms": 25.0, "output_throughput": 98, "accept_length": 2.5, "completed": 9}', 25.0, 2.5),
        ('{"completed": 1}\n{"median_itl_ms": 26.0, "mean_itl_ms": 1}', 26.0, None),
        ("# HELP vllm:x y\nvllm:inter_token_latency_seconds_sum{a=\"b\"} 2.5\nvllm:inter_token_latency_seconds_count{a=\"b\"} 100\n"
         "vllm:spec_decode_num_drafts_total 10\nvllm:spec_decode_num_accepted_tokens_total 19\n", 25.0, 2.9),
        ("sglang:inter_token_latency_seconds_sum 2.5\nsglang:inter_token_latency_seconds_count 100\nsglang:spec_accept_length 2.0\n", 25.0, 2.0),
        (json.dumps({"traceEvents": [{"ph": "X", "name": f"ProfilerStep#{i}", "dur": 25000} for i in range(4)]
                     + [{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "dur": 4000}] * 8}), 25.0, None),
    ],
)  # fmt: skip
def test_other_sources_of_a_step_time(
    tmp_path: Path, text: str, step_ms: float, accept: float | None
) -> None:
    from collbench.diagnose.inspection import inspect_file

    path = tmp_path / "served"
    path.write_text(text)
    found = inspect_file(path)
    assert found.kind == "serving"
    assert found.facts["step_ms"] == step_ms
    assert found.facts["accept_len"] == accept
    assert found.facts["cannot_tell"]


def test_a_trace_says_nothing_of_the_protocol_in_its_kernels_names(tmp_path: Path) -> None:
    from collbench.diagnose.inspection import inspect_file

    events = [
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "dur": 10}
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    facts = inspect_file(path).facts
    assert "protocol" not in facts
    assert any("protocol" in text for text in facts["cannot_tell"])


# guidelines


def test_a_sound_record_misses_no_guideline() -> None:
    sound = {("all_reduce", 8 << 10 << i): 10.0 * 1.4**i for i in range(6)}
    sound |= {("reduce_scatter", 8192): 7.0, ("all_gather", 8192): 7.0}
    assert judge_record(record(sound)) == []


@pytest.mark.parametrize(
    ("latencies", "code"),
    [
        ({("all_reduce", 8192): 20.0, ("all_reduce", 16384): 12.0}, "record.not_monotone"),
        ({("all_reduce", 8192): 20.0, ("reduce_scatter", 8192): 6.0, ("all_gather", 8192): 6.0}, "record.sum_of_parts"),
        ({("all_reduce", 32768): 15.6, ("all_reduce", 65536): 71.2, ("all_reduce", 131072): 75.0}, "record.switch_jump"),
    ],
)  # fmt: skip
def test_a_missed_guideline_is_named(latencies: dict[tuple[str, int], float], code: str) -> None:
    assert code in [finding.code for finding in judge_record(record(latencies))]


def test_near_pairs_slower_than_far_ones() -> None:
    ranks = tuple(
        RankFacts(rank=r, pid=1, host="n", device="g", numa_node=r // 2) for r in range(4)
    )
    pairs = (
        PairTimes(src=0, dst=1, latency_us=30.0, bandwidth_gbs=1.0),
        PairTimes(src=0, dst=2, latency_us=12.0, bandwidth_gbs=1.0),
    )
    found = judge_record(record({("all_reduce", 8192): 9.0}, pairs=pairs, ranks=ranks))
    assert [finding.code for finding in found] == ["record.near_pair_slower"]


def test_wrong_data_in_a_record_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(
        dump(record({("all_reduce", 8192): 20.0, ("all_reduce", 16384): 12.0}, wrong=3))
    )
    found = ask("--record", str(path))
    assert [f["code"] for f in found["findings"]] == ["data.wrong_results", "record.not_monotone"]


# watch


def test_prometheus_file_leaves_out_what_is_not_known(tmp_path: Path) -> None:
    reference = load(make_profile(tmp_path))
    unknown = Diagnosis("undecided", [], None, "")
    text = prom.text(unknown, Evidence(), reference, None, now=2e9)
    assert "collbench_profile_age_seconds{" in text
    for absent in ("collbench_step_seconds", "collbench_profile_live", "collbench_regression"):
        assert absent not in text
    known = Diagnosis("regression", [], 5.0, "")
    text = prom.text(known, Evidence(live="different"), reference, None, now=2e9)
    assert f'collbench_profile_live{{profile="{reference.id}"}} 0\n' in text
    assert "collbench_step_change_seconds" in text
    for line in text.splitlines():
        assert line.startswith("# ") or len(line.rsplit(" ", 1)) == 2


def test_prom_file_is_written_with_the_document(tmp_path: Path) -> None:
    target = tmp_path / "node" / "collbench.prom"
    ask(
        *("--steps", steps(tmp_path / "a", FAST), "--steps", steps(tmp_path / "b", SLOW)),
        *("--prom", str(target)),
    )
    assert 'collbench_step_seconds{profile=""} 0.03' in target.read_text()
    assert [path.name for path in target.parent.iterdir()] == ["collbench.prom"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--steps", "/none"],
        ["--profile", "/none"],
        ["--log", "/none"],
        ["--record", "/none"],
        ["--profile", "a", "--against", "b"],
        ["--steps", "/none", "--steps", "/none", "--steps", "/none"],
    ],
)
def test_wrong_arguments_are_errors_of_the_user(arguments: list[str]) -> None:
    with pytest.raises(CollbenchError):
        ask(*arguments)


def test_findings_are_ranked_by_weight_and_told_once() -> None:
    many = [Finding(code=code, evidence="x", next="x") for code in
            ("env.unknown", "transport.shm", "data.wrong_results", "transport.shm")]  # fmt: skip
    assert [f.code for f in ranked(many)] == ["data.wrong_results", "transport.shm", "env.unknown"]
    with pytest.raises(ValueError, match="not a known code"):
        Finding(code="no.such_code", evidence="x", next="x")


@pytest.mark.parametrize(
    ("latency", "verdict"), [(25.0, "no_change"), (25.5, "no_change"), (40.0, "regression")]
)
def test_a_fresh_record_against_the_profile_s_own(
    tmp_path: Path, latency: float, verdict: str
) -> None:
    profile = make_profile(tmp_path)
    fresh = tmp_path / "now.json"
    fresh.write_text(dump(record({("all_reduce", 57344): latency}, WANT)))
    found = ask("--against", str(profile), "--record", str(fresh), "--fail-on", "regression")
    assert found["verdict"] == verdict
    codes = [finding["code"] for finding in found["findings"]]
    assert codes == (["verify.comm_regression"] if verdict == "regression" else [])


def test_a_bench_repeats_what_the_profile_s_record_timed(tmp_path: Path) -> None:
    from collbench.diagnose.costs import arms_of
    from collbench.diagnose.fresh import bench_arguments

    reference = load(make_profile(tmp_path))
    arguments = bench_arguments(reference, arms_of(reference))
    pairs = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert pairs["--sizes"] == "57344"
    assert pairs["--mode"] == "graph"
    assert pairs["--nproc-per-node"] == "2"
    assert pairs["--env"] == str(reference.env_path)
    assert bench_arguments(None, None) == ["--launches", "3"]
