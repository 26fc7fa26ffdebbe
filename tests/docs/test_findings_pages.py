"""Finding codes and their pages belong together, both ways."""

import ast
import re
from pathlib import Path

import pytest

from collbench.findings import CODES

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "findings"
SECTIONS = ["What it means", "See it by hand", "Mend it", "Often confused with"]


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    pages = {path.stem for path in PAGES.glob("*.md")} - {"index"}
    assert pages == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_page_says_what_it_has_to(code: str) -> None:
    text = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == f"# {code}"
    assert lines[2].lower() == f"{CODES[code]}.".lower()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    for part in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        assert len(part.strip()) >= 30


def test_links_between_pages_lead_somewhere() -> None:
    for path in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+\.md)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_every_code_that_the_judges_report_is_in_the_table_and_every_code_is_reported() -> None:
    said: set[str] = set()
    for folder in ("diagnose", "readers", "live", "knobs", "profiles"):
        for path in (ROOT / "collbench" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    said.add(node.value)
    assert set(CODES) <= said, set(CODES) - said
    shape = re.compile(
        r"(?:env|p2p|nccl|transport|link|topo|verify|noise|bench|record)\.[a-z_0-9]+"
    )
    found = {word for word in said if shape.fullmatch(word)}
    others = {"nccl.conf", "bench.json"}
    lint = {word for word in found if word.startswith("env.") and word not in CODES}
    assert found - set(CODES) - others - lint == set()
