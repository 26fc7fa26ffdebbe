"""Imports point downward only: a module may import from lines above its own, never sideways."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "collbench"

LAYERS: list[set[str]] = [
    {"errors"},
    {"units", "files", "findings", "job", "collectives", "parent_death"},
    {"readers", "knobs", "stats", "numa"},
    {"workload", "machine"},
    {"record", "lab"},
    {"results"},
    {"backends", "profiles", "compare", "exports", "stepcost"},
    {"measure", "live", "emit"},
    {"ranks"},
    {"worker", "pool"},
    {"space", "diagnose"},
    {"confirm"},
    {"search"},
    {"terminal"},
    {"slurm", "fleet"},
    {"report"},
    {"front", "preflight"},
    {"bench", "sweep", "check"},
    {"cli"},
]
MEASURING = {"backends", "measure", "worker"}
DECIDING = {"profiles", "compare", "emit", "pool", "space", "search", "confirm", "report"}
ONLY_IN = {
    "torch": {"backends", "ranks", "pool", "machine", "measure"},
    "mpi4py": {"backends", "ranks"},
    "optuna": {"search", "report"},
}
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def module_files() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def unit_of(path: Path) -> str:
    """The name by which a file stands in LAYERS: a module or a package of collbench."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.append(node.module or "")
            if node.module == "collbench":
                names += [f"collbench.{alias.name}" for alias in node.names]
    return names


def faults(path: Path, unit: str) -> list[str]:
    found = []
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "collbench" and len(parts) > 1 and parts[1] in LEVEL:
            other = parts[1]
            if other != unit and LEVEL[other] >= LEVEL[unit]:
                found.append(f"{unit} imports {other}, which is not below it")
            if unit in DECIDING and other in MEASURING:
                found.append(f"{unit} decides, {other} measures")
            if unit in MEASURING and other in DECIDING:
                found.append(f"{unit} measures, {other} decides")
        elif parts[0] in ONLY_IN and unit not in ONLY_IN[parts[0]]:
            found.append(f"{unit} imports {parts[0]}")
    return found


@pytest.mark.parametrize("path", module_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_module_imports_only_from_below(path: Path) -> None:
    unit = unit_of(path)
    if unit == "__main__":
        return
    assert unit in LEVEL, f"{unit} has no layer: give it one in LAYERS"
    assert faults(path, unit) == []


@pytest.mark.parametrize(
    ("unit", "line"),
    [
        ("stats", "from collbench.record import load"),
        ("pool", "from collbench import worker"),
        ("measure", "from collbench.compare import compare"),
        ("space", "import optuna"),
        ("profiles", "from collbench.backends import nccl"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, unit: str, line: str) -> None:
    path = tmp_path / f"{unit}.py"
    path.write_text(line)
    assert faults(path, unit)
