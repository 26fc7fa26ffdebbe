"""Launch snippets: where variables get through and where they get lost."""
# ruff: noqa: E501  (snippets stay as people write them)

from typing import Any

import pytest

from collbench.diagnose.inspection import Inspection
from tests.unit.reading import codes, inspect

WANT = {"NCCL_PROTO": "LL", "NCCL_P2P_LEVEL": "SYS"}
ENV = "NCCL_PROTO=LL\nNCCL_P2P_LEVEL=SYS\n"


def launch(profile: dict[str, str] | None = None, /, **files: str) -> Inspection:
    """Names: dots are written as two underscores, slashes as three."""
    text = ""
    for name, body in files.items():
        shown = name.replace("___", "/").replace("__", ".").replace("DASH", "-")
        text += f"==> {shown} <==\n{body}\n"
    return inspect(text, profile=WANT if profile is None else profile)


def reaches(found: Inspection) -> Any:
    return found.facts["profile_reaches_worker"]


# docker


def test_docker_run_with_variables_and_short_options_in_clusters() -> None:
    run = "docker run -itd --gpus all -eNCCL_PROTO=LL -e NCCL_P2P_LEVEL=SYS --name=srv img serve --tp 4\n"
    found = launch(run__sh=run)
    assert found.facts["launcher"] == "docker_run"
    assert found.facts["service"] == "srv"
    assert found.facts["env_in_service"] == WANT
    assert reaches(found)
    assert codes(found) == []


def test_docker_run_keeps_the_quotes_of_an_env_file() -> None:
    found = launch(
        profile__env='NCCL_PROTO="LL"\nNCCL_P2P_LEVEL=SYS\n',
        run__sh="docker run --env-file=profile.env img\n",
    )
    assert found.facts["quoted"] == ["NCCL_PROTO"]
    assert found.facts["differs"] == ["NCCL_PROTO"]
    assert codes(found)[0] == "env.quotes_kept"


def test_docker_variable_by_name_comes_from_the_shell_that_exports_it() -> None:
    run = "set -a; . ./profile.env; set +a\ndocker run -e NCCL_PROTO -e NCCL_P2P_LEVEL img\n"
    assert reaches(launch(profile__env=ENV, run__sh=run))
    unexported = (
        "NCCL_PROTO=LL\nNCCL_P2P_LEVEL=SYS\ndocker run -e NCCL_PROTO -e NCCL_P2P_LEVEL img\n"
    )
    found = launch(run__sh=unexported)
    assert found.facts["missing"] == sorted(WANT)
    assert codes(found) == ["env.profile_absent"]


def test_sudo_drops_what_docker_is_to_pass_on_by_name() -> None:
    run = "export NCCL_PROTO=LL NCCL_P2P_LEVEL=SYS\nsudo docker run -e NCCL_PROTO -e NCCL_P2P_LEVEL img\n"
    found = launch(run__sh=run)
    assert found.facts["lost_at"] == "run.sh: sudo"
    assert codes(found)[0] == "env.lost_in_launcher"
    assert reaches(launch(run__sh=run.replace("sudo", "sudo -E")))


def test_a_later_option_wins_over_the_env_file_and_image() -> None:
    found = launch(
        profile__env="NCCL_PROTO=Simple\nNCCL_P2P_LEVEL=SYS\n",
        run__sh="docker run --env-file profile.env -e NCCL_PROTO=LL img\n",
        Dockerfile="FROM base\nENV NCCL_PROTO=LL128 NCCL_P2P_LEVEL=PIX\n",
    )
    assert reaches(found)
    assert codes(found) == []


def test_entrypoint_that_only_fills_in_defaults_is_harmless() -> None:
    found = launch(
        run__sh="docker run --env-file profile.env img\n",
        profile__env=ENV,
        Dockerfile='FROM base\nENTRYPOINT ["/opt/entry.sh"]\n',
        entry__sh='#!/bin/sh\nexport NCCL_PROTO="${NCCL_PROTO:-Simple}"\n[ -z "$NCCL_P2P_LEVEL" ] && export NCCL_P2P_LEVEL=PIX\nexec serve "$@"\n',
    )
    assert reaches(found)


def test_image_env_of_the_profile_is_an_image_conflict() -> None:
    found = launch(
        run__sh="docker run -e NCCL_P2P_LEVEL=SYS img\n",
        Dockerfile="FROM base\nENV NCCL_PROTO Simple\n",
    )
    assert found.facts["differs"] == ["NCCL_PROTO"]
    assert codes(found)[0] == "env.image_conflict"


def test_docker_restart_keeps_the_old_environment() -> None:
    found = launch(run__sh="set -a; . ./profile.env\ndocker restart engine\n", profile__env=ENV)
    assert found.facts["lost_at"] == "run.sh: docker restart"
    assert "env.lost_in_launcher" in codes(found)


