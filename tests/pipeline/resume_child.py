"""A study in a process of its own, to be killed: python resume_child.py DB LOG [--resume]."""

import json
import sys
from pathlib import Path

from fake_lab import SPACE, FakeLab

from collbench.search.budget import Budget
from collbench.search.options import Options
from collbench.search.protocol import run


def main() -> None:
    database, log = Path(sys.argv[1]), Path(sys.argv[2])
    lab = FakeLab(log=log, pause_s=0.004, seed=log.stat().st_size if log.exists() else 0)
    result = run(
        lab,
        SPACE,
        Options(
            backend="nccl",
            beside=False,
            budget=Budget(launches=30),
            strategy="coordinate",
            resume="--resume" in sys.argv,
        ),
        f"sqlite:///{database}",
    )
    print(
        json.dumps(
            {
                "verdict": result.verdict,
                "settings": result.settings,
                "trials": result.trials,
                "reused": result.trials_reused,
            }
        )
    )


main()
