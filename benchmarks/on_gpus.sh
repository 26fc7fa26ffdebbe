#!/usr/bin/env bash
# Measure again what results/ says of GPUs, on two GPUs of this machine:
#
#     NCCL_P2P_DISABLE=1 benchmarks/on_gpus.sh OUT [PART...]
#
# Parts, with their usual time: tests 2 min, live 1 min, story 2 min, parity 1 min, cost 2 min,
# loop 1 min, sweep 4 min. All of them by default. What is pinned in the environment stays pinned.
# Every part has a deadline; one that fails does not stop the others, and the exit code says
# whether any did.
set -u
out=${1:?usage: benchmarks/on_gpus.sh OUT [PART...]}
shift
parts=${*:-tests live story parity cost loop sweep}
python=${PYTHON:-python3}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.." || exit
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" PYTHONUNBUFFERED=1 COLLBENCH_EXPECT_GPUS=2
failed=()

part() {  # NAME DEADLINE_S COMMAND...
  local name=$1 deadline=$2 code
  shift 2
  echo "== $name: $*"
  SECONDS=0
  timeout -s INT -k 30 "$deadline" "$@" > "$out/$name.log" 2>&1
  code=$?
  tail -n 15 "$out/$name.log"
  echo "== $name: exit $code after $SECONDS s"
  [ "$code" = 0 ] || failed+=("$name")
}

torchrun() {  # NAME DEADLINE_S MODULE ARGUMENTS...
  local name=$1 deadline=$2
  shift 2
  part "$name" "$deadline" "$python" -m torch.distributed.run --standalone --nproc-per-node 2 -m "$@"
}

for asked in $parts; do
  case $asked in
    tests) part tests 300 "$python" -m pytest -q -m gpu -p no:cacheprovider tests/gpu ;;
    live) part live 150 "$python" -m benchmarks.live_server --out "$out/live_server.json" ;;
    story) part story 240 "$python" -m benchmarks.story --backend nccl --attempts 1 --out "$out/story.json" ;;
    parity) torchrun parity 150 benchmarks.parity "$out/parity.json" --launches 10 ;;
    cost) torchrun cost 120 benchmarks.trial_cost nccl "$out/trial_cost.json" --launches 50 ;;
    loop) torchrun loop 90 benchmarks.plain_loop nccl "$out/plain_loop.json" ;;
    sweep)
      part sweep 330 "$python" -m collbench sweep decode --nproc-per-node 2 \
        --out "$out/results" --json-file "$out/sweep.json"
      ;;
    *) echo "no part '$asked'; there are: tests live story parity cost loop sweep" >&2; exit 2 ;;
  esac
done
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