def test_docker_inspect() -> None:
    text = '[{"Name": "/engine", "Config": {"Env": ["NCCL_PROTO=Simple", "PATH=/bin"]}}]'
    found = inspect(text, profile=WANT)
    assert (found.kind, found.facts["launcher"], found.facts["service"]) == (
        "launch",
        "docker_inspect",
        "engine",
    )
    assert found.facts["missing"] == ["NCCL_P2P_LEVEL"]
    assert found.facts["differs"] == ["NCCL_PROTO"]
    assert codes(found) == ["env.value_differs", "env.value_absent"]


# compose


COMPOSE = "services:\n  engine:\n    image: example/engine:1\n"


@pytest.mark.parametrize(
    "body",
    [
        "    env_file: profile.env\n",
        "    env_file:\n      - path: ./profile.env\n        required: true\n",
        "    environment:\n      NCCL_PROTO: LL\n      NCCL_P2P_LEVEL: ${LEVEL:-SYS}\n",
        '    environment: ["NCCL_PROTO=LL", "NCCL_P2P_LEVEL=SYS"]\n',
        "    env_file: [profile.env]\n    environment:\n      - NCCL_PROTO=LL\n",
    ],
)
def test_compose_service_that_passes_the_profile_on(body: str) -> None:
    found = launch(compose__yaml=COMPOSE + body, profile__env=ENV)
    assert found.facts["env_in_service"] == WANT
    assert codes(found) == []


def test_compose_by_name_from_dotenv_or_shell() -> None:
    listed = COMPOSE + "    environment:\n      - NCCL_PROTO\n      - NCCL_P2P_LEVEL\n"
    assert reaches(launch(__env=ENV, compose__yaml=listed))
    run = "export NCCL_PROTO=LL\nexport NCCL_P2P_LEVEL=SYS\ndocker compose up -d\n"
    assert reaches(launch(up__sh=run, compose__yaml=listed))
    assert (
        codes(launch(up__sh="docker compose up -d\n", compose__yaml=listed))[0]
        == "env.not_listed_in_compose"
    )


def test_compose_anchors_and_extends() -> None:
    anchored = (
        "x-env: &env\n  NCCL_PROTO: LL\n  NCCL_P2P_LEVEL: SYS\n"
        "services:\n  engine:\n    image: e\n    environment:\n      <<: *env\n      A: 1\n"
    )
    assert launch(compose__yaml=anchored).facts["env_in_service"] == {**WANT, "A": "1"}
    extended = (
        "services:\n  base:\n    image: e\n    environment: {NCCL_PROTO: LL, NCCL_P2P_LEVEL: PIX}\n"
        "  engine:\n    extends: base\n    command: vllm serve --tp 4\n    environment: {NCCL_P2P_LEVEL: SYS}\n"
    )
    found = launch(compose__yaml=extended)
    assert found.facts["service"] == "engine"
    assert reaches(found)


def test_compose_chooses_the_service_with_the_gpus() -> None:
    text = (
        "services:\n  redis:\n    image: redis\n  llm:\n    image: x\n    environment: {NCCL_PROTO: LL, NCCL_P2P_LEVEL: SYS}\n"
        "    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all}]}}}\n"
    )
    assert launch(compose__yaml=text).facts["service"] == "llm"


def test_compose_override_file_adds_to_the_service() -> None:
    over = "services:\n  engine:\n    environment: [NCCL_P2P_LEVEL=SYS]\n"
    base = COMPOSE + "    environment: {NCCL_PROTO: LL, NCCL_P2P_LEVEL: PIX}\n"
    found = launch(**{"compose__override__yaml": over, "compose__yaml": base})
    assert found.facts["env_in_service"] == WANT


def test_compose_raw_format_keeps_quotes() -> None:
    body = "    env_file:\n      - path: profile.env\n        format: raw\n"
    found = launch(
        compose__yaml=COMPOSE + body, profile__env="NCCL_PROTO='LL'\nNCCL_P2P_LEVEL=SYS\n"
    )
    assert codes(found)[0] == "env.quotes_kept"


def test_an_env_file_that_is_not_shown_is_unknown_not_missing() -> None:
    found = launch(compose__yaml=COMPOSE + "    env_file: other.env\n")
    assert "missing" not in found.facts
    assert codes(found) == ["env.unknown"]
    assert not reaches(found)


# systemd


UNIT = "[Unit]\nDescription=x\n[Service]\n{}ExecStart=/usr/bin/python3 -m sglang.launch_server --tp 4\n"


