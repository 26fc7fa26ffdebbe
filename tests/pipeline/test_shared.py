"""Several nodes search one study through a journal on a shared folder."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from collbench.errors import CollbenchError
from collbench.search import shared
from collbench.search.backings import MendingJournal, is_shared, open_shared, with_driver
from collbench.search.shared import Node, Peers

CHILD = Path(__file__).parent / "shared_child.py"
BEST = {"NCCL_MIN_NCHANNELS": "16"}


def node(url: str, name: str, log: Path, pace: float, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(CHILD), url, name, str(log), str(pace), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(child: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    return dict(json.loads(out))


def class_study(url: str) -> optuna.Study:
    return optuna.load_study(study_name="sweep", storage=open_shared(url))


def states(study: optuna.Study) -> dict[str, int]:
    trials = study.get_trials(deepcopy=False)
    return {s.name: sum(t.state == s for t in trials) for s in TrialState}


@pytest.mark.slow
def test_two_nodes_of_different_pace_share_the_search_and_confirm_on_both(tmp_path: Path) -> None:
    url = f"journal:{tmp_path}/study.journal"
    children = [node(url, "n1", tmp_path / "1", 1.0), node(url, "n2", tmp_path / "2", 1.7)]
    first, second = (ended(child) for child in children)
    assert first["settings"] == second["settings"] == BEST
    assert first["default_us"] == pytest.approx(4000, rel=0.05)
    assert second["default_us"] == pytest.approx(6800, rel=0.05)
    assert 40 <= first["search"] + second["search"] <= 44, "the budget is one for both"
    assert min(first["search"], second["search"]) >= 8, "both take part"
    assert ["n1", "n2"] in (first["confirmed_on"], second["confirmed_on"])
    study = class_study(url)
    assert states(study)["RUNNING"] == 0
    for trial in study.get_trials(states=(TrialState.COMPLETE,)):
        if "log" in trial.user_attrs:
            assert abs(trial.user_attrs["log"]) < 1.0, "ratios, whatever the pace of the node"


@pytest.mark.slow
def test_a_node_that_is_killed_loses_no_trial_and_the_other_ends_the_study(tmp_path: Path) -> None:
    url = f"journal:{tmp_path}/study.journal"
    dying = node(url, "n1", tmp_path / "1", 1.0)
    deadline = time.monotonic() + 60
    while not (tmp_path / "1").exists() or "search" not in (tmp_path / "1").read_text():
        assert time.monotonic() < deadline
        assert dying.poll() is None
        time.sleep(0.01)
    time.sleep(0.15)
    dying.send_signal(signal.SIGKILL)
    dying.communicate()
    study = class_study(url)
    left = [t for t in study.get_trials() if t.state == TrialState.RUNNING]
    result = ended(node(url, "n2", tmp_path / "2", 1.3))
    assert (result["verdict"], result["settings"]) == ("profile", BEST)
    again = class_study(url)
    assert states(again)["RUNNING"] == 0
    for trial in left:
        assert again.trials[trial.number].state == TrialState.FAIL
        retried = [t for t in again.trials if t.user_attrs.get("again") == trial.number]
        assert len(retried) == 1
        assert retried[0].params == trial.params
        assert retried[0].state == TrialState.COMPLETE


@pytest.mark.slow
def test_a_node_of_another_class_is_set_aside_with_the_reason(tmp_path: Path) -> None:
    url = f"journal:{tmp_path}/study.journal"
    ended(node(url, "n1", tmp_path / "1", 1.0))
    other = node(url, "n2", tmp_path / "2", 1.0, "4")
    _, err = other.communicate(timeout=120)
    assert "node n2 is set aside: cpus is 4 here, 2 in the class" in err
    assert class_study(url).user_attrs["aside/n2"] == "cpus is 4 here, 2 in the class"


def test_a_node_of_another_class_gets_exit_code_5(tmp_path: Path) -> None:
    study = optuna.create_study()
    Peers(study, Node(name="n1", machine={"library": "NCCL 2.28.9", "cpus": 4}))
    with pytest.raises(CollbenchError) as caught:
        Peers(study, Node(name="n2", machine={"library": "NCCL 2.27.3", "cpus": 4}))
    assert caught.value.code == 5
    assert "library is NCCL 2.27.3 here, NCCL 2.28.9 in the class" in caught.value.what


def test_settings_are_good_for_the_class_once_two_nodes_have_confirmed_them() -> None:
    study = optuna.create_study()
    one, two = Peers(study, Node(name="n1")), Peers(study, Node(name="n2"))
    assert one.report(BEST, adopted=True, ratio=0.9) == ("n1",)
    assert one.confirmed() == [], "what only this node has confirmed is nothing new to it"
    assert two.confirmed() == [BEST]
    assert two.report({"NCCL_PROTO": "LL"}, adopted=False, ratio=1.1) == ()
    assert two.report(BEST, adopted=True, ratio=0.91) == ("n1", "n2")


def test_a_live_node_keeps_its_trial_and_a_dead_one_loses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "BEAT_S", 0.05)
    monkeypatch.setattr(shared, "STALE_S", 0.5)
    storage = open_shared(f"journal:{tmp_path}/s.journal")
    study = optuna.create_study(study_name="sweep", storage=storage)
    alive, dead, watch = (Peers(study, Node(name=n)) for n in ("alive", "dead", "watch"))
    trials = []
    for peer in (alive, dead):
        trials.append(peer.ask())
        trials[-1].suggest_categorical("proto", ["unset", "LL"])
    dead.release()
    taken: list[int] = []
    deadline = time.monotonic() + 10
    while not taken and time.monotonic() < deadline:
        taken += watch.retry_stale()
        time.sleep(0.02)
    alive.release()
    assert taken == [trials[1].number]
    assert not alive.lost(trials[0])
    assert dead.lost(trials[1])
    waiting = study.get_trials(states=(TrialState.WAITING,))
    assert [t.user_attrs["again"] for t in waiting] == [trials[1].number]


def test_settings_that_keep_killing_nodes_are_not_tried_for_ever() -> None:
    study = optuna.create_study()
    for _ in range(10):
        trial = study.ask()
        trial.suggest_categorical("proto", ["unset", "LL"])
        study.tell(trial, state=TrialState.FAIL)
        shared.retry(study, study.trials[trial.number])
    tries = [t.user_attrs.get("retries", 0) for t in study.trials]
    assert max(tries) == shared.RETRIES


@pytest.mark.parametrize("cut", [1, 7, 30])
def test_a_torn_last_line_of_the_journal_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "s.journal"
    url = f"journal:{path}"
    study = optuna.create_study(study_name="sweep", storage=open_shared(url))
    study.set_user_attr("whole", 1)
    study.set_user_attr("torn", "x" * 40)
    path.write_bytes(path.read_bytes()[:-cut])
    again = optuna.load_study(study_name="sweep", storage=open_shared(url))
    again.set_user_attr("after", 2)
    for _ in range(2):
        attributes = optuna.load_study(study_name="sweep", storage=open_shared(url)).user_attrs
        assert attributes == {"whole": 1, "after": 2}
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_an_empty_journal_can_be_begun(tmp_path: Path) -> None:
    MendingJournal(str(tmp_path / "s")).append_logs([{"a": 1}])
    assert (tmp_path / "s").read_text() == '{"a":1}\n'


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("journal:/shared/x", True),
        ("postgresql://me@db/x", True),
        ("postgresql+psycopg://me@db/x", True),
        ("mysql+pymysql://me@db/x", True),
        ("grpc://db:13000", True),
        ("sqlite:///x.db", False),
    ],
)
def test_which_storages_many_nodes_share(url: str, expected: bool) -> None:
    assert is_shared(url) is expected


def test_a_proxy_url_that_is_none_is_refused() -> None:
    with pytest.raises(CollbenchError, match="grpc://HOST:PORT"):
        open_shared("grpc://x")


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collbench.search.backings.DRIVERS", ("no_such_driver",))
    with pytest.raises(CollbenchError, match="no driver"):
        with_driver("postgresql://me@db/x")
