"""`collbench status`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from collbench.cli.document import deliver, json_options
from collbench.cli.seconds import Seconds


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--watch", is_flag=True, help="Look again every few seconds, until Ctrl-C.")
@click.option(
    "--every",
    type=Seconds(0.5),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between looks, from 0.5 on.",
)
@click.option(
    "--log",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The server's log, where it is no open file.",
)
@json_options
def status(
    watch: bool, every: float, log: Path | None, as_json: bool, json_file: Path | None
) -> int:
    r"""Show GPUs, servers, whether a profile is live, and what the logs last said.

    A low link speed of an idle GPU saves power and is no fault. Secrets in arguments are hidden.

    \b
    Example:
      collbench status
      collbench status --watch --log server.log
    """
    from collbench.live import status as live

    while True:
        document = live.document(live.take(log))
        clear = "\x1b[H\x1b[2J" if watch and _terminal() else ""
        text = clear + "\n".join(_lines(document)) + "\n"
        code = deliver(document, text, as_json=as_json, json_file=json_file)
        if not watch or not _pause(every):
            return code


def _terminal() -> bool:
    import sys

    return sys.stdout.isatty()


def _pause(seconds: float) -> bool:
    import time

    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        return False
    return True


def _lines(document: dict[str, Any]) -> Iterator[str]:
    for gpu in document["gpus"]:
        yield _gpu_line(gpu)
    if not document["gpus"]:
        yield f"GPUs: {document['gpu_note']}"
    yield f"current profile: {document['current'] or 'none'}"
    if not document["servers"]:
        yield "servers: none found"
    for server in document["servers"]:
        minutes, seconds = divmod(server["running_s"], 60)
        yield f"server pid {server['pid']}, up {minutes} min {seconds} s: {server['title']}"
        yield f"  {_profile_text(server['profile'], document['current'])}"
        log = server["log"]
        if log is not None:
            where = f" ({log['path']})" if log["path"] else ""
            yield f"  log: {log['state']}: {log['text']}{where}"
        for worker in server["workers"]:
            rank = "" if worker["rank"] is None else f" rank {worker['rank']}"
            gpu = "" if worker["gpu"] is None else f" GPU {worker['gpu']}"
            verdict = f" {worker['verdict']}" if worker["verdict"] else ""
            yield f"  worker pid {worker['pid']}{rank}{gpu}{verdict}: {worker['title'][:60]}"
        if not server["workers"]:
            yield "  no worker yet"


def _gpu_line(gpu: dict[str, Any]) -> str:
    used, total = gpu["memory_used_bytes"], gpu["memory_total_bytes"]
    memory = f"{used / 2**30:.1f} of {total / 2**30:.1f} GiB" if used is not None else "memory ?"
    busy = "busy ?" if gpu["busy_pct"] is None else f"busy {gpu['busy_pct']} %"
    link = "link ?"
    if gpu["link_gen"] and gpu["link_width"]:
        link = f"link Gen{gpu['link_gen']} x{gpu['link_width']}"
        if gpu["link_gen_max"] and gpu["link_width_max"]:
            link += f" of Gen{gpu['link_gen_max']} x{gpu['link_width_max']}"
    note = f" ({gpu['link_note']})" if gpu["link_note"] else ""
    return f"GPU {gpu['index']} {gpu['name']}: {memory}, {busy}, {link}{note}"


def _profile_text(profile: dict[str, Any], current: str | None) -> str:
    name = f"profile {profile['id']}" if profile["id"] else "a profile"
    return {
        "live": f"{name}: live in every worker",
        "different": f"{name}: DIFFERENT in some worker: collbench verify PROFILE",
        "none": f"no profile in it{f' (current is {current})' if current else ''}",
        "no_profile_here": f"started with {name}, which is not found here",
    }.get(profile["state"], f"{name}: unknown: collbench verify says what could not be seen")