def test_unit_with_its_file_and_a_drop_in_that_resets_it() -> None:
    unit = UNIT.format("EnvironmentFile=-/etc/collbench/a.env\n")
    name = "___etc___systemd___system___engine__service"
    drop = "___etc___systemd___system___engine__service__d___override__conf"
    good = launch(**{name: unit, "___etc___collbench___a__env": ENV})
    assert good.facts["environment_files"] == ["/etc/collbench/a.env"]
    assert good.facts["service"] == "engine.service"
    assert reaches(good)
    reset = launch(
        **{name: unit, drop: "[Service]\nEnvironmentFile=\n", "___etc___collbench___a__env": ENV}
    )
    assert reset.facts["environment_files"] == []
    assert codes(reset) == ["env.unit_without_file", "env.profile_absent"]


def test_systemctl_cat_output_and_quoted_environment() -> None:
    text = (
        "# /etc/systemd/system/engine.service\n"
        + UNIT.format("")
        + "\n# /etc/systemd/system/engine.service.d/10-nccl.conf\n[Service]\n"
        + "Environment=\"NCCL_PROTO=LL\" \\\n  'NCCL_P2P_LEVEL=SYS'\n"
    )
    found = inspect(text, profile=WANT)
    assert found.facts["service"] == "engine.service"
    assert found.facts["env_in_service"] == WANT
    assert codes(found) == []


def test_environment_file_beats_environment_and_the_later_file_wins() -> None:
    unit = UNIT.format(
        "Environment=NCCL_PROTO=Simple\nEnvironmentFile=/a.env\nEnvironmentFile=/b.env\n"
    )
    found = launch(u__service=unit, ___a__env="NCCL_PROTO=LL128\n", ___b__env=ENV)
    assert found.facts["env_in_service"] == WANT


def test_unit_that_starts_a_container_passes_only_what_docker_is_told() -> None:
    unit = (
        "[Service]\nEnvironmentFile=/p.env\nExecStart=/usr/bin/docker run --rm -e NCCL_PROTO img\n"
    )
    found = launch(u__service=unit, ___p__env=ENV)
    assert found.facts["env_in_service"] == {"NCCL_PROTO": "LL"}
    assert found.facts["missing"] == ["NCCL_P2P_LEVEL"]


def test_unset_environment_takes_it_away_again() -> None:
    unit = UNIT.format("EnvironmentFile=/p.env\nUnsetEnvironment=NCCL_PROTO\n")
    assert launch(u__service=unit, ___p__env=ENV).facts["missing"] == ["NCCL_PROTO"]


# Slurm


JOB = "#!/bin/bash\n#SBATCH --job-name=engine\n{}\n{}srun python -m sglang.launch_server --tp 8\n"
SUBMIT = "set -a\n. ./p.env\nset +a\nsbatch {}job.sbatch\n"


@pytest.mark.parametrize(
    ("directive", "inside", "options", "lost"),
    [
        ("", "", "", None),
        ("#SBATCH --export=ALL", "", "", None),
        ("#SBATCH --export=NCCL_PROTO,NCCL_P2P_LEVEL", "", "", None),
        ("#SBATCH --export=NONE", "", "", "job.sbatch: --export=NONE"),
        ("", "", "--export=NONE ", "submit.sh: --export=NONE"),
        ("#SBATCH --export=NONE", "", "--export=ALL ", None),
        ("#SBATCH --export=NCCL_PROTO", "", "", "job.sbatch: --export=NCCL_PROTO"),
    ],
)
def test_what_sbatch_takes_along(
    directive: str, inside: str, options: str, lost: str | None
) -> None:
    found = launch(
        submit__sh=SUBMIT.format(options), p__env=ENV, job__sbatch=JOB.format(directive, inside)
    )
    assert found.facts["launcher"] == "slurm"
    assert found.facts["service"] == "engine"
    assert found.facts.get("lost_at") == lost
    assert reaches(found) == (lost is None)
    assert ("env.lost_in_launcher" in codes(found)) == (lost is not None)


def test_a_job_that_sources_the_profile_itself() -> None:
    inside = "set -a; . /etc/p.env; set +a\n"
    found = launch(job__sbatch=JOB.format("", inside), ___etc___p__env=ENV)
    assert reaches(found)
    assert codes(found) == []


def test_srun_inherits_export_none_from_sbatch() -> None:
    inside = "set -a; . ./p.env; set +a\n"
    lost = launch(job__sbatch=JOB.format("#SBATCH --export=NONE", inside), p__env=ENV)
    assert codes(lost)[0] == "env.lost_in_launcher"
    kept = JOB.format("#SBATCH --export=NONE", inside).replace("srun ", "srun --export=ALL ")
    assert reaches(launch(job__sbatch=kept, p__env=ENV))


# Kubernetes


POD = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: engine
spec:
  template:
    spec:
      containers:
        - name: sidecar
          image: y
        - name: server
          image: x
          resources: {limits: {nvidia.com/gpu: 8}}
