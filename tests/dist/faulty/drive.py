"""Under torchrun: one pool, one launch per fault named on the command line, runs as JSON."""

import json
import os
import sys
import time
from pathlib import Path

from collbench.job import Case, Job, Plan, to_plain
from collbench.pool import open_pool
from collbench.ranks import detect


def main() -> None:
    out, faults = Path(sys.argv[1]), sys.argv[2:]
    pool = open_pool(detect(), "faulty_gloo:FaultyGloo")
    if pool.where.rank != 0:
        pool.serve()
        return
    case = Case(collective="all_reduce", size_bytes=4096, dtype="float32", mode="eager")
    runs = []
    for number, fault in enumerate(faults):
        job = Job(
            job_id=str(number),
            backend=pool.backend,
            nranks=pool.nranks,
            settings={"FAULT": fault} if fault != "none" else {},
            cases=(case,),
            plan=Plan(replays=3, batch_us=500.0),
            deadline_s=4.0,
        )
        begin = time.monotonic()
        run = pool.launch(job)
        runs.append({"fault": fault, "wall_s": time.monotonic() - begin, "run": to_plain(run)})
        out.write_text(json.dumps({"pid": os.getpid(), "runs": runs}))
    pool.close()


main()
