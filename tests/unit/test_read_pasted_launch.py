"""Environment files and launch snippets: values that NCCL misreads, and other ways to get lost."""

import pytest

from tests.unit.reading import codes, inspect

PROFILE = {"NCCL_PROTO": "LL", "NCCL_P2P_LEVEL": "SYS"}
ENV = "==> profile.env <==\nNCCL_PROTO=LL\nNCCL_P2P_LEVEL=SYS\n\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("NCCL_PROTO=^LL\n", ["nccl.ll128_forced"]),
        ("NCCL_PROTO=LL,LL128,Simple\n", ["nccl.ll128_forced"]),
        ("NCCL_PROTO=^LL128\n", []),
        ("NCCL_BUFFSIZE=4M\n", ["nccl.invalid_value"]),
        ("NCCL_BUFFSIZE=4194304\n", []),
        ("NCCL_MIN_NCHANNELS=010\n", ["nccl.invalid_value"]),
        ("NCCL_MIN_NCHANNELS=0x10\n", []),
        ("NCCL_MIN_NCHANNELS=8\nNCCL_MAX_NCHANNELS=4\n", ["nccl.min_over_max"]),
        ("NCCL_MIN_NCHANNELS=4\nNCCL_MAX_NCHANNELS=4\n", []),
        ("NCCL_ALGO=Tree\n", ["nccl.algo_unavailable"]),
        ("NCCL_ALGO=allreduce:tree\n", []),
        ("NCCL_ALGO=Tree,Ring\n", []),
        ("NCCL_SOCKET_IFNAME=eth0\nNCCL_SOMETHING_ELSE=1\n", []),
        ("NCCL_PROTO=LL,\n", []),
        ("NCCL_P2P_LEVEL=4\n", []),
        ("NCCL_P2P_LEVEL=phb\n", ["nccl.invalid_value"]),
    ],
)
def test_settings_of_an_env_file_and_of_a_launch_are_judged_alike(
    text: str, wanted: list[str]
) -> None:
    assert codes(inspect(text)) == wanted
    options = " ".join(f"-e {line}" for line in text.split())
    assert codes(inspect(f"docker run {options} example/engine:1\n")) == wanted
    assert codes(inspect(text.replace("\n", "\0").encode() + b"PATH=/bin\0")) == wanted


@pytest.mark.parametrize(
    ("version", "wanted"), [("2.23.4", []), ("2.24.3", ["nccl.algo_unavailable"])]
)
def test_an_algorithm_alone_is_judged_by_the_version_that_reads_it(
    version: str, wanted: list[str]
) -> None:
    assert codes(inspect("NCCL_ALGO=Tree\n", nccl_version=version)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "NCCL_THREAD_THRESHOLDS=8 8 64 8 8 64\n",  # a shell runs a command called 8
        "NCCL_DEBUG_FILE=/tmp/a\\b\n",  # sh and systemd drop the backslash
        "NCCL_DEBUG_FILE=~/nccl.log\n",  # only shells know what ~ is
        "; site\nNCCL_PROTO=LL\n",  # docker and compose refuse the file
    ],
)
def test_a_line_that_readers_take_differently_without_a_fault_of_its_own(text: str) -> None:
    assert codes(inspect(text)) == ["env.not_portable"]


def test_every_env_file_of_a_paste_is_judged() -> None:
    found = inspect('==> a.env <==\nNCCL_PROTO=LL\n\n==> b.env <==\nNCCL_PROTO="LL"\n')
    assert [(f.code, f.line, f.source) for f in found.findings] == [("env.quotes_kept", 5, "b.env")]


@pytest.mark.parametrize("option", ["--env-file profile.env", "--env-file=profile.env"])
def test_compose_fills_in_the_yaml_from_the_file_it_is_told(option: str) -> None:
    text = (
        f"{ENV}==> up.sh <==\n#!/bin/sh\ndocker compose {option} up -d\n\n"
        "==> compose.yaml <==\nservices:\n  engine:\n    image: x/engine\n    environment:\n"
        "      NCCL_PROTO: ${NCCL_PROTO}\n      NCCL_P2P_LEVEL: ${NCCL_P2P_LEVEL:-PIX}\n"
    )
    found = inspect(text, profile=PROFILE)
    assert found.facts["profile_reaches_worker"] is True
    assert codes(found) == []


