"""What a sweep asks for is validated before anything is measured."""

from pathlib import Path

import pytest

from collbench.errors import CollbenchError
from collbench.sweep import setup
from collbench.sweep.arguments import Arguments, parse
from collbench.sweep.setup import command_line, like_baseline, pinned_variables, prepare, storage_of

TINY = str(Path(__file__).parent.parent / "data" / "sweeps" / "tiny.toml")


@pytest.fixture
def _no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(setup, "visible_gpus", list)
    monkeypatch.chdir(tmp_path)


def test_registered_variables_of_the_environment_are_pinned_and_nothing_else() -> None:
    environ = {
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_P2P_DISABLE": "1",
        "HOME": "/root",
        "HF_TOKEN": "secret",
        "COLLBENCH_PROFILE": "abc",
    }
    assert pinned_variables(environ) == {"NCCL_NVLS_ENABLE": "0", "NCCL_P2P_DISABLE": "1"}


def test_what_torchrun_sets_for_its_workers_is_not_pinned_into_a_profile() -> None:
    assert pinned_variables({"OMP_NUM_THREADS": "1"}) == {}


@pytest.mark.usefixtures("_no_gpu")
def test_without_a_gpu_the_quickstart_is_the_default_and_the_reason_is_told() -> None:
    found = prepare(Arguments(), local_ranks=2, nranks=2)
    assert (found.spec.name, found.chosen.backend) == ("quickstart", "mpi")
    assert "no CUDA device is visible" in found.chosen.why


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Arguments(backend="gloo"), "nothing to tune"),
        (Arguments(spec="decode"), "needs 2 GPUs; 0 visible"),
        (Arguments(spec="nosuch"), "no sweep 'nosuch'"),
        (Arguments(spec=TINY, backend="nccl"), "is a sweep of backend 'mpi'"),
        (Arguments(spec=TINY, out=Path("/proc/nowhere")), "--out /proc/nowhere"),
    ],
)
def test_a_request_that_cannot_be_met_is_one_clear_error(given: Arguments, says: str) -> None:
    with pytest.raises(CollbenchError) as caught:
        prepare(given, local_ranks=2, nranks=2)
    assert says in caught.value.what
    assert caught.value.fix
    assert caught.value.code == 2


@pytest.mark.usefixtures("_no_gpu")
def test_one_rank_is_refused() -> None:
    with pytest.raises(CollbenchError, match="at least 2"):
        prepare(Arguments(spec=TINY), local_ranks=1, nranks=1)


def test_resume_goes_on_with_the_newest_study_of_the_same_sweep(tmp_path: Path) -> None:
    spec = setup.load_spec(TINY)
    with pytest.raises(CollbenchError, match="no study of 'tiny'"):
        storage_of(Arguments(resume=True), spec, tmp_path)
    url, stem = storage_of(Arguments(), spec, tmp_path)
    stem.with_suffix(".db").touch()
    (stem.parent / "other-20300101T000000Z.db").touch()
    again, _ = storage_of(Arguments(resume=True), spec, tmp_path)
    assert again == url


def test_the_command_starts_as_many_ranks_and_the_module_over_several_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(setup, "default_nproc", lambda: 8)
    given = ("decode", "--seed", "1")
    assert command_line(given, ("a",) * 8, 8) == ("collbench", "sweep", *given)
    two = ("collbench", "sweep", "--nproc-per-node", "2", *given)
    assert command_line(given, ("a", "a"), 2) == two
    assert command_line(given, ("a", "b"), 2)[:3] == ("python", "-m", "collbench.sweep")


def test_the_module_and_the_front_door_read_the_same_command_line() -> None:
    found = parse(["quickstart", "--budget", "5m", "--allow", "p2p", "--allow", "ll128"])
    assert found is not None
    assert (found.spec, found.budget, found.allow) == ("quickstart", "5m", ("p2p", "ll128"))


def test_like_a_server_keeps_what_it_keeps_and_overwrites_what_it_overwrites() -> None:
    mine = {"NCCL_CUMEM_ENABLE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    found = like_baseline("sglang", mine)
    assert "NCCL_CUMEM_ENABLE" not in found
    assert found["CUDA_DEVICE_MAX_CONNECTIONS"] == "8"
    assert like_baseline("sglang", {})["NCCL_CUMEM_ENABLE"] == "0"
    assert like_baseline("none", mine) == {}
