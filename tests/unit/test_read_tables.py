"""Tables of nccl-tests, environment files and step timings beyond the cases."""
# ruff: noqa: E501  (pasted lines stay in one piece)

import json
from typing import Any

import pytest

from collbench.readers.env_files import Refused, read_with
from tests.unit.reading import codes, inspect

HEAD = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
UNITS = "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
ROW = "        {0}          2048     float     sum      -1    24.04   {1:5.2f}   {2:5.2f}      0    23.97    0.17    0.30    N/A\n"
DEVICES = "#  Rank  0 Group  0 Pid  11 on     node-a device  0 [0000:01:00] NVIDIA L40S\n#  Rank  1 Group  0 Pid  12 on     node-b device  0 [0000:01:00] NVIDIA L40S\n"


def test_not_checked_is_null_and_ranks_of_two_hosts_count() -> None:
    facts = inspect(DEVICES + HEAD + UNITS + ROW.format(8192, 1, 1)).facts
    assert facts["rows"][0][-1] is None
    assert facts["nranks"] == 2
    assert facts["graph"] is None


@pytest.mark.parametrize(("ratio", "nranks"), [(1.5, 4), (1.75, 8), (1.0, None), (4 / 3, 3)])
def test_ranks_from_the_ratio_of_bandwidths(ratio: float, nranks: int | None) -> None:
    facts = inspect(HEAD + UNITS + ROW.format(8192, 20.0, 20.0 * ratio)).facts
    assert facts["nranks"] == nranks


def test_columns_of_single_iterations() -> None:
    head = (
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%"
        "     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%\n"
    )
    row = "        8192          2048     float     sum      -1    24.04    0.34    0.60       0    20.1    30.2    29.9     3.1    23.97    0.34    0.60       0    20.0    30.0    29.0     3.0\n"
    facts = inspect(head + row).facts
    assert facts["layout"] == "per_iter"
    assert facts["columns"][9:13] == ["oop_i_min", "oop_i_max", "oop_i_p99", "oop_i_cv"]
    assert len(facts["rows"][0]) == len(facts["columns"])


def test_cpu_time_and_time_stamps_of_docker() -> None:
    stamp = "2026-02-11T07:41:03.200951858Z "
    text = stamp + HEAD.replace(" time", " cputime") + stamp + ROW.format(8192, 1, 1)
    facts = inspect(text).facts
    assert "oop_cputime" in facts["columns"]
    assert len(facts["rows"]) == 1


def test_broadcast_with_a_root() -> None:
    row = "        8192          2048     float    none       0    24.04    1.00    1.00      0    23.97    1.00    1.00      0\n"
    facts = inspect("# Collective test starting: broadcast_perf\n" + HEAD + row).facts
    assert facts["rows"][0][3:5] == ["none", 0]
    assert facts["nranks"] is None


def test_wrong_elements_counted_by_the_footer_alone() -> None:
    head = "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
    row = "        8192          2048     float     sum    31.30    0.26    0.44  2e-07    31.28    0.26    0.44  2e-07\n"
    assert codes(inspect(head + row + "# Out of bounds values : 0 OK\n")) == []
    assert codes(inspect(head + row + "# Out of bounds values : 3 FAILED\n")) == [
        "data.wrong_results"
    ]


def test_a_row_torn_by_a_log_line_is_dropped_and_the_table_goes_on() -> None:
    torn = "       16384          4096     float     sum      -1node-a:11:11 [0] NCCL INFO Connected all trees\n"
    found = inspect(
        DEVICES + HEAD + torn + ROW.format(32768, 1, 1) + "# Out of bounds values : 0 OK\n"
    )
    assert (found.facts["dropped_rows"], len(found.facts["rows"])) == (1, 1)
    assert codes(found) == []


def test_a_last_row_whose_last_number_may_be_cut_is_dropped() -> None:
    row = ROW.format(8192, 1, 1)
    found = inspect(HEAD + row + row.rstrip("\n")[:-3])
    assert found.facts["dropped_rows"] == 1
    assert codes(found) == ["bench.truncated_table"]


def test_rows_without_a_header_are_refused() -> None:
    assert codes(inspect(ROW.format(8192, 1, 1) * 2)) == ["bench.unparseable_layout"]


def test_library_version_from_the_head_line() -> None:
    text = (
        "# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22903\n"
        + HEAD
        + ROW.format(8, 1, 1)
    )
    found = inspect(text, stored={"nccl_version": "2.28.9"})
    assert found.facts["nccl_version"] == "2.29.3"
    assert codes(found) == ["stack.nccl_version_changed"]


# environment files


