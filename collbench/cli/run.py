"""`collbench run`."""

from __future__ import annotations

import contextlib
import os

import click


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("profile", metavar="PROFILE")
@click.option("--strict", is_flag=True, help="Refuse (exit 125) if anything is not as measured.")
@click.argument("command", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
def run(profile: str, strict: bool, command: tuple[str, ...]) -> int:
    r"""Start a command with a profile's settings.

    Compares GPUs, driver, NCCL as it will be loaded, and the environment with what the profile
    was measured in, says the outcome in one line on stderr, and becomes the command: stdin,
    signals and the exit code are the command's own. No shell is involved.

    Exit code: the command's own; 125 refused, 126 the command cannot be started, 127 not found.

    \b
    Example:
      collbench run current -- python -m sglang.launch_server --model M --tp 4
      collbench run --strict results/node1/3f2a9c10b4de -- vllm serve M
    """
    from collbench.live import launch
    from collbench.profiles.store import load

    reference = load(profile)
    launch.check_allowed(reference, os.environ)
    gpus, driver = None, None
    if reference.profile is not None and reference.profile.machine.get("gpus"):
        from collbench.machine.probe import read_gpus

        gpus, driver, _ = read_gpus()
    found = launch.mismatches(reference, command, os.environ, gpus, driver)
    _say(launch.one_line(reference, found))
    if found and strict:
        _say(f"  refused by --strict; next: {found[0].next}")
        return 125
    return _become(command, {**os.environ, **reference.values})


def _become(command: tuple[str, ...], environ: dict[str, str]) -> int:
    """Replace this process by the command; return only if that fails."""
    import signal

    # Python ignores these, and an ignored signal stays ignored over exec.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    from collbench.live.text import printable

    try:
        os.execvpe(command[0], command, environ)
    except (FileNotFoundError, ValueError):  # the empty name is a ValueError
        _say(f"collbench run: {printable(command[0])!r}: not found")
        return 127
    except OSError as error:
        _say(f"collbench run: {printable(command[0])}: {error.strerror}")
        return 126


def _say(text: str) -> None:
    """Print to stderr; a full disk behind it must not keep a server from starting."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)