COMPOSE = (
    "\n==> compose.yaml <==\nservices:\n  engine:\n    image: x/engine\n    environment:\n"
    "      - NCCL_PROTO\n      - NCCL_P2P_LEVEL\n"
)


def test_a_listed_variable_that_sudo_drops_is_not_called_unlisted() -> None:
    text = (
        "==> up.sh <==\n#!/bin/sh\nexport NCCL_PROTO=LL NCCL_P2P_LEVEL=SYS\nsudo docker compose up"
    )
    found = codes(inspect(text + "\n" + COMPOSE, profile=PROFILE))
    assert found == ["env.lost_in_launcher", "env.profile_absent"]


def test_compose_restart_keeps_the_old_environment_and_up_does_not() -> None:
    service = "\n==> compose.yaml <==\nservices:\n  engine:\n    env_file: profile.env\n"
    again = inspect(f"{ENV}==> a.sh <==\ndocker compose restart\n{service}", profile=PROFILE)
    assert codes(again)[0] == "env.lost_in_launcher"
    assert again.facts["lost_at"] == "a.sh: docker compose restart"
    assert codes(inspect(f"{ENV}==> a.sh <==\ndocker compose up\n{service}", profile=PROFILE)) == []


@pytest.mark.parametrize(
    "start", ["/usr/bin/docker run example/engine:1", "/usr/bin/env -i /opt/e"]
)
def test_a_unit_that_sets_the_profile_itself_needs_no_file(start: str) -> None:
    text = f"[Service]\nEnvironment=NCCL_PROTO=LL NCCL_P2P_LEVEL=SYS\nExecStart={start}\n"
    assert codes(inspect(text, profile=PROFILE)) == ["env.profile_absent"]


@pytest.mark.parametrize(
    ("text", "reaches"),
    [
        ("NCCL_PROTO=LL NCCL_P2P_LEVEL=SYS docker run --rm example/engine:1\n", False),
        ("NCCL_PROTO=LL NCCL_P2P_LEVEL=SYS vllm serve example/m\n", True),
        ("export NCCL_PROTO=LL\nexport NCCL_P2P_LEVEL=SYS\npython -m sglang.launch_server\n", True),
        ("$ export NCCL_PROTO=LL\n$ docker run \\\n  -e NCCL_PROTO \\\n"
         "  -e NCCL_P2P_LEVEL=SYS example/engine:1\n4f1c09\n$ \n", True),
    ],
)  # fmt: skip
def test_a_few_lines_of_a_shell_are_a_launch(text: str, reaches: bool) -> None:
    found = inspect(text, profile=PROFILE)
    assert found.kind == "launch"
    assert found.facts["profile_reaches_worker"] is reaches


@pytest.mark.parametrize("line", ["export NCCL_PROTO=LL", "NCCL_PROTO=LL # fast", "NCCL_PROTO=LL "])
def test_the_line_on_which_a_profile_gets_lost_is_named(line: str) -> None:
    text = f"==> p.env <==\n# x\n{line}\n\n==> run.sh <==\ndocker run --env-file p.env x/engine\n"
    found = inspect(text, profile={"NCCL_PROTO": "LL"})
    assert [f.line for f in found.findings if f.code == "env.not_portable"] == [3]


PROLOGUE = "#!/bin/bash\nexport NCCL_PROTO=LL NCCL_P2P_LEVEL=SYS\n"
JOB = "#!/bin/bash\n#SBATCH --job-name=engine\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"{JOB}srun env NCCL_PROTO=LL NCCL_P2P_LEVEL=SYS python -m x\n", []),
        (f"{PROLOGUE}sbatch --wrap 'srun python -m x'\n", []),
        (f"{PROLOGUE}sbatch --export=NONE --wrap 'srun python -m x'\n",
         ["env.lost_in_launcher", "env.profile_absent"]),
        (f"{JOB}#SBATCH --nodes=2\n{PROLOGUE}mpirun --hostfile h -x NCCL_PROTO python -m x\n",
         ["env.lost_in_launcher", "env.value_absent"]),
        (f"{PROLOGUE}docker exec -e NCCL_PROTO -e NCCL_P2P_LEVEL=SYS engine python -m x\n", []),
        (f"{PROLOGUE}docker exec engine python -m x\n", ["env.unknown"]),
    ],
)  # fmt: skip
def test_commands_that_start_another_one(text: str, wanted: list[str]) -> None:
    assert codes(inspect(text, profile=PROFILE)) == wanted
