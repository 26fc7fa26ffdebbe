"""Exact verdicts on real process trees: no false live, no false absent."""

import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collbench.live import environ_block, memory, processes
from collbench.live.evidence import Seen, judge
from collbench.live.verify import Result, Wanted, exit_code, verify
from tests.dist.live.conftest import PROFILE, Start

pytestmark = pytest.mark.dist


def check(pid: int, **more: Any) -> Result:
    return verify(Wanted(values={**PROFILE, "COLLBENCH_PROFILE": "x"}, pids=[pid], **more))


def verdicts(result: Result) -> dict[int, dict[str, tuple[str, str | None]]]:
    return {
        w.seen.process.pid: {
            n: (j.verdict, j.evidence) for n, j in w.settings.items() if n in PROFILE
        }
        for w in result.workers
    }


LIVE = dict.fromkeys(PROFILE, ("live", "memory"))
ABSENT = dict.fromkeys(PROFILE, ("absent", "memory"))


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("title", ["VLLM::Worker_TP{rank}", "sglang::scheduler_TP{rank}", ""])
def test_workers_with_the_profile_are_live_whatever_their_titles_wiped(
    start: Start, method: str, title: str
) -> None:
    tree = start(workers=2, method=method, title=title)
    result = check(tree.pid)
    assert verdicts(result) == dict.fromkeys(tree.workers, LIVE)
    assert (result.verdict, exit_code(result)) == ("live", 0)
    if title:
        assert [w.rank for w in result.workers] == [0, 1]
        assert not environ_block.read(tree.workers[0]).whole


def test_a_title_with_spt_noenv_leaves_the_block_readable(start: Start) -> None:
    tree = start({**PROFILE, "SPT_NOENV": "1"}, title="VLLM::Worker_TP{rank}")
    block = environ_block.read(tree.workers[0])
    assert block.whole
    assert block.values["NCCL_PROTO"] == "LL"
    assert check(tree.pid).verdict == "live"


def test_what_a_launcher_sets_before_it_forks_is_live_though_no_block_shows_it(
    start: Start,
) -> None:
    tree = start({}, workers=2, method="fork", launcher_sets=PROFILE)
    assert "NCCL_PROTO" not in environ_block.read(tree.workers[0]).values
    assert verdicts(check(tree.pid)) == dict.fromkeys(tree.workers, LIVE)


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("title", ["sglang::scheduler_TP{rank}", ""])
def test_a_launcher_with_a_clean_environment_is_absent(
    start: Start, method: str, title: str
) -> None:
    tree = start({}, workers=2, method=method, title=title)
    result = check(tree.pid)
    assert verdicts(result) == dict.fromkeys(tree.workers, ABSENT)
    assert [f["code"] for f in result.findings if f["code"].startswith("env.")] == [
        "env.profile_absent"
    ]
    assert exit_code(result) == 3


def test_a_value_changed_before_the_title_is_seen_though_the_block_shows_the_old_one(
    start: Start,
) -> None:
    env = {"AAA_EARLY": "1", **PROFILE}
    sets = {"AAA_EARLY": "22", "NCCL_PROTO": "Simple"}
    tree = start(env, title="VLLM::Worker_TP{rank}", sets=sets)
    block = environ_block.read(tree.workers[0])
    assert not block.whole
    result = check(tree.pid)
    (worker,) = verdicts(result).values()
    assert worker == {
        "NCCL_PROTO": ("differs", "memory"),
        "NCCL_MIN_NCHANNELS": ("live", "memory"),
    }
    assert result.workers[0].settings["NCCL_PROTO"].have == "Simple"


def test_a_title_that_could_not_be_written_leaves_a_block_of_old_values(start: Start) -> None:
    """The first variable was changed before the title: the block stays as it was at the start."""
    tree = start(
        method="none",
        title="VLLM::Worker",
        sets={"PATH": "/changed", "NCCL_PROTO": "Simple"},
    )
    assert environ_block.read(tree.pid).values["NCCL_PROTO"] == "LL"
    assert verdicts(check(tree.pid))[tree.pid]["NCCL_PROTO"] == ("differs", "memory")


@pytest.mark.parametrize("title", ["VLLM::Worker_TP{rank}", ""])
def test_a_value_overwritten_inside_the_process_differs(start: Start, title: str) -> None:
    tree = start(title=title, sets_after={"NCCL_PROTO": "Simple"})
    assert verdicts(check(tree.pid))[tree.workers[0]] == {
        "NCCL_PROTO": ("differs", "memory"),
        "NCCL_MIN_NCHANNELS": ("live", "memory"),
    }


