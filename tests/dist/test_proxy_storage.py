"""A study behind Optuna's gRPC proxy: nodes meet there as they do on a database."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from collbench.search import shared
from collbench.search.backings import open_shared
from collbench.search.shared import Node, Peers

pytestmark = pytest.mark.dist

PROXY = """
import sys, optuna
from collbench.parent_death import die_with_parent
die_with_parent()
storage = optuna.storages.RDBStorage(f"sqlite:///{sys.argv[1]}")
optuna.storages.run_grpc_proxy_server(storage, host="127.0.0.1", port=int(sys.argv[2]))
"""


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("grpc", reason="needs the extra `cluster`")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-c", PROXY, str(tmp_path / "s.db"), str(port)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    yield f"grpc://127.0.0.1:{port}"
    server.kill()
    server.wait()


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_dead_nodes_trial_is_queued_again_behind_the_proxy(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "BEAT_S", 0.1)
    monkeypatch.setattr(shared, "STALE_S", 1.0)
    study = optuna.create_study(study_name="sweep", storage=open_shared(proxy))
    dead, alive = Peers(study, Node(name="dead")), Peers(study, Node(name="alive"))
    lost, kept = dead.ask(), alive.ask()
    lost.suggest_categorical("proto", ["unset", "LL"])
    kept.suggest_categorical("proto", ["unset", "LL"])
    dead.release()
    watch = Peers(study, Node(name="watch"))
    taken: list[int] = []
    end = time.monotonic() + 30
    while not taken and time.monotonic() < end:
        taken += watch.retry_stale()
        time.sleep(0.05)
    assert taken == [lost.number]
    again = alive.study.get_trials(states=(TrialState.WAITING,))
    assert [trial.user_attrs["again"] for trial in again] == [lost.number]
    study.tell(kept, 0.1)
    alive.release()
