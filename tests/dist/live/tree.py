"""A tree of processes like a server's, for the tests. Standard library; setproctitle if asked.

``python tree.py SPEC``: SPEC is JSON, see `Spec`. Prints ``ready PID PID ...`` (the workers) once
every worker has done what it was told, and ends when its stdin ends.
"""

import ctypes
import json
import multiprocessing
import os
import sys
from typing import Any

Spec = dict[str, Any]
"""workers (1), method (spawn, fork, none), launcher_sets {}, launcher_title, title (with {rank}),
sets {} before and sets_after {} after the title, unsets [] after it, only {rank: {...}} after it,
extra ["detokenizer" titles of further processes].
"""


def settle(spec: Spec, rank: int) -> None:
    os.environ.update(spec.get("sets", {}))
    if spec.get("title"):
        import setproctitle

        setproctitle.setproctitle(spec["title"].format(rank=rank))
    os.environ.update(spec.get("sets_after", {}))
    os.environ.update(spec.get("only", {}).get(str(rank), {}))
    for name in spec.get("unsets", []) + spec.get("unsets_only", {}).get(str(rank), []):
        os.environ.pop(name, None)


def work(spec: Spec, rank: int, pipe: Any) -> None:
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: never outlive the launcher
    settle(spec, rank)
    pipe.send(os.getpid())
    try:
        pipe.recv()
    except EOFError:
        os._exit(0)


def main() -> None:
    spec: Spec = json.loads(sys.argv[1])
    if spec.get("method") == "none":
        settle(spec, 0)
        pids = [os.getpid()]
    else:
        os.environ.update(spec.get("launcher_sets", {}))
        context = multiprocessing.get_context(spec.get("method", "spawn"))
        if spec.get("launcher_title"):
            import setproctitle

            setproctitle.setproctitle(spec["launcher_title"])
        kept, pids = [], []
        titles = [spec.get("title")] * spec.get("workers", 1) + spec.get("extra", [])
        for rank, title in enumerate(titles):
            mine, theirs = context.Pipe()
            one = {**spec, "title": title}
            process = context.Process(target=work, args=(one, rank, theirs), daemon=True)
            process.start()
            kept.append(mine)
        pids = [pipe.recv() for pipe in kept][: spec.get("workers", 1)]
    print("ready", *pids, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
