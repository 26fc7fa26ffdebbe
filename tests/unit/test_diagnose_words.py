"""What `collbench diagnose` says and writes, and what it refuses to compare."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from collbench.cli.diagnose import diagnose
from collbench.errors import CollbenchError
from collbench.record import dump
from tests.unit.test_diagnose import WANT, ask, make_profile, record


def say(*arguments: str) -> str:
    done = CliRunner().invoke(diagnose, ["--no-processes", *arguments], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def steps(folder: Path, name: str, ms: float, accept: float) -> str:
    samples = {
        "verify_ms": [ms + 0.01 * (i % 5) for i in range(10)],
        "accept_len": [accept] * 10,
        "tok_s": [1000 * accept / ms],
    }
    path = folder / name
    path.write_text(json.dumps(samples))
    return str(path)


def test_fewer_tokens_at_the_same_step_are_not_called_no_change(tmp_path: Path) -> None:
    before, after = steps(tmp_path, "b.json", 20, 3.0), steps(tmp_path, "a.json", 20, 1.5)
    text = say("--steps", before, "--steps", after)
    assert text.startswith("verdict: step not slower (+0.000 ms per step)\n")
    assert "verify.acceptance_not_comm" in text


def test_workers_that_were_not_looked_at_are_not_called_absent(tmp_path: Path) -> None:
    (tmp_path / "p.env").write_text("NCCL_PROTO=LL\n")
    pair = [steps(tmp_path, name, 20, 3.0) for name in ("b.json", "a.json")]
    text = say("--profile", str(tmp_path / "p.env"), "--steps", pair[0], "--steps", pair[1])
    assert "workers were not looked at" in " ".join(text.split())


def test_the_metrics_file_tells_the_second_it_was_written(tmp_path: Path) -> None:
    pair = [steps(tmp_path, name, 20, 3.0) for name in ("b.json", "a.json")]
    begun = time.time()
    say("--steps", pair[0], "--steps", pair[1], "--prom", str(tmp_path / "x.prom"))
    last = (tmp_path / "x.prom").read_text().splitlines()[-1]
    assert begun - 1 <= float(last.split()[-1]) <= time.time() + 1


def test_a_watch_without_a_record_is_refused_before_it_measures(tmp_path: Path) -> None:
    (tmp_path / "p.env").write_text("NCCL_PROTO=LL\n")
    with pytest.raises(CollbenchError, match="no record of its step"):
        ask("--against", str(tmp_path / "p.env"))


def test_a_record_without_the_profile_s_settings_is_no_repetition_of_it(tmp_path: Path) -> None:
    profile = make_profile(tmp_path)
    other = tmp_path / "other.json"
    other.write_text(dump(record({("all_reduce", 57344): 66.0})))
    name, value = next(iter(WANT.items()))
    with pytest.raises(CollbenchError, match=f"not measured with .*{name}={value}"):
        ask("--profile", str(profile), "--record", str(other))
