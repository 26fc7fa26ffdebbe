"""The summary and the progress of a sweep, as text."""

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.terminal.progress import SweepProgress, SweepState, status_line
from collbench.terminal.summary import next_command, sweep_summary, verdict_sentence
from collbench.terminal.words import clean, wrap

PROFILE: dict[str, Any] = {
    "schema": 1,
    "command": "sweep",
    "exit_code": 0,
    "verdict": "profile",
    "profile": "results/h200x2/3f2a9c10",
    "spec": "decode",
    "settings": {"NCCL_MIN_NCHANNELS": "16"},
    "baseline": {"NCCL_P2P_DISABLE": "1"},
    "default_us": 4338.2,
    "winner_us": 4021.4,
    "default_exposed_us": 2069.0,
    "winner_exposed_us": 1734.0,
    "ratio": 0.927,
    "interval": [0.925, 0.9299],
    "search_value_us": 4005.0,
    "noise_pct": 0.4,
    "trials": 25,
    "trials_reused": 3,
    "outcomes": {"ok": 24, "hung": 1},
    "not_searched": ["graph-mixing", "p2p"],
    "backend": "nccl",
    "seconds": 187.4,
}
KEPT = PROFILE | {
    "verdict": "keep_default",
    "profile": None,
    "settings": {},
    "winner_us": None,
    "winner_exposed_us": None,
    "ratio": None,
    "interval": None,
    "search_value_us": None,
}


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_the_first_line_is_the_verdict_and_the_last_the_next_command() -> None:
    lines = sweep_summary(PROFILE).splitlines()
    assert lines[0].startswith("Faster: 4.338 ms with the default, 4.021 ms with the profile")
    assert lines[-1].split(maxsplit=1) == [
        "Next",
        "collbench run results/h200x2/3f2a9c10 -- CMD...",
    ]


def test_the_verdict_gives_ratio_and_interval() -> None:
    assert "7.3 % less time (ratio 0.927, 95 % interval 0.925 to 0.930)" in verdict_sentence(
        PROFILE
    )


def test_the_summary_names_settings_search_and_what_was_left_out() -> None:
    text = flat(sweep_summary(PROFILE))
    for part in (
        "NCCL_MIN_NCHANNELS=16",
        "exposed 2.069 ms -> 1.734 ms a step",
        "the search saw 4.005 ms, fresh launches 4.021 ms (+0.4 %)",
        "25 trials 3 of them reused in 3 min 7 s: 24 ok, 1 hung; noise floor 0.4 %; backend nccl",
        "collbench sweep decode --allow graph-mixing --allow p2p",
        "Baseline NCCL_P2P_DISABLE=1",
    ):
        assert part in text


def test_a_kept_default_says_why_and_never_ends_in_a_hazard() -> None:
    text = sweep_summary(KEPT)
    assert text.startswith("Keep the default (4.338 ms): nothing beat it by more than the noise")
    assert next_command(KEPT) == "collbench status"
    assert "ms with the profile" not in text
    given = KEPT | {"reason": "exposed communication is 1.2 % of the step"}
    assert verdict_sentence(given).endswith("exposed communication is 1.2 % of the step.")


def test_a_profile_with_hazards_is_compared_with_the_safe_one_and_says_what_must_hold() -> None:
    hazard = PROFILE | {
        "reference": {"NCCL_MIN_NCHANNELS": "16"},
        "must_hold": ["a captured and an eager call on one communicator never overlap"],
        "not_searched": [],
    }
    text = sweep_summary(hazard)
    assert "with the safe profile" in flat(text)
    assert "Must hold" in text


def test_a_profile_for_one_side_is_said_with_what_it_gives_up() -> None:
    end = {
        "server": "decode",
        "profile": "results/h200x2/77aa00bb",
        "settings": {"NCCL_PROTO": "LL"},
        "ratio": 0.88,
        "interval": [0.87, 0.89],
        "must_hold": ["the server only decodes: calls from 1 MiB up take 1.85 times as long"],
    }
    both = end | {"server": "both", "profile": PROFILE["profile"]}
    text = flat(sweep_summary(PROFILE | {"profiles": [both, end]}))
    assert text.count("for servers that only") == 1
    assert (
        "One side for servers that only decode: 12.0 % less time (0.870 to 0.890) with "
        "NCCL_PROTO=LL: results/h200x2/77aa00bb; the server only decodes: calls from 1 MiB up"
    ) in text


def test_a_default_of_another_scale_begins_anew() -> None:
    stream = io.StringIO()
    progress = SweepProgress(stream)
    progress.default(4338.0, 0.4)
    progress.trial({"NCCL_PROTO": "LL"}, "ok", 0.9)
    assert progress.state.best_ratio == 0.9
    progress.default(310.0, 0.4)
    assert progress.state.best_ratio is None
    assert "best" not in status_line(progress.state, 1.0)


