"""What the tasks of a job left is gathered whole: documents, cut documents, and none at all."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from collbench.errors import CollbenchError
from collbench.slurm.control import State, _tasks
from collbench.slurm.gather import class_verdicts, document, gather
from collbench.slurm.table import progress_line, task_table

ROOT = Path(__file__).parents[2]
FASTER = {
    "schema": 1,
    "command": "sweep",
    "exit_code": 0,
    "verdict": "profile",
    "ratio": 0.8,
    "interval": [0.78, 0.82],
    "settings": {"OMPI_MCA_btl_tcp_links": "2"},
    "profile": "/r/n1/x",
    "trials": 40,
    "trials_reused": 12,
    "default_us": 100.0,
    "winner_us": 80.0,
    "seconds": 60.0,
    "outcomes": {"ok": 40},
}
KEEP = {"schema": 1, "exit_code": 0, "verdict": "keep_default", "settings": {}, "trials": 9}


def leave(folder: Path, task: int, plain: Any = None, *, node: str = "", code: str = "") -> None:
    job = folder / "7"
    job.mkdir(exist_ok=True)
    if plain is not None:
        text = plain if isinstance(plain, str) else json.dumps(plain)
        (job / f"task-{task}.json").write_text(text)
    if node:
        (job / f"task-{task}.nodes").write_text(node + "\n")
    if code:
        (job / f"task-{task}.exit").write_text(code + "\n")


def test_a_task_without_a_document_is_in_the_table_with_its_state_and_last_line(
    tmp_path: Path,
) -> None:
    leave(tmp_path, 0, FASTER, node="n1", code="0")
    leave(tmp_path, 1, node="n2")
    (tmp_path / "7.1.log").write_text("one\ntrial 12 of 48\x1b[2K\n\n")
    known = {1: State(task=1, state="CANCELLED", nodes="n2")}
    tasks = gather(tmp_path, "7", known, tasks=3)
    assert [(t.task, t.state, t.nodes) for t in tasks] == [
        (0, "done", "n1"),
        (1, "CANCELLED", "n2"),
        (2, "unknown", ""),
    ]
    text = task_table(tasks)
    assert "20.0 % less (0.800)" in text
    assert "40 (12 reused)" in text
    assert "task 1: trial 12 of 48[2K" in text
    assert "2 of 3 tasks have not delivered" in text
    assert document("7", tasks)["exit_code"] == 1


def test_why_a_node_was_set_aside_is_in_the_table(tmp_path: Path) -> None:
    leave(tmp_path, 0, node="n1", code="5")
    reason = "collbench: node n1 is set aside: cpus is 4 here, 2 in the class"
    (tmp_path / "7.log").write_text(f"[ 2.0 s] 2 ranks\n{reason}\n  fix: tune it alone\n")
    tasks = gather(tmp_path, "7", {})
    assert (tasks[0].state, tasks[0].exit_code, tasks[0].last_line) == ("FAILED", 5, reason)


def test_settings_are_good_for_the_class_from_two_nodes_on(tmp_path: Path) -> None:
    leave(tmp_path, 0, FASTER, node="n1")
    leave(tmp_path, 1, FASTER, node="n1")
    verdicts = class_verdicts(gather(tmp_path, "7", {}))
    assert [(v.nodes, v.good) for v in verdicts] == [(("n1",), False)]
    leave(tmp_path, 1, FASTER, node="n2")
    tasks = gather(tmp_path, "7", {})
    assert [v.good for v in class_verdicts(tasks)] == [True]
    assert "good for the class (n1, n2)" in task_table(tasks)
    assert document("7", tasks)["exit_code"] == 0


def test_tasks_that_disagree_are_a_finding(tmp_path: Path) -> None:
    leave(tmp_path, 0, FASTER, node="n1")
    leave(tmp_path, 1, KEEP, node="n2")
    tasks = gather(tmp_path, "7", {})
    assert document("7", tasks)["exit_code"] == 3
    assert "confirmed on one node only" in task_table(tasks)


def test_an_old_document_of_a_task_that_runs_again_does_not_end_it(tmp_path: Path) -> None:
    leave(tmp_path, 0, KEEP, node="n1")
    tasks = gather(tmp_path, "7", {0: State(task=0, state="RUNNING")})
    assert tasks[0].state == "RUNNING"
    assert progress_line(tasks) == "1 running"


def test_the_document_is_what_its_schema_says(tmp_path: Path) -> None:
    leave(tmp_path, 0, FASTER, node="n1")
    leave(tmp_path, 1, KEEP, node="n2")
    schema = json.loads((ROOT / "docs" / "schema" / "slurm.json").read_text())
    plain = json.loads(json.dumps(document("7", gather(tmp_path, "7", {}, tasks=3))))
    Draft202012Validator(schema).validate(plain)


def test_nothing_known_of_a_job_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(CollbenchError, match="nothing of job 7"):
        gather(tmp_path, "7", {})


@settings(deadline=None)  # a busy machine is slow
@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_a_document_with_wrong_types_never_crashes_the_table(tmp_path_factory, junk) -> None:
    folder = tmp_path_factory.mktemp("junk")
    leave(folder, 0, dict.fromkeys(FASTER, junk))
    tasks = gather(folder, "7", {})
    json.dumps(document("7", tasks), allow_nan=False)
    assert "task" in task_table(tasks)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', json.dumps(FASTER)[:-5]])
def test_a_document_that_was_cut_counts_as_none(tmp_path: Path, text: str) -> None:
    leave(tmp_path, 0, text, node="n1")
    task = gather(tmp_path, "7", {}, tasks=1)[0]
    assert (task.verdict, task.nodes) == (None, "n1")


@pytest.mark.parametrize(
    ("text", "tasks"), [("3", [3]), ("[2-4,7%2]", [2, 3, 4, 7]), ("0", [0]), ("", []), ("x", [])]
)
def test_slurms_array_indices_are_read(text: str, tasks: list[int]) -> None:
    assert _tasks(text) == tasks
