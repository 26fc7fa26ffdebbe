"""The command line: a lazy group, so that a light command imports only what it needs.

Each command lives in a module of its own under ``collbench.cli``; that module imports nothing
but click and the standard library at its top, and the rest inside the command's function.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import click

from collbench import __version__
from collbench.errors import CollbenchError, Exit

COMMANDS = {
    "bench": ("bench:bench", "Time collectives and the step; print a table, write a run record."),
    "sweep": ("sweep:sweep", "Search the settings, confirm the winner, publish a profile."),
    "check": ("check:check", "Re-measure a profile against the default and its record."),
    "compare": ("compare:compare", "Compare two run records, per case."),
    "profile": ("profile:profile", "Show, list, lint, emit, activate or roll back profiles."),
    "run": ("run:run", "Start a command with a profile's settings."),
    "verify": ("verify:verify", "Prove that a running server has a profile."),
    "status": ("status:status", "One look: GPUs, servers, profile, log."),
    "inspect": ("inspect:inspect", "Say what a pasted text says, and what is wrong in it."),
    "diagnose": ("diagnose:diagnose", "Rank the causes of a slower step."),
    "workload": ("workload:workload", "Show the collectives of a model's step."),
    "report": ("report:report", "Write one self-contained HTML page."),
    "slurm": ("slurm:slurm", "Submit sweeps to Slurm and gather them."),
    "fleet": ("fleet:fleet", "A table of many machines' profiles."),
}


def with_blocks(command: click.Command) -> click.Command:
    """Return a command whose help keeps its examples line by line.

    Click keeps a paragraph as it is after a backspace character; docstrings are raw and hold a
    backslash and a b instead.
    """
    if command.help:
        command.help = command.help.replace("\\b\n", "\b\n")
    if isinstance(command, click.Group):
        for child in command.commands.values():
            with_blocks(child)
    return command


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of the contract."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(f"collbench.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return with_blocks(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="collbench")
def cli() -> None:
    r"""Find, keep and prove better settings for the small collectives of LLM serving.

    \b
    Example:
      collbench sweep                  tune this machine
      collbench run current -- CMD     start a server with the profile
      collbench verify current         prove that the server has it
    """


with_blocks(cli)


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit; a user's mistake is one line, never a traceback."""
    sys.exit(call(argv))


def call(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        result: Any = cli.main(args=argv, prog_name="collbench", standalone_mode=False)
        sys.stdout.flush()
    except CollbenchError as error:
        click.echo(f"collbench: {error}", err=True)
        return error.code
    except click.exceptions.Abort:
        click.echo("collbench: interrupted", err=True)
        return Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return Exit.USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.OK
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        click.echo(f"collbench: the output cannot be written: {error.strerror}", err=True)
        return Exit.FAILED
    return int(result) if isinstance(result, int) else Exit.OK
