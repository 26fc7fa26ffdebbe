"""`collbench verify`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli.document import deliver, json_options
from collbench.cli.seconds import Seconds

if TYPE_CHECKING:
    from collbench.live.verify import Result, Wanted


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("profile", metavar="PROFILE")
@click.option(
    "--pid",
    "pids",
    type=int,
    multiple=True,
    metavar="P",
    help="Worker, or what started the workers; repeatable.",
)
@click.option(
    "--match", metavar="RE", help="Regular expression on command lines and process titles."
)
@click.option(
    "--log",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The server's log, with NCCL's lines in it (NCCL_DEBUG=INFO).",
)
@click.option(
    "--wait",
    type=Seconds(),
    metavar="SECONDS",
    help="Wait so long until every worker is up and live.",
)
@click.option(
    "--ranks",
    type=click.IntRange(1),
    metavar="N",
    help="Workers there have to be. Default: the profile's ranks.",
)
@click.option(
    "--like",
    type=click.Choice(["auto", "none", "sglang", "vllm"]),
    default="auto",
    show_default=True,
    help="Server whose own writes are known.",
)
@json_options
def verify(
    profile: str,
    pids: tuple[int, ...],
    match: str | None,
    log: Path | None,
    wait: float | None,
    ranks: int | None,
    like: str,
    as_json: bool,
    json_file: Path | None,
) -> int:
    r"""Prove that a running server has a profile, in every worker.

    Without --pid and --match the workers are found by their GPUs, their titles and MPI launchers.
    Reading another user's processes needs root or CAP_SYS_PTRACE. Nothing is stopped or changed.

    Exit code: 0 live, 3 different in some worker, 4 unknown, 1 no such process, 124 --wait ran
    out.

    \b
    Example:
      collbench verify current
      collbench verify results/node1/3f2a9c10b4de --pid 4711 --log server.log
      collbench verify /etc/collbench/current --match sglang::scheduler --wait 600
    """
    from collbench.live import verify as live
    from collbench.live.wait import until_live
    from collbench.profiles.store import load

    reference = load(profile)
    stored = reference.profile
    wanted = live.Wanted(
        values=reference.values,
        profile_id=reference.id,
        baseline=stored.baseline if stored else {},
        library=stored.library if stored else "",
        driver=stored.machine.get("driver") if stored else None,
        nranks=ranks or (stored.scope.nranks if stored else 0),
        pids=pids,
        match=match,
        log=log,
        like=like,
    )
    result, timed_out = until_live(wanted, wait)
    code = 124 if timed_out else live.exit_code(result)
    text = "\n".join(_lines(result, wanted, timed_out=timed_out)) + "\n"
    return deliver(live.document(result, wanted, code), text, as_json=as_json, json_file=json_file)


def _lines(result: Result, wanted: Wanted, *, timed_out: bool) -> Iterator[str]:
    from collbench.live.text import printable, shown_value
    from collbench.live.wording import name_of, safe_title
    from collbench.profiles import MARKERS

    if not result.workers:
        where = "--pid or --match names no worker" if wanted.pids or wanted.match else "no worker"
        yield f"no such process: {where} found"
        yield "  next: collbench status   shows the servers that can be seen"
        return
    head = {"live": "LIVE", "different": "DIFFERENT", "unknown": "UNKNOWN"}[result.verdict]
    name = f"profile {printable(wanted.profile_id)}" if wanted.profile_id else "the env file"
    late = ", and the time to wait is over" if timed_out else ""
    yield f"{head}: {name} in {len(result.workers)} worker(s){late}"
    for worker in result.workers:
        title = safe_title(worker.seen.process)[:60]
        yield f"  {name_of(worker)}  {worker.verdict:9}  {title}"
        for setting, judged in worker.settings.items():
            have = "not set" if judged.have is None else shown_value(setting, judged.have)
            want = shown_value(setting, judged.want)
            source = judged.evidence or "nothing seen"
            mark = " (marker)" if setting in MARKERS else ""
            if judged.verdict == "live":
                yield f"    {setting}={want}  live  [{source}]{mark}"
            else:
                note = f"; {printable(judged.note)}" if judged.note else ""
                yield (
                    f"    {setting}  {judged.verdict}: {have}, wanted {want}"
                    f"  [{source}{note}]{mark}"
                )
    if result.path is not None:
        through = {True: "through NCCL", False: "not through NCCL", None: "not known"}
        yield f"decode: {through[result.path.nccl]} ({printable(result.path.evidence)})"
    for found in result.findings:
        yield f"{found['code']}: {found['evidence']}\n  next: {found['next']}"
