"""One self-contained HTML page from results; plotly is imported late, optuna only for studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collbench.errors import CollbenchError, Exit
from collbench.files import write_atomic


def write(paths: Sequence[Path], out: Path, *, title: str | None = None) -> None:
    """Write the report of one or more results to `out`, whole or not at all.

    Args:
        paths: Run records, study files, profile directories, machine folders. Two results are
            compared; a machine folder becomes a history.
        out: The HTML file.
        title: Instead of the title made from what was read.

    Raises:
        CollbenchError: a path holds nothing a report can be made of, plotly is missing, or `out`
            cannot be written.
    """
    from collbench.report.build import page_of
    from collbench.report.page import html
    from collbench.report.sources import read

    page = page_of([read(path) for path in paths], title=title)
    try:
        text = html(page)
    except ModuleNotFoundError as error:
        if error.name != "plotly":
            raise
        raise CollbenchError(
            "report: plotly is not installed",
            fix="pip install 'collbench[report]'",
            code=Exit.FAILED,
        ) from error
    write_atomic(out, text)


def write_sweep(document: Path, profile: Path | None) -> Path | None:
    """Write ``report.html`` at the end of a sweep and return its path.

    Args:
        document: The sweep's JSON document, beside its study.
        profile: The profile's directory, where the page then lies; else it lies beside the study.

    Returns:
        None where the extra ``report`` is not installed: a sweep does not fail for a page.
    """
    import importlib.util

    if importlib.util.find_spec("plotly") is None:
        return None
    out = (profile or document.parent) / "report.html"
    write([document if profile is None else profile], out)
    return out