@pytest.mark.parametrize("title", ["VLLM::Worker_TP{rank}", ""])
def test_a_value_removed_inside_the_process_is_absent(start: Start, title: str) -> None:
    tree = start(title=title, unsets=["NCCL_PROTO"])
    assert verdicts(check(tree.pid))[tree.workers[0]] == {
        "NCCL_PROTO": ("absent", "memory"),
        "NCCL_MIN_NCHANNELS": ("live", "memory"),
    }


@pytest.mark.parametrize("title", ["VLLM::Worker_TP{rank}", ""])
def test_a_value_set_inside_the_process_after_its_title_is_live(start: Start, title: str) -> None:
    tree = start({}, title=title, sets_after=PROFILE)
    assert verdicts(check(tree.pid))[tree.workers[0]] == LIVE


def test_one_of_eight_workers_differs_and_is_named(start: Start) -> None:
    tree = start(
        workers=8, method="fork", title="VLLM::Worker_TP{rank}", only={"5": {"NCCL_PROTO": "^LL"}}
    )
    result = check(tree.pid, nranks=8)
    expected = dict.fromkeys(tree.workers, LIVE)
    expected[tree.workers[5]] = {**LIVE, "NCCL_PROTO": ("differs", "memory")}
    assert verdicts(result) == expected
    assert exit_code(result) == 3
    codes = [f["code"] for f in result.findings]
    assert "env.partial_ranks" in codes
    assert any("rank 5" in f["evidence"] for f in result.findings)


def test_one_of_eight_workers_lacks_a_variable(start: Start) -> None:
    tree = start(
        workers=8, method="fork", title="sglang::scheduler_TP{rank}",
        unsets_only={"0": ["NCCL_MIN_NCHANNELS"]},
    )  # fmt: skip
    result = check(tree.pid)
    assert [w.verdict for w in result.workers] == ["different"] + ["live"] * 7


def test_fewer_workers_than_ranks_is_not_live(start: Start) -> None:
    tree = start(workers=2, method="fork", title="VLLM::Worker_TP{rank}")
    result = check(tree.pid, nranks=4)
    assert (result.verdict, exit_code(result)) == ("unknown", 4)
    assert "env.unknown" in [f["code"] for f in result.findings]


@pytest.mark.parametrize("title", ["VLLM::EngineCore", "sglang::scheduler"])
def test_a_server_on_one_gpu_is_found_without_a_pid(start: Start, title: str) -> None:
    tree = start(title=title, extra=["sglang::detokenizer"])
    result = verify(Wanted(values=PROFILE))
    found = {w.seen.process.pid: w.rank for w in result.workers}
    assert found.get(tree.workers[0]) == 0
    assert len(verdicts(check(tree.pid))) == 1


def test_helpers_of_a_server_are_no_workers(start: Start) -> None:
    tree = start(
        workers=2, title="sglang::scheduler_TP{rank}", launcher_title="sglang.launch_server",
        extra=["sglang::detokenizer", "sglang::data_parallel_controller"],
    )  # fmt: skip
    assert sorted(verdicts(check(tree.pid))) == sorted(tree.workers)


def test_a_pattern_finds_workers_and_what_launched_them(start: Start) -> None:
    tree = start(workers=2, title="VLLM::Worker_TP{rank}", launcher_title="vllm serve my-model-x7")
    for pattern in (r"VLLM::Worker_TP\d", "my-model-x7"):
        result = verify(Wanted(values=PROFILE, match=pattern))
        assert set(tree.workers) <= {w.seen.process.pid for w in result.workers}
    assert sorted(verdicts(verify(Wanted(values=PROFILE, match="my-model-x7")))) == sorted(
        tree.workers
    )


def test_a_wiped_block_alone_decides_nothing(start: Start) -> None:
    """What a user without permission for the memory may see: the block, and it is wiped."""
    wiped = start(title="VLLM::Worker_TP{rank}").workers[0]
    whole = start({**PROFILE, "NCCL_PROTO": "Simple"}, title="").workers[0]
    for pid, expected in (
        (wiped, {"NCCL_PROTO": "unknown", "NCCL_MIN_NCHANNELS": "unknown"}),
        (whole, {"NCCL_PROTO": "unknown", "NCCL_MIN_NCHANNELS": "live"}),
    ):
        process = processes.read(pid)
        assert process is not None
        seen = Seen(process, block=environ_block.read(pid))
        assert {n: judge(seen, n, w).verdict for n, w in PROFILE.items()} == expected


