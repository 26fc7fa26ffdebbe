"""Under torchrun: one pool, one launch per job of a JSON file, their runs as JSON."""

import json
import sys
from pathlib import Path

from collbench.job import Job, from_plain, to_plain
from collbench.pool import open_pool
from collbench.ranks import detect


def main() -> None:
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    jobs = [from_plain(Job, plain) for plain in json.loads(source.read_text())]
    pool = open_pool(detect(), jobs[0].backend)
    if pool.where.rank != 0:
        pool.serve()
        return
    try:
        runs = [[to_plain(run) for run in pool.launch_parts(job)] for job in jobs]
        out.write_text(json.dumps(runs))
    finally:
        pool.close()


main()