@pytest.mark.parametrize(
    ("reader", "text", "wanted"),
    [
        ("docker", "A=1\n A=1\n", {"A": "1"}),
        ("docker", "\ufeffA=1\nB\n", {"A": "1", "B": None}),
        ("docker", "A= x \n", {"A": " x "}),
        ("sh", "A=1 B=2\nC=3 cmd\n", {"A": "1", "B": "2"}),
        ("sh", "A=x\nB=$A/y\nC=${D:-z}\n", {"A": "x", "B": "x/y", "C": None}),
        ("sh", "A=a|b\nB=c &\nC='d;e'\n", {"C": "d;e"}),
        ("sh", "A=~/x\nB='~/x'\n", {"A": None, "B": "~/x"}),
        ("sh", "A=one\\\ntwo\n", {"A": "onetwo"}),
        ("sh", "\ufeffA=1\nB=2\n", {"B": "2"}),
        ("compose", "A: 1\nexport B='$x'\nC=\"a\\nb\"\n", {"A": "1", "B": "$x", "C": "a\nb"}),
        ("compose", "A=a#b\nB=c #d\n", {"A": None, "B": "c"}),
        ("systemd", "; c\nA=\"x\"y\nB = 1 \nexport C=2\n", {"A": "xy", "B": "1"}),
        ("systemd", "# c \\\nA=1\nB=2\n", {"B": "2"}),
        ("nccl_conf", " A=1\nB=2\nB=3\n#C=4\n", {"B": "2"}),
        ("dotenv", "A='x' # c\nB\nC=a b\n", {"A": "x", "B": None, "C": "a b"}),
        ("kubectl", "A=\"1\"\n", {"A": '"1"'}),
    ],
)  # fmt: skip
def test_each_reader_by_its_own_rules(reader: str, text: str, wanted: dict[str, Any]) -> None:
    assert read_with(reader, text) == wanted


@pytest.mark.parametrize(
    ("reader", "text"),
    [("docker", "A B=1\n"), ("docker", "=1\n"), ("kubectl", "A=1\nA=2\n"), ("sh", "A='x\n"),
     ("compose", "A='x\n"), ("compose", "A$=1\n"), ("kubectl", "export A=1\n")],
)  # fmt: skip
def test_readers_that_refuse_a_file(reader: str, text: str) -> None:
    assert isinstance(read_with(reader, text), Refused)


def test_carriage_returns_in_a_conf_depend_on_the_version() -> None:
    text = "NCCL_PROTO=LL\r\n"
    assert read_with("nccl_conf", text, (2, 28, 9)) == {"NCCL_PROTO": "LL\r"}
    assert read_with("nccl_conf", text, (2, 30, 7)) == {"NCCL_PROTO": "LL"}
    assert read_with("nccl_conf", text) == {"NCCL_PROTO": None}


def test_faults_of_a_file_with_all_of_them() -> None:
    text = "\ufeffA=1\n B=2\nC=3 \nD\nexport E=4\nF='5'\nG=6 # x\nH=$I\nJ=a;b\nA=2\n# K=\r\n"
    assert inspect(text).facts["faults"] == [
        [1, "bom"], [2, "leading_blank"], [3, "trailing_blank"], [4, "no_value"], [5, "export"],
        [6, "quotes"], [7, "comment"], [8, "dollar"], [9, "semicolon"], [10, "duplicate"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "version", "wanted"),
    [
        ("NCCL_ALGO=allreduce:tree", "2.23.4", ["nccl.invalid_value"]),
        ("NCCL_ALGO=allreduce:tree", "2.28.9", []),
        ("NCCL_PROTO=LL,Simpel", "2.28.9", ["nccl.invalid_value"]),
        ("NCCL_BUFFSIZE=4M", "2.28.9", ["nccl.invalid_value"]),
        ("NCCL_PROTO=LL", "2.18.5", []),
    ],
)
def test_values_that_the_given_library_refuses_or_misreads(
    line: str, version: str, wanted: list[str]
) -> None:
    assert codes(inspect(line + "\n", nccl_version=version)) == wanted


# step timings


BEFORE = [20.0, 20.1, 19.9, 20.05, 19.95, 20.0]
AFTER = [25.0, 25.1, 24.9, 25.05, 24.95, 25.0]
SAME = [20.02, 20.1, 19.9, 20.0, 19.95, 20.05]


def steps(before: list[float], after: list[float], **more: Any) -> dict[str, Any]:
    runs = [{"label": "before", "verify_ms": before}, {"label": "after", "verify_ms": after}]
    return {"runs": runs, **more}


