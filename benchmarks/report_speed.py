"""How long a report takes, its memory and its size: python -m benchmarks.report_speed PATH..."""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path


def peak_bytes() -> int:
    """Return the most memory this process had: ru_maxrss counts a parent as well."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def main() -> None:
    began = time.perf_counter()
    from collbench.report import write

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.html"
        write([Path(argument) for argument in sys.argv[1:]], out)
        used = resource.getrusage(resource.RUSAGE_SELF)
        figures = {
            "seconds": round(time.perf_counter() - began, 3),
            # What it takes on a machine with nothing else to do: the whole process, start included.
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 3),
            "peak_mb": round(peak_bytes() / 1e6, 1),
            "page_mb": round(out.stat().st_size / 1e6, 3),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
