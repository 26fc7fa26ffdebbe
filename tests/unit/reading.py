"""Read a text as a file of the user would be read."""

import tempfile
from pathlib import Path
from typing import Any

from collbench.diagnose.inspection import Inspection, inspect_file
from collbench.readers import Given


def inspect(text: str | bytes, **given: Any) -> Inspection:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pasted"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return inspect_file(path, Given(**given))


def codes(found: Inspection) -> list[str]:
    return [finding.code for finding in found.findings]
