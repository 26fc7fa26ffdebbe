"""`collbench report`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="HTML file to write.",
)
@click.option("--title", metavar="TEXT", help="Title of the page.")
@click.option("--quiet", is_flag=True, help="Say nothing where all is well.")
def report(paths: tuple[Path, ...], out: Path, title: str | None, quiet: bool) -> int:
    r"""Write one self-contained HTML page from results.

    PATH is a run record, a study file, a profile's directory or a machine's folder; two results
    are compared, a machine's folder becomes a history. The page opens from the file, offline.

    \b
    Example:
      collbench report results/h200x2/3f2a9c10 -o report.html
      collbench report before.json after.json -o compared.html
    """
    from collbench.files import refuse_inputs
    from collbench.report import write

    refuse_inputs(out, paths, where="-o")
    write(paths, out, title=title)
    if not quiet:
        click.echo(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)", err=True)
    return 0
