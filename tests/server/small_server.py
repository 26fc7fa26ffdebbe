"""A small server in the shape of the real ones: a launcher, spawned ranks with titles, decode.

    python small_server.py --ranks 2 [--backend nccl|gloo] [--overwrite NAME=VALUE --in-rank 1]

Every rank runs decode steps: on GPUs a captured CUDA graph of matrix products and all-reduces in
bfloat16, replayed on a side stream; on CPUs an all-reduce over Gloo. Prints a line when it loads,
when it is ready and what it gets through, and ends with its stdin.
"""

import argparse
import ctypes
import multiprocessing
import os
import socket
import sys
import tempfile
import threading
import time
from typing import Any

PINS = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
"""Must have survived every launcher: multicast stays off on the machines these tests run on."""
CALLS = 16
MESSAGE_BYTES = 57344


def assert_pins() -> None:
    lost = {
        name: os.environ.get(name) for name, value in PINS.items() if os.environ.get(name) != value
    }
    if lost:
        raise SystemExit(f"pins lost on the way, CUDA is not started: {lost}")


def set_title(title: str) -> None:
    try:
        import setproctitle
    except ImportError:
        return
    setproctitle.setproctitle(title)


ALL = -1


def serve(rank: int, options: argparse.Namespace, rendezvous: str, ready: Any, stop: Any) -> None:
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: never outlive the launcher
    set_title(f"{options.prefix}::Worker_TP{rank}")
    if options.overwrite and options.in_rank in (rank, ALL):
        name, _, value = options.overwrite.partition("=")
        os.environ[name] = value
    if options.backend == "nccl":
        assert_pins()
    import torch
    import torch.distributed as dist

    if options.backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        options.backend, init_method=f"file://{rendezvous}", rank=rank, world_size=options.ranks
    )
    step = captured_step(torch, dist) if options.backend == "nccl" else plain_step(torch, dist)
    step()
    ready.put((rank, os.getpid()))
    steps, began = 0, time.monotonic()
    while True:
        # All ranks leave after the same step: the flag travels with the data.
        leaving = torch.tensor(
            [int(stop.is_set())], device="cuda" if options.backend == "nccl" else "cpu"
        )
        dist.all_reduce(leaving)
        if int(leaving.item()):
            break
        step()
        steps += 1
        if rank == 0 and steps % 100 == 0:
            rate = steps / (time.monotonic() - began)
            print(f"Decode batch. gen throughput (token/s): {rate:.1f}", flush=True)
        time.sleep(0.02)
    sys.stdout.flush()
    os._exit(0)  # captured graphs must not outlive the communicator


def captured_step(torch: Any, dist: Any) -> Any:
    """One decode step as a CUDA graph, replayed on a side stream."""
    message = torch.ones(MESSAGE_BYTES // 2, dtype=torch.bfloat16, device="cuda")
    left = torch.randn(4, 1024, dtype=torch.bfloat16, device="cuda")
    right = torch.randn(1024, 1024, dtype=torch.bfloat16, device="cuda") / 32
    dist.all_reduce(message)
    left.copy_(left @ right)  # wakes the libraries: none may wake inside the capture
    torch.cuda.synchronize()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(CALLS):
            left.copy_(left @ right)
            message.fill_(1)
            dist.all_reduce(message)

    def step() -> None:
        with torch.cuda.stream(stream):
            graph.replay()
        stream.synchronize()
        if float(message[0]) != dist.get_world_size():
            raise SystemExit("an all-reduce in the graph gave wrong data")

    return step


def plain_step(torch: Any, dist: Any) -> Any:
    message = torch.ones(MESSAGE_BYTES // 4)

    def step() -> None:
        message.fill_(1)
        dist.all_reduce(message)
        if float(message[0]) != dist.get_world_size():
            raise SystemExit("an all-reduce gave wrong data")

    return step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="gloo")
    parser.add_argument("--overwrite", default="")
    parser.add_argument("--in-rank", type=int, default=0, help="-1: every rank")
    parser.add_argument("--prefix", default="VLLM", help="first part of the ranks' titles")
    options = parser.parse_args()
    if options.backend == "nccl":
        assert_pins()
    print("Loading model weights", flush=True)
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Queue(), context.Event()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=serve, args=(rank, options, f"{folder}/store", ready, stop))
            for rank in range(options.ranks)
        ]
        for process in ranks:
            process.start()
        threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
        for _ in ranks:
            while True:
                try:
                    ready.get(timeout=0.5)
                    break
                except Exception:
                    if any(process.exitcode not in (None, 0) for process in ranks):
                        for process in ranks:
                            process.kill()
                        raise SystemExit("a rank died while it started") from None
        print(f"The server is fired up and ready to roll! {socket.gethostname()}", flush=True)
        for process in ranks:
            process.join()


if __name__ == "__main__":
    main()