%s
"""
MAP = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: nccl}\ndata:\n  NCCL_PROTO: LL\n  NCCL_P2P_LEVEL: %s\n"


def test_k8s_env_from_a_map_and_single_entries() -> None:
    body = "          envFrom:\n            - configMapRef: {name: nccl}\n          env:\n            - {name: NCCL_P2P_LEVEL, value: SYS}\n"
    found = inspect(POD % body + MAP % "PIX", profile=WANT)
    assert (found.facts["launcher"], found.facts["service"]) == ("k8s", "engine")
    assert found.facts["env_in_service"] == WANT
    assert codes(found) == []
    by_key = "          env:\n            - name: NCCL_PROTO\n              valueFrom: {configMapKeyRef: {name: nccl, key: NCCL_PROTO}}\n"
    assert inspect(POD % by_key + MAP % "SYS", profile=WANT).facts["missing"] == ["NCCL_P2P_LEVEL"]


def test_k8s_without_env_and_with_a_map_that_is_not_shown() -> None:
    assert codes(inspect(POD % "", profile=WANT)) == ["env.profile_absent"]
    body = "          envFrom:\n            - configMapRef: {name: elsewhere}\n"
    assert codes(inspect(POD % body, profile=WANT)) == ["env.unknown"]


def test_k8s_map_made_from_an_env_file_keeps_quotes() -> None:
    body = "          envFrom: [{configMapRef: {name: nccl}}]\n"
    found = launch(
        deploy__yaml=POD % body,
        make__sh="kubectl create configmap nccl --from-env-file=p.env\n",
        p__env='NCCL_PROTO="LL"\nNCCL_P2P_LEVEL=SYS\n',
    )
    assert codes(found)[0] == "env.quotes_kept"


# others


def test_conf_inside_the_image_that_adds_nothing_is_silent() -> None:
    found = launch(
        profile__env=ENV,
        run__sh="docker run --env-file profile.env img\n",
        ___etc___nccl__conf="NCCL_PROTO=Simple\n",
    )
    assert "nccl_conf_adds" not in found.facts
    assert codes(found) == []


def test_a_sourced_list_is_cut_at_its_semicolon() -> None:
    want = {"NCCL_ALGO": "allreduce:ring;allgather:ring"}
    found = launch(
        want,
        p__env="NCCL_ALGO=allreduce:ring;allgather:ring\n",
        run__sh="set -a; . ./p.env; set +a\ndocker run -e NCCL_ALGO img\n",
    )
    assert codes(found)[0] == "env.sourced_semicolon"


def test_server_option_that_replaces_a_value() -> None:
    want = {"NCCL_ALGO": "Ring"}
    run = "docker run -e NCCL_ALGO=Ring img python -m sglang.launch_server --tp 4 --enable-deterministic-inference\n"
    assert "env.overridden_by_server" in codes(launch(want, run__sh=run))


def test_mpi_passes_only_named_variables_to_other_hosts() -> None:
    body = "export NCCL_PROTO=LL NCCL_P2P_LEVEL=SYS\nmpirun -np 8 -H a,b {}trtllm-serve\n"
    found = launch(run__sh="#!/bin/sh\n" + body.format(""))
    assert codes(found)[0] == "env.lost_in_launcher"
    assert reaches(launch(run__sh="#!/bin/sh\n" + body.format("-x NCCL_PROTO -x NCCL_P2P_LEVEL ")))


def test_without_a_profile_nothing_is_missing() -> None:
    assert codes(inspect("==> compose.yaml <==\n" + COMPOSE)) == []


@pytest.mark.parametrize(
    "text",
    [
        "services:\n  a: &a\n    b: *a\n",
        "services:\n"
        + "".join(
            f"  l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9) if i else 'x'}]\n" for i in range(12)
        ),
        "services: [\n",
        "services:\n  a: {image: x, environment: 3}\n",
        "services: 7\n",
        "apiVersion: v1\nkind: Pod\nspec: {containers: [3, {env: 5}]}\n",
    ],
)
def test_odd_yaml_is_read_or_refused_but_never_endless(text: str) -> None:
    inspect(text, profile=WANT)


def test_a_script_that_greps_for_nccl_is_no_log() -> None:
    run = '#!/bin/sh\ndocker run -d --name e -e NCCL_PROTO=LL -e NCCL_P2P_LEVEL=SYS img\ndocker logs e | grep "NCCL INFO"\n'
    found = launch(run__sh=run)
    assert found.kind == "launch"
    assert reaches(found)


def test_a_log_beside_the_script_that_made_it_is_read_as_a_log() -> None:
    text = "node-a:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\n"
    assert launch(run__sh="docker run img\n", server__log=text).kind == "nccl_log"


def test_an_env_file_with_a_line_that_is_none_is_still_one() -> None:
    assert inspect("NCCL_PROTO=LL\nNCCL_P2P_LEVEL=SYS\n[profile]\n").kind == "env_file"
