"""Every case of tests/data/cases reads and judges as its README defines."""

import json
from pathlib import Path
from typing import Any

import pytest

from collbench.diagnose.inspection import given_of, inspect_file

CASES = Path(__file__).parent.parent / "data" / "cases"
EXPECTED = sorted(CASES.glob("*/*.expect.json"))


def case_file(expected: Path) -> Path:
    base = expected.name.removesuffix(".expect.json")
    return next(
        path
        for path in expected.parent.iterdir()
        if path.stem == base and not path.name.endswith(".expect.json")
    )


def comparable(facts: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Facts as JSON has them; readers that a case does not list are not part of it."""
    plain: dict[str, Any] = json.loads(json.dumps(facts))
    if "values" in plain and "values" in wanted:
        plain["values"] = {k: v for k, v in plain["values"].items() if k in wanted["values"]}
    return plain


def test_there_are_cases_of_every_folder() -> None:
    folders = {path.parent.name for path in EXPECTED}
    assert folders == {"topo", "nccl_log", "nccl_tests", "env", "proc", "pcie", "e2e"}
    assert len(EXPECTED) >= 42


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda p: f"{p.parent.name}/{p.stem[:-7]}")
def test_case_reads_and_judges_as_expected(expected: Path) -> None:
    wanted = json.loads(expected.read_text(encoding="utf-8"))
    given = given_of(wanted.get("given", {}), where=expected.name)
    found = inspect_file(case_file(expected), given)
    codes = [finding.code for finding in found.findings]
    if "error" in wanted["facts"]:
        assert set(found.facts) == {"error"}
    else:
        assert found.error is None
        assert found.kind == wanted["kind"]
        assert comparable(found.facts, wanted["facts"]) == wanted["facts"]
    assert set(wanted["findings"]) <= set(codes)
    assert not set(wanted["must_not_report"]) & set(codes)
    listed = [code for code in codes if code in wanted["findings"]]
    assert listed[:1] == wanted["findings"][:1]
    if not wanted["findings"]:
        assert codes == []