def test_the_command_that_would_search_the_rest_is_the_sweeps_own() -> None:
    own = PROFILE | {"not_searched_command": "collbench sweep decode --budget 5m --allow p2p"}
    assert "collbench sweep decode --budget 5m --allow p2p" in flat(sweep_summary(own))


def test_a_lost_confirmation_shows_the_interval_that_lost() -> None:
    text = verdict_sentence(KEPT | {"ratio": 0.991, "interval": [0.97, 1.01]})
    assert "ratio on fresh launches was 0.991 (0.970 to 1.010)" in text


def test_a_sweep_on_a_cpu_has_no_exposed_communication() -> None:
    cpu = PROFILE | {"default_us": 45.7, "winner_us": 16.6, "default_exposed_us": None}
    text = sweep_summary(cpu | {"winner_exposed_us": None})
    assert "45.7 us with the default, 16.6 us" in text
    assert "exposed" not in text


@pytest.mark.parametrize("document", [PROFILE, KEPT])
def test_no_line_is_longer_than_80_columns(document: dict[str, Any]) -> None:
    assert max(map(len, sweep_summary(document).splitlines())) <= 80


def test_escape_sequences_of_a_hostile_value_do_not_reach_the_terminal() -> None:
    hostile = PROFILE | {"reason": "\x1b]0;x\x07", "warnings": ["host \x1b[31mred\r\nNext  evil"]}
    text = sweep_summary(hostile)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert text.splitlines()[-1].startswith("Next          collbench run")


@given(st.text())
def test_cleaned_text_is_one_printable_line(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) <= 200
    assert len(cleaned.splitlines()) <= 1
    assert "\x1b" not in cleaned


def test_a_long_path_is_never_cut() -> None:
    path = "results/" + "x" * 100
    assert path in wrap(path, first="Profile       ")


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def sweep(progress: SweepProgress) -> None:
    progress.stage("A/A", 4)
    progress.default(4338.2, 0.4)
    progress.stage("search", 25, left_s=60)
    progress.trial({"NCCL_PROTO": "Simple"}, "ok", 1.3, left_s=50)
    progress.trial({"NCCL_PROTO": "LL128"}, "hung", reason="no answer in 30 s", left_s=40)
    progress.trial({"NCCL_MIN_NCHANNELS": "16"}, "ok", 0.927, left_s=30)


def test_a_log_has_one_line_an_event_and_no_escape() -> None:
    stream = io.StringIO()
    times = iter(range(100))
    with SweepProgress(stream, clock=lambda: float(next(times))) as progress:
        sweep(progress)
    assert stream.getvalue().splitlines() == [
        "[    1.0 s] A/A: 4 launches",
        "[    2.0 s] default 4.338 ms, noise floor 0.4 %",
        "[    3.0 s] search: 25 launches",
        "[    4.0 s] search 1/25: 1.300x default: NCCL_PROTO=Simple",
        "[    5.0 s] search 2/25: hung: NCCL_PROTO=LL128: no answer in 30 s",
        "[    6.0 s] search 3/25: 0.927x default: NCCL_MIN_NCHANNELS=16",
    ]


def test_a_launch_of_the_default_has_no_ratio_to_itself() -> None:
    stream = io.StringIO()
    with SweepProgress(stream) as progress:
        progress.stage("search", 4)
        progress.trial({}, "ok", 1.0)
    assert stream.getvalue().splitlines()[-1].endswith("s] search 1/4: default")


def test_quiet_writes_nothing() -> None:
    for stream in (io.StringIO(), Tty()):
        with SweepProgress(stream, quiet=True) as progress:
            sweep(progress)
        assert stream.getvalue() == ""


def test_a_terminal_keeps_new_bests_and_failures_and_clears_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    stream = Tty()
    with SweepProgress(stream) as progress:
        sweep(progress)
    text = stream.getvalue()
    assert "search 3/25: 0.927x default" in text
    assert "search 2/25: hung" in text
    assert "search 1/25" not in text.replace("search 1/25 |", "")
    assert "search 3/25 | best 7.3 % less time (noise 0.4 %) | 1 hung | 30 s left" in text
    assert not re.search(r"\x1b\[[0-9;]*m", text.replace("\x1b[0m", "")), "no colour"


def test_the_live_line_fits_any_width_and_keeps_the_trial() -> None:
    state = SweepState(stage="search", trial=7, trials=25, default_us=4338.2, noise_pct=0.4)
    state.best_ratio = 0.9
    state.outcomes.update(ok=5, hung=1, died=1)
    for width in range(20, 120):
        line = status_line(state, 12.0, width)
        assert len(line) < width
        assert line.startswith("search 7/25")


def test_a_slower_candidate_is_never_called_best() -> None:
    progress = SweepProgress(io.StringIO())
    progress.trial({"A": "1"}, "ok", 1.2)
    progress.trial({}, "ok", 0.9)
    assert progress.state.best_ratio is None
