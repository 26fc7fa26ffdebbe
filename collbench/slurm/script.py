"""Render a job script: a pure function of the request, so that what is shown is what runs."""

from __future__ import annotations

import shlex

from collbench.slurm.request import Request

_WARN_S = 120
"""Slurm warns this long before the time limit: the sweep ends in order and can be resumed."""

_BODY = r"""
set -u
cd "$SLURM_SUBMIT_DIR"
docs={folder}/${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}
task=$docs/task-${{SLURM_ARRAY_TASK_ID:-0}}
# one folder a node: a task that is started again goes on there, or begins anew elsewhere
where={out}/${{SLURM_JOB_NODELIST//[^A-Za-z0-9]/-}}
mkdir -p "$docs" "$where"
rm -f "$task.exit"
printf '%s\n' "$SLURM_JOB_NODELIST" > "$task.nodes"
resume=()
if compgen -G "$where/*/studies/*.db" > /dev/null; then resume=(--resume); fi
export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-1}}"
{profile}{meeting}{command} &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM INT
wait "$child"; code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
printf '%s\n' "$code" > "$task.exit"
exit "$code"
"""
_MEETING = """head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000))
"""


def render(request: Request) -> str:
    """Return the job script of a request."""
    body = _BODY.format(
        folder=shlex.quote(str(request.folder)),
        out=shlex.quote(str(request.out)),
        profile=_profile(request),
        meeting=_MEETING if request.nodes > 1 and request.launcher == "torchrun" else "",
        command=" \\\n  ".join([*_start(request), *_sweep(request)]),
    )
    return "#!/bin/bash\n" + "".join(f"#SBATCH {word}\n" for word in _directives(request)) + body


def _directives(request: Request) -> list[str]:
    tasks = request.ranks_per_node if request.nodes > 1 and request.launcher == "srun" else 1
    log = "%A.%a.log" if request.array > 1 else "%j.log"
    words = [
        f"--job-name={request.name}",
        f"--nodes={request.nodes}",
        f"--ntasks-per-node={tasks}",
        f"--output={request.folder}/{log}",
        "--open-mode=append",
        f"--signal=B:TERM@{_WARN_S}",
    ]
    if request.array > 1:
        limit = f"%{request.at_once}" if request.at_once else ""
        words.append(f"--array=0-{request.array - 1}{limit}")
    if request.exclusive:
        words += ["--exclusive", "--mem=0"]
    for option, value in (
        ("gpus-per-node", request.gpus_per_node),
        ("partition", request.partition),
        ("account", request.account),
        ("qos", request.qos),
        ("time", request.time),
        ("constraint", request.constraint),
        ("nodelist", request.nodelist),
        ("exclude", request.exclude),
    ):
        if value is not None:
            words.append(f"--{option}={value}")
    return [*words, *request.options]


def _profile(request: Request) -> str:
    if request.profile is None:
        return ""
    return f"set -a; . {shlex.quote(str(request.profile))}; set +a\n"


def _start(request: Request) -> list[str]:
    """Return the words before the sweep's own arguments."""
    python = shlex.quote(request.python)
    if request.nodes == 1:
        count = request.ranks_per_node
        return [
            f"{python} -m collbench sweep"
            + (f" --nproc-per-node {count}" if count is not None else "")
        ]
    ranks = request.ranks_per_node
    srun = "srun --cpu-bind=none --kill-on-bad-exit=1 --ntasks-per-node="
    if request.launcher == "srun":
        return [f"{srun}{ranks} {python} -m collbench.sweep"]
    return [
        f"{srun}1 {python} -m torch.distributed.run",
        f'--nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node={ranks}',
        '--rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:$port"',
        "-m collbench.sweep",
    ]


def _sweep(request: Request) -> list[str]:
    words = [shlex.quote(request.spec), *(shlex.quote(word) for word in request.arguments)]
    if request.storage is not None:
        words.append(f"--storage {shlex.quote(request.storage)}")
    return [" ".join(words), '"${resume[@]}" --out "$where" --json-file "$task.json"']
