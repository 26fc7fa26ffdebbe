"""Coverage-guided fuzzing of every reader; a lane of its own.

pip install atheris, then:  python tests/fuzz/fuzz_readers.py -max_total_time=300 CORPUS
With an empty CORPUS folder, the case files are copied there first.
"""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["collbench"]):
    import collbench.diagnose
    import collbench.readers
    from collbench.diagnose.inspection import inspect_file
    from collbench.readers import Given

    # They are imported when they are needed; what is imported later is not instrumented.
    for package in (collbench.readers, collbench.diagnose):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)

CASES = Path(__file__).parent.parent / "data" / "cases"
FOLDER = Path(tempfile.mkdtemp(prefix="collbench-fuzz-"))
KNOWN = Given(profile={"NCCL_PROTO": "LL"}, stored={"gpus": 4}, nccl_version="2.28.9")


def one_input(data: bytes) -> None:
    path = FOLDER / "pasted"
    path.write_bytes(data)
    found = inspect_file(path, KNOWN)
    if found.error is not None and found.facts != {"error": found.error}:
        raise AssertionError("an error stands alone")


def main() -> None:
    corpus = next((Path(a) for a in sys.argv[1:] if not a.startswith("-")), None)
    if corpus is not None and corpus.is_dir() and not any(corpus.iterdir()):
        for path in CASES.glob("*/*"):
            if not path.name.endswith(".expect.json"):
                shutil.copy(path, corpus / f"{path.parent.name}-{path.name}")
    try:
        atheris.Setup(sys.argv, one_input)
        atheris.Fuzz()
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    main()
