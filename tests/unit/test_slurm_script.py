"""The job script of a request: what it says, and that no word of a user becomes another."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.errors import CollbenchError
from collbench.slurm.request import Request
from collbench.slurm.script import render


def request(**fields: Any) -> Request:
    plain = {"spec": "decode", "out": Path("/shared/results"), "python": "/opt/venv/bin/python"}
    return Request(**{**plain, **fields})


ONE_NODE = """\
#!/bin/bash
#SBATCH --job-name=collbench
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --output=/shared/results/slurm/%j.log
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --gpus-per-node=8

set -u
cd "$SLURM_SUBMIT_DIR"
docs=/shared/results/slurm/${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}
task=$docs/task-${SLURM_ARRAY_TASK_ID:-0}
# one folder a node: a task that is started again goes on there, or begins anew elsewhere
where=/shared/results/${SLURM_JOB_NODELIST//[^A-Za-z0-9]/-}
mkdir -p "$docs" "$where"
rm -f "$task.exit"
printf '%s\\n' "$SLURM_JOB_NODELIST" > "$task.nodes"
resume=()
if compgen -G "$where/*/studies/*.db" > /dev/null; then resume=(--resume); fi
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
/opt/venv/bin/python -m collbench sweep --nproc-per-node 8 \\
  decode \\
  "${resume[@]}" --out "$where" --json-file "$task.json" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM INT
wait "$child"; code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
printf '%s\\n' "$code" > "$task.exit"
exit "$code"
"""


def test_one_node_is_one_front_door() -> None:
    assert render(request(gpus_per_node=8)) == ONE_NODE


def test_several_nodes_meet_at_the_first_one() -> None:
    text = render(request(nodes=2, nproc_per_node=8))
    assert "#SBATCH --ntasks-per-node=1\n" in text
    assert 'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n' in text
    assert (
        "srun --cpu-bind=none --kill-on-bad-exit=1 --ntasks-per-node=1 "
        "/opt/venv/bin/python -m torch.distributed.run \\\n"
        '  --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node=8 \\\n'
        '  --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:$port" \\\n'
        "  -m collbench.sweep \\\n"
    ) in text


def test_srun_alone_starts_a_task_per_rank() -> None:
    text = render(request(nodes=2, nproc_per_node=4, launcher="srun"))
    assert "#SBATCH --ntasks-per-node=4\n" in text
    assert "--ntasks-per-node=4 /opt/venv/bin/python -m collbench.sweep \\\n" in text
    assert "torch" not in text


def test_an_array_shares_a_storage_and_runs_a_few_at_a_time() -> None:
    text = render(request(array=16, at_once=4, storage="postgresql://me@db/studies"))
    assert "#SBATCH --array=0-15%4\n" in text
    assert "#SBATCH --output=/shared/results/slurm/%A.%a.log\n" in text
    assert "--storage postgresql://me@db/studies" in text


def test_a_profile_is_sourced_before_the_sweep() -> None:
    text = render(request(profile=Path("/shared/p/profile.env")))
    assert "set -a; . /shared/p/profile.env; set +a\n/opt/venv/bin/python -m collbench" in text


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"partition": "a;reboot"}, "--partition 'a;reboot'"),
        ({"partition": "-x"}, "--partition '-x'"),
        ({"account": "a b"}, "--account"),
        ({"name": "x\n#SBATCH --uid=0"}, "--name"),
        ({"time": "1h"}, "--time '1h'"),
        ({"nodelist": "n1 n2"}, "--nodelist"),
        ({"constraint": "$(id)"}, "--constraint"),
        ({"out": Path("/a b")}, "--out"),
        ({"out": Path("relative")}, "--out"),
        ({"out": Path("/a%b")}, "--out"),
        ({"options": ("--uid=0;id",)}, "--sbatch"),
        ({"options": ("--output=/x",)}, "output is set by collbench"),
        ({"nodes": 0}, "--nodes 0"),
        ({"array": -1}, "--array -1"),
        ({"nodes": 2}, "how many ranks"),
        ({"spec": "-rf"}, "begins with a dash"),
        ({"spec": "a\nb"}, "control characters"),
        ({"arguments": ("a\x00",)}, "control characters"),
        ({"storage": "postgresql://me:secret@db/x"}, "password"),
    ],
)
def test_what_could_become_another_word_is_refused_by_name(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(CollbenchError) as caught:
        request(**fields)
    assert named in caught.value.what
    assert "secret" not in str(caught.value)


PRINTABLE = st.text(st.characters(min_codepoint=32, exclude_characters="\x7f"), max_size=30)


@settings(deadline=None)  # a busy machine is slow
@given(spec=PRINTABLE.filter(lambda text: text and text[0] != "-"), word=PRINTABLE)
def test_any_spec_and_argument_arrive_as_one_word(spec: str, word: str) -> None:
    try:
        text = render(request(spec=spec, arguments=(word,)))
    except CollbenchError:
        return
    start = text.index("-m collbench sweep")
    line = text[start : text.index('"${resume', start)].replace("\\\n", " ")
    assert shlex.split(line)[3:] == [spec, word]


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "slurm").glob("*.sbatch")), ids=lambda p: p.name
)
def test_the_shipped_scripts_and_the_rendered_one_are_valid_bash(path: Path) -> None:
    for text in (path.read_text(), render(request(nodes=2, nproc_per_node=2, array=2))):
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")
