"""How long a report takes, its memory and its size: python -m benchmarks.report_speed PATH..."""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    began = time.perf_counter()
    from collbench.report import write

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.html"
        write([Path(argument) for argument in sys.argv[1:]], out)
        figures = {
            "seconds": round(time.perf_counter() - began, 3),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
            "page_mb": round(out.stat().st_size / 1e6, 3),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
