"""Which rank a process is, from the variables of one launcher or of several at once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.errors import CollbenchError
from collbench.pool.hosts import Hosts
from collbench.ranks import detect, rank_of, under_launcher, without_launcher
from collbench.ranks.launchers import tasks_per_node
from collbench.ranks.meeting import first_host

# As seen on real launches: torchrun 2.13, Open MPI 5.0.11, MPICH 5.0.2, Slurm 22.05.
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "h0",
    "MASTER_PORT": "29500",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "OMPI_WORLD_SIZE": "3",
    "OMPI_MCA_num_procs": "3",
    "PMIX_RANK": "1",
    "PMIX_SERVER_URI41": "prterun-vm-1@0.0;tcp4://127.0.0.1:60163",
    "PRTE_LAUNCHED": "1",
}
MPICH = {
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
    "PMI_FD": "11",
    "HYDI_CONTROL_FD": "7",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "2",
}
ALLOCATION = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOBID": "7",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_NODELIST": "n[1-2]",
    "SLURM_NNODES": "2",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURMD_NODENAME": "n2",
}
BATCH = {**ALLOCATION, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
STEP = {
    **ALLOCATION,
    "SLURM_STEP_ID": "0",
    "SLURM_STEPID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "3",
}


def place(environ: dict[str, str]) -> tuple[object, ...]:
    got = detect(environ)
    return got.launcher, got.rank, got.world_size, got.local_rank, got.local_world_size


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("none", 0, 1, 0, 1)),
        (TORCHRUN, ("torchrun", 3, 4, 1, 2)),
        (OPENMPI, ("mpirun", 1, 3, 1, 2)),
        (MPICH, ("mpirun", 1, 2, 1, 2)),
        (STEP, ("srun", 2, 3, 0, 1)),
        (BATCH, ("none", 0, 1, 0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, ("env", 1, 2, 1, 2)),
    ],
    ids=["alone", "torchrun", "openmpi", "mpich", "srun", "batch script", "by hand"],
)
def test_each_launcher_tells_the_rank(
    environ: dict[str, str], expected: tuple[object, ...]
) -> None:
    assert place(environ) == expected


def test_srun_tells_nodes_and_an_uneven_first_node() -> None:
    first = detect({**STEP, "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NODEID": "0"})
    assert (first.node_rank, first.nnodes, first.local_world_size) == (0, 2, 2)


@pytest.mark.parametrize(
    ("environ", "launcher"),
    [
        ({**STEP, **TORCHRUN}, "torchrun"),
        ({**STEP, **OPENMPI}, "mpirun"),
        ({**BATCH, **MPICH}, "mpirun"),
        ({**STEP, "RANK": "2", "WORLD_SIZE": "3"}, "srun"),
        ({**STEP, "PMI_RANK": "2", "PMI_SIZE": "3"}, "srun"),
        ({**TORCHRUN, **OPENMPI, "OMPI_COMM_WORLD_SIZE": "2"}, "torchrun"),
    ],
    ids=[
        "torchrun in srun",
        "mpirun whose daemons srun started",
        "mpirun in sbatch",
        "srun with RANK exported from SLURM_PROCID",
        "srun --mpi=pmi2",
        "one torchrun a node, started by mpirun",
    ],
)
def test_the_innermost_launcher_counts(environ: dict[str, str], launcher: str) -> None:
    assert detect(environ).launcher == launcher


@pytest.mark.parametrize(
    "environ",
    [
        {**TORCHRUN, **OPENMPI},
        {**OPENMPI, **MPICH},
        {**OPENMPI, "RANK": "0", "WORLD_SIZE": "8"},
        {**STEP, "RANK": "0", "WORLD_SIZE": "8"},
    ],
)
def test_launchers_that_contradict_each_other_are_refused(environ: dict[str, str]) -> None:
    with pytest.raises(CollbenchError, match="two launchers at once"):
        detect(environ)
    assert rank_of(environ) >= 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"RANK": "x"}, "RANK='x'"),
        ({"RANK": "4"}, "rank 4 of 4"),
        ({"RANK": "-1"}, "rank -1 of 4"),
        ({"WORLD_SIZE": "0"}, "of 0"),
        ({"LOCAL_RANK": "2"}, "local rank 2 of 2"),
    ],
)
def test_an_impossible_place_is_refused_by_name(change: dict[str, str], named: str) -> None:
    with pytest.raises(CollbenchError) as caught:
        detect({**TORCHRUN, **change})
    assert named in str(caught.value)


def test_a_missing_variable_of_a_launcher_is_named() -> None:
    environ = {k: v for k, v in OPENMPI.items() if k != "OMPI_COMM_WORLD_SIZE"}
    with pytest.raises(CollbenchError, match="OMPI_COMM_WORLD_SIZE"):
        detect(environ)


@pytest.mark.parametrize("environ", [TORCHRUN, OPENMPI, MPICH])
def test_nothing_of_a_launcher_reaches_a_trial(environ: dict[str, str]) -> None:
    own = {"OMPI_MCA_coll_tuned_priority": "90", "HYDRA_LAUNCHER": "ssh", "PMIX_MCA_gds": "hash"}
    assert without_launcher({**environ, **own}) == own


def test_a_trial_keeps_the_allocation_of_slurm_but_not_its_step() -> None:
    assert without_launcher(STEP) == {**ALLOCATION, "SLURM_NTASKS": "3", "SLURM_OVERLAP": "1"}
    assert without_launcher(BATCH) == ALLOCATION


def test_only_launchers_that_may_leave_orphans_are_outlived() -> None:
    assert under_launcher(TORCHRUN)
    assert under_launcher(OPENMPI)
    assert under_launcher(MPICH)
    assert not under_launcher(STEP)
    assert not under_launcher({})


@pytest.mark.parametrize(
    ("text", "counts"), [("4", [4]), ("2(x3),1", [2, 2, 2, 1]), ("1(x2),3(x1)", [1, 1, 3])]
)
def test_tasks_per_node_are_unfolded(text: str, counts: list[int]) -> None:
    assert tasks_per_node(text) == counts


@settings(deadline=None)  # a busy machine is slow
@given(st.text(max_size=20))
def test_any_text_for_tasks_per_node_is_read_or_refused(text: str) -> None:
    try:
        counts = tasks_per_node(text)
    except CollbenchError as error:
        assert error.fix  # noqa: PT017 - reading and refusing are both right, a crash is not
        return
    assert all(count >= 0 for count in counts)


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [
        ("n1", "n1"),
        ("n[1-2]", "n1"),
        ("gpu[003-010,012],x1", "gpu003"),
        ("rack[1-2]-n[07,09]", "rack1-n07"),
        ("a1,b[2-3]", "a1"),
    ],
)
def test_the_first_host_of_a_node_list_is_found(nodelist: str, first: str) -> None:
    assert first_host(nodelist) == first


def test_an_mpirun_of_one_host_is_told_nothing_of_slurm() -> None:
    hosts = Hosts(counts={"n1": 2})
    assert hosts.environ({**ALLOCATION, "HOME": "/root"}) == {
        "HOME": "/root",
        "SLURMD_NODENAME": "n2",
    }
    assert "--host" not in hosts.arguments("openmpi", [])


def test_an_mpirun_over_hosts_gets_their_names_and_the_variables_it_would_not_hand_on() -> None:
    hosts = Hosts(counts={"h0": 2, "h1": 1})
    words = hosts.arguments("openmpi", ["UCX_TLS", "OMPI_MCA_btl"])
    assert words[words.index("--host") + 1] == "h0:2,h1:1"
    assert [words[i + 1] for i, word in enumerate(words) if word == "-x"] == [
        "OMP_NUM_THREADS",
        "UCX_TLS",
    ]
    assert hosts.arguments("mpich", ["UCX_TLS"]) == ["-hosts", "h0:2,h1:1"]
    assert hosts.environ(ALLOCATION) == ALLOCATION


def test_given_words_replace_the_binding() -> None:
    hosts = Hosts(counts={"h0": 1}, words=("--bind-to", "none"))
    assert hosts.arguments("openmpi", []) == ["--bind-to", "none"]
