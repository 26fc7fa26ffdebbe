"""One node of a shared study, in a process: python shared_child.py URL NODE LOG PACE [CPUS]."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from fake_lab import SPACE, FakeLab

from collbench.job import Run
from collbench.search import shared
from collbench.search.budget import Budget
from collbench.search.options import Options
from collbench.search.protocol import run


class Paced(FakeLab):
    """A node that is slower than others by a factor, default and candidates alike."""

    pace = 1.0

    def launch(self, *args: Any, **more: Any) -> Run:
        found = super().launch(*args, **more)
        assert found.step is not None
        scaled = {
            name: [[value * self.pace for value in rank] for rank in getattr(found.step, name)]
            for name in ("total_us", "nocomm_us")
        }
        return dataclasses.replace(found, step=dataclasses.replace(found.step, **scaled))


def main() -> None:
    url, name, log, pace = sys.argv[1:5]
    cpus = int(sys.argv[5]) if len(sys.argv) > 5 else 2
    shared.BEAT_S, shared.STALE_S = 0.5, 2.0
    lab = Paced(log=Path(log), pause_s=0.02, seed=sum(name.encode()))
    lab.pace = float(pace)
    result = run(
        lab,
        SPACE,
        Options(
            backend="nccl",
            beside=False,
            budget=Budget(launches=40),
            strategy="coordinate",
            node=shared.Node(name=name, machine={"cpus": cpus, "library": "NCCL 2.28.9"}),
        ),
        url,
    )
    print(
        json.dumps(
            {
                "verdict": result.verdict,
                "settings": result.settings,
                "default_us": result.default_us,
                "confirmed_on": result.confirmed_on,
                "search": sum(1 for phase, _ in result.runs if phase == "search"),
            }
        )
    )


main()