@pytest.mark.parametrize("seed", range(5))
def test_trees_drawn_at_random_get_the_exact_verdict(start: Start, seed: int) -> None:
    """Every step that can change a variable, in any combination; the verdict follows from them."""
    draw = random.Random(seed)
    values = ["LL", "Simple", "LL,Simple"]

    def some() -> dict[str, str]:
        chosen = {n: draw.choice([w, *values]) for n, w in PROFILE.items()}
        return {n: v for n, v in chosen.items() if draw.random() < 0.5}

    steps: dict[str, Any] = {name: some() for name in ("launcher_sets", "sets", "sets_after")}
    steps["unsets"] = [name for name in PROFILE if draw.random() < 0.2]
    env, workers = {"FIRST": "1", **some()}, draw.randint(1, 3)
    if draw.random() < 0.5:
        steps["sets"]["FIRST"] = "222"  # then the title clears a part of the block only
    tree = start(
        env,
        workers=workers,
        method=draw.choice(["spawn", "fork"]),
        title=draw.choice(["", "VLLM::Worker_TP{rank}", "sglang::scheduler_TP{rank}"]),
        launcher_title=draw.choice(["", "vllm serve m"]),
        **steps,
    )
    final = {**env, **steps["launcher_sets"], **steps["sets"], **steps["sets_after"]}
    have = {n: v for n, v in final.items() if n not in steps["unsets"]}
    expected = {
        name: "absent" if name not in have else "live" if have[name] == want else "differs"
        for name, want in PROFILE.items()
    }
    result = check(tree.pid)
    seen = [{n: w.settings[n].verdict for n in PROFILE} for w in result.workers]
    assert seen == [expected] * workers


def test_another_users_process_is_unknown_with_the_permission_that_helps(
    start: Start, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    tree = start(title="VLLM::Worker_TP{rank}")
    code = (
        "import os, sys, json\nfrom collbench.live.verify import *\n"
        f"w = Wanted(values={PROFILE!r}, pids=[{tree.workers[0]}])\n"
        "verify(w); os.setgid(65534); os.setuid(65534)\n"  # everything is imported by now
        "r = verify(w); print(json.dumps(document(r, w, exit_code(r))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"] == "unknown"
    assert document["exit_code"] == 4
    assert {s["verdict"] for s in document["workers"][0]["settings"].values()} == {"unknown"}
    (finding,) = [f for f in document["findings"] if f["code"] == "env.unknown"]
    assert "CAP_SYS_PTRACE" in finding["next"]


def test_a_process_that_ends_while_it_is_read_is_no_traceback(start: Start) -> None:
    with pytest.raises(memory.UnreadableError) as caught:
        memory.read_environ(2**22 - 3)
    assert caught.value.why == "gone"


def test_an_environment_that_changes_all_the_time_is_never_misread() -> None:
    """A process that flips a value: every reading is one of the two states, or refused."""
    code = (
        "import os\nprint(1, flush=True)\nwhile True:\n"
        "    os.environ['NCCL_PROTO'] = 'LL'; os.environ['NCCL_PROTO'] = 'Simple' * 500"
    )
    read = []
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=PROFILE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(40):
            try:
                read.append(memory.read_environ(process.pid).get("NCCL_PROTO"))
            except memory.UnreadableError as error:
                read.append(error.why)
    finally:
        process.kill()
        process.communicate()
    assert set(read) <= {"LL", "Simple" * 500, "changing", "not_ready"}


def test_eight_workers_are_verified_within_a_second(start: Start, tmp_path: Path) -> None:
    tree = start(workers=8, method="fork", title="VLLM::Worker_TP{rank}")
    env = tmp_path / "p.env"
    env.write_text("".join(f"{n}={v}\n" for n, v in PROFILE.items()))
    command = [sys.executable, "-m", "collbench", "verify", str(env), "--pid", str(tree.pid)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout)["workers"]) == 8
    # CPU time, so that a busy machine does not fail it; benchmarks/startup.py shows the wall time.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