def test_every_encoding_of_the_same_steps_reads_alike() -> None:
    plain = json.dumps(steps(BEFORE, AFTER))
    lines = "\n".join([json.dumps({"host": "a"})] + [json.dumps({"run": "old", "verify_us": v * 1000}) for v in BEFORE]
                      + [json.dumps({"run": "new", "verify_us": v * 1000}) for v in AFTER])  # fmt: skip
    semicolons = (
        "# host: a\nverify_ms;run\n"
        + "".join(f"{v};after\n" for v in AFTER)
        + "".join(f"{v};before\n" for v in BEFORE)
    )
    commas = (
        "run;verify_ms\n"
        + "".join(f"before;{str(v).replace('.', ',')}\n" for v in BEFORE)
        + "".join(f"after;{str(v).replace('.', ',')}\n" for v in AFTER)
    )
    mapped = json.dumps({"before": {"verify_ms": BEFORE}, "after": {"verify_ms": AFTER}})
    seconds = json.dumps(
        {
            "runs": {
                "new": {"step_s": [v / 1000 for v in AFTER]},
                "old": {"step_s": [v / 1000 for v in BEFORE]},
            }
        }
    )
    nested = json.dumps(
        {
            "runs": [
                {"label": "old", "steps": [{"verify_ms": v} for v in BEFORE]},
                {"label": "new", "steps": [{"verify_ms": v} for v in AFTER]},
            ]
        }
    )
    facts = [
        inspect(text).facts for text in (plain, lines, semicolons, commas, mapped, seconds, nested)
    ]
    assert all(fact == facts[0] for fact in facts)
    assert facts[0]["delta_verify_ms"] == 5.0


@pytest.mark.parametrize(
    ("before", "after", "more", "first"),
    [
        (
            BEFORE,
            AFTER,
            {"allreduce": {"count": 100}, "runs_idle": (20, 70)},
            "verify.comm_regression",
        ),
        (BEFORE, AFTER, {"allreduce": {"count": 100}, "runs_idle": (20, 22)}, "verify.beyond_comm"),
        (BEFORE, AFTER, {}, "verify.beyond_comm"),
        (BEFORE, SAME, {}, "verify.no_change"),
        (AFTER, BEFORE, {}, "verify.faster"),
        (BEFORE[:2], AFTER[:2], {}, "noise.too_noisy"),
        (BEFORE, SAME, {"claimed": {"verify_ms": 15.0}}, "verify.baseline_not_reproduced"),
        (BEFORE, SAME, {"claimed": {"verify_ms": 20.1}}, "verify.no_change"),
    ],
)
def test_what_explains_a_change(
    before: list[float], after: list[float], more: dict[str, Any], first: str
) -> None:
    idle = more.pop("runs_idle", None) if "runs_idle" in more else None
    document = steps(before, after, **more)
    if idle:
        for run, latency in zip(document["runs"], idle, strict=True):
            run["allreduce"] = {"count": 100, "idle_us": latency}
    assert codes(inspect(json.dumps(document)))[0] == first


def test_latency_by_size_is_taken_at_the_size_of_each_run() -> None:
    document = steps(BEFORE, AFTER, allreduce_us={"1024": 10, "4096": 60}, allreduce_count=100)
    for run, size in zip(document["runs"], (1024, 4096), strict=True):
        run["bytes"] = size
    found = inspect(json.dumps(document))
    assert found.facts["predicted_delta_ms"] == 5.0
    assert codes(found) == ["verify.comm_regression"]
    document["protocol"] = {"1024": "LL", "4096": "Simple"}
    assert codes(inspect(json.dumps(document))) == ["verify.payload_crosses_threshold"]


def test_repeats_that_differ_among_themselves_hide_a_change() -> None:
    runs = [{"label": "before", "verify_ms": [v + shift for v in BEFORE]} for shift in (-2, 0, 2)]
    runs += [
        {"label": "after", "verify_ms": [v + shift + 1.0 for v in BEFORE]} for shift in (-2, 0, 2)
    ]
    assert codes(inspect(json.dumps({"runs": runs}))) == ["noise.too_noisy"]


def test_rows_of_one_repeat_belong_together() -> None:
    text = "run,repeat,verify_ms\n"
    for repeat, shift in enumerate((-2, 0, 2)):
        text += "".join(
            f"before,{repeat},{v + shift}\nafter,{repeat},{v + shift + 1}\n" for v in BEFORE
        )
    assert codes(inspect(text)) == ["noise.too_noisy"]


def test_columns_of_a_csv_tell_what_belongs_to_each_run() -> None:
    text = "run,verify_ms,graph,allreduce_count,idle_us,batch\n"
    text += "".join(f"before,{v},true,100,20,8\n" for v in BEFORE) + "".join(
        f"after,{v},false,100,21,20\n" for v in AFTER
    )
    found = inspect(text)
    assert found.facts["graph"] == {"before": True, "after": False}
    assert codes(found) == ["verify.not_captured"]


@pytest.mark.parametrize(
    "text",
    [
        '{"runs": [{"label": "before", "verify_ms": [1, 2',
        "run,verify_ms\nbefore,1\nafter,2,3\n",
        '{"runs": [{"label": "before", "verify_ms": [1, 2, 3]}]}',
        '{"verify_ms": "x", "runs": []}',
        "[" * 5000 + '"verify_ms"',
    ],
)
def test_timings_that_cannot_be_read_safely(text: str) -> None:
    found = inspect(text)
    assert set(found.facts) == {"error"}
