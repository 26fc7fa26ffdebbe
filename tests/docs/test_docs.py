"""The documentation agrees with the code: pages, links, schemas, examples, and the site builds."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

from collbench.cli import COMMANDS, cli
from collbench.errors import Exit
from collbench.job import Case, CaseTimes, Job, Run, StepTimes
from collbench.knobs import registry
from collbench.machine import Fingerprint
from collbench.record import RunRecord, dump

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
SCHEMAS = sorted((DOCS / "schema").glob("*.json"))
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def record() -> RunRecord:
    case = Case(collective="all_reduce", size_bytes=8192, dtype="bfloat16", mode="graph")
    times = [[10.0, 10.2, 10.1], [10.1, 10.3, 10.0]]
    step = StepTimes(
        total_us=[[4300.0, 4310.0]] * 2, nocomm_us=[[2200.0, 2210.0]] * 2, wrong=[0, 0]
    )
    runs = [
        Run(
            job_id=str(index),
            settings={},
            outcome="ok",
            cases=(CaseTimes(case=case, times_us=times, wrong=[0, 0]),),
            step=step,
        )
        for index in range(6)
    ]
    return RunRecord(
        created="2026-01-02T03:04:05Z",
        backend="nccl",
        nranks=2,
        machine=Fingerprint(host="node", library="NCCL 2.28.9"),
        job=Job(job_id="0", backend="nccl", nranks=2),
        launches=runs,
    )


def test_generated_pages_are_current(generate: ModuleType) -> None:
    stale = [
        name
        for name, text in generate.pages().items()
        if not (DOCS / name).exists() or (DOCS / name).read_text() != text
    ]
    assert stale == [], "run: python docs/generate.py"


def test_every_command_has_its_part_in_the_reference() -> None:
    text = (DOCS / "commands.md").read_text()
    assert [name for name in COMMANDS if f"\n## collbench {name}\n" not in text] == []


def test_every_design_note_has_a_number_of_its_own_in_name_and_title() -> None:
    notes = sorted(path for path in (DOCS / "design").glob("*.md") if path.name != "index.md")
    numbers = [path.name.split("-")[0] for path in notes]
    assert len(set(numbers)) == len(numbers)
    for path, number in zip(notes, numbers, strict=True):
        assert path.read_text().startswith(f"# {number}: ")


def test_every_exit_code_is_explained(generate: ModuleType) -> None:
    assert set(map(int, Exit)) <= set(map(int, generate.MEANINGS))


def test_every_setting_is_in_the_reference() -> None:
    text = (DOCS / "knobs.md").read_text()
    assert [name for name in registry() if name not in text] == []


def helps() -> Iterator[tuple[str, str]]:
    """Yield every command's path and its help on a terminal of 80 columns."""
    waiting: list[tuple[str, click.Command]] = [("collbench", cli)]
    while waiting:
        path, command = waiting.pop()
        context = click.Context(command, info_name=path, terminal_width=80)
        yield path, command.get_help(context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                waiting.append((f"{path} {name}", child))


@pytest.mark.parametrize(("path", "text"), sorted(helps()), ids=lambda value: value[:40])
def test_every_help_has_an_example_line_by_line_and_no_mark_of_its_source(
    path: str, text: str
) -> None:
    assert re.search(rf"\n  Example:\n(    .*\n)*    {path}( |$)", text, re.M)
    assert not re.search(r"\\b|\x08|``|^  \w+ .*\.\.\.$", text, re.M)
    assert [line for line in text.splitlines() if len(line) > 80] == []


def links(path: Path) -> Iterator[str]:
    text = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target) and not target.startswith("#"):
            yield target.split("#")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    assert [link for link in links(page) if not (page.parent / link).exists()] == []


def navigation(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, list):
        for item in tree:
            yield from navigation(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from navigation(item)


def test_every_page_can_be_reached_from_the_navigation() -> None:
    import yaml

    nav = set(navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    reached = {DOCS / name for name in nav}
    assert [path for path in reached if not path.exists()] == []
    for folder in ("findings", "design"):
        reached |= {DOCS / folder / link for link in links(DOCS / folder / "index.md")}
    assert [str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md") if p not in reached] == []


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda p: p.stem)
def test_a_schema_is_one_and_its_page_links_it(path: Path) -> None:
    Draft202012Validator.check_schema(json.loads(path.read_text()))
    assert f"(schema/{path.name})" in (DOCS / "json.md").read_text()


def valid(name: str, document: Any) -> None:
    """Validate the JSON text of a document, as a reader gets it."""
    schema = json.loads((DOCS / "schema" / f"{name}.json").read_text())
    Draft202012Validator(schema).validate(json.loads(json.dumps(document)))


def test_a_run_record_is_what_its_schema_says(record: RunRecord) -> None:
    plain = json.loads(dump(record))
    valid("run", plain)
    for broken in ({**plain, "launches": 3}, {k: v for k, v in plain.items() if k != "backend"}):
        with pytest.raises(Exception, match=r"is not of type|required"):
            valid("run", broken)


def test_the_document_of_bench_is_what_its_schema_says(record: RunRecord) -> None:
    from collbench.bench.table import document

    valid("bench", document(record, "run.json"))


def test_the_document_of_compare_is_what_its_schema_says(record: RunRecord) -> None:
    from collbench.compare import compare, document

    valid("compare", document(compare(record, record), "a", "b"))


def test_a_published_profile_is_what_its_schema_says(tmp_path: Path) -> None:
    from collbench.profiles import Profile
    from collbench.profiles.store import publish

    directory = publish(tmp_path, "machine", Profile(settings={"NCCL_MIN_NCHANNELS": "16"}))
    valid("profile", json.loads((directory / "profile.json").read_text()))


def test_the_notebook_example_runs_on_an_exported_record(
    record: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    from collbench.exports import to_parquet

    (tmp_path / "times.parquet").write_bytes(to_parquet(record))
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", (DOCS / "reports.md").read_text(), re.S)
    assert code
    exec(compile(code[1], "reports.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "all_reduce/8192/bfloat16/graph" in printed
    assert "2100.0" in printed


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("no mkdocs: pip install '.[docs]'")
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]+src=\"?https?:|<link[^>]+stylesheet[^>]+https?:"
    )
    built = sorted((tmp_path / "site").rglob("*.html"))
    assert len(built) > 10
    assert [str(path) for path in built if loads.search(path.read_text())] == []
