"""A gathered job as text: one line a task, then what the class may use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collbench.slurm.gather import GOOD_FROM, Task, class_verdicts
from collbench.terminal.words import clean, percent_text, settings_text

_HEAD = ("task", "nodes", "state", "verdict", "time", "trials")


def task_table(tasks: Sequence[Task]) -> str:
    """Return the table of a job's tasks and the verdict for the class."""
    rows = [_HEAD, *(_row(task) for task in tasks)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for task in tasks:
        if task.verdict is None and task.last_line:
            lines.append(f"task {task.task}: {clean(task.last_line, 160)}")
    lines.append("")
    for verdict in class_verdicts(tasks):
        nodes = ", ".join(clean(node) for node in verdict.nodes)
        word = (
            "good for the class"
            if verdict.good
            else f"confirmed on one node only; {GOOD_FROM} are needed for the class"
        )
        lines.append(f"{settings_text(verdict.settings)}: {word} ({nodes})")
    missing = [task for task in tasks if task.verdict is None]
    if missing:
        lines.append(
            f"{len(missing)} of {len(tasks)} tasks have not delivered; submit again with the same "
            "--out: finished launches are reused"
        )
    return "\n".join(lines) + "\n"


def _row(task: Task) -> tuple[str, ...]:
    time = "" if task.ratio is None else f"{percent_text(task.ratio)} ({task.ratio:.3f})"
    trials = f"{task.trials}" + (f" ({task.trials_reused} reused)" if task.trials_reused else "")
    return (
        str(task.task),
        clean(task.nodes, 40),
        clean(task.state, 20),
        task.verdict or "-",
        time or "-",
        trials if task.trials else "-",
    )


def progress_line(tasks: Sequence[Task]) -> str:
    """Return one line that says how a job stands: ``2 running, 1 done``, and a running log line."""
    words: Counter[str] = Counter()
    for task in tasks:
        words["done" if task.state == "done" else task.state.lower()] += 1
    text = ", ".join(f"{count} {clean(word)}" for word, count in sorted(words.items()))
    last = next((t.last_line for t in tasks if t.state == "RUNNING" and t.last_line), "")
    return f"{text}: {clean(last, 100)}" if last else text
