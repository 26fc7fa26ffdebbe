"""Strategies against each other on a recorded landscape, at several budgets.

    python -m benchmarks.search_table FILE.jsonl... --out results/search_replay

Writes `table.jsonl` (one document of benchmarks.search_replay a line) and `table.md`. Rows already
in `table.jsonl` are kept, so that a stopped run goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.search_replay import Setting, replay
from collbench.errors import CollbenchError

BUDGETS = (10, 15, 20, 25, 30, 50, 80)
STRATEGIES = ("auto", "tpe", "random")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_table", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(argv)
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "table.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    for budget in BUDGETS:
        for strategy in STRATEGIES:
            if any((r["budget"], r["strategy"]) == (budget, strategy) for r in rows):
                continue
            setting = Setting(
                paths=tuple(given.files),
                budget=budget,
                strategy=strategy,
                noise_pct=None,
                null=False,
                plant_pct=None,
            )
            try:
                rows.append(replay(setting, given.seeds, given.jobs))
            except CollbenchError as error:
                print(f"search_table: {error}", file=sys.stderr)
                return error.code
            path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    (given.out / "table.md").write_text(table(rows), encoding="utf-8")
    return 0


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown: regret of the search's winner, median, mean, 90th percentile."""
    text = [
        "| budget | strategy | median | mean (95 %) | 90th percentile (95 %) | confirmed, median |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        mean, p90 = row["search_regret_mean_interval"], row["search_regret_p90_interval"]
        text.append(
            f"| {row['budget']} | {row['strategy']} | {row['search_regret_median_pct']:.2f} "
            f"| {row['search_regret_mean_pct']:.2f} ({mean[0]:.2f} to {mean[1]:.2f}) "
            f"| {row['search_regret_p90_pct']:.2f} ({p90[0]:.2f} to {p90[1]:.2f}) "
            f"| {row['final_regret_median_pct']:.2f} |"
        )
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    sys.exit(main())
