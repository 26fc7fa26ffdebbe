"""Writes the pages that are made from the code; ``--check`` says which are stale instead.

python docs/generate.py            write
python docs/generate.py --check    exit 1 and name what is stale
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from collbench.cli import cli
from collbench.errors import Exit

DOCS = Path(__file__).parent
NOTE = "<!-- made from the code by docs/generate.py: do not edit -->\n\n"

MEANINGS = {
    Exit.OK: 'Done; for `sweep` also "keep the default", for `compare` same or faster.',
    Exit.FAILED: "A launch, a process or the tool failed; `verify`: no such process.",
    Exit.USAGE: """A wrong argument or file; nothing was done. The message names file, field, value,
        what is allowed and the next step. `inspect`: something could not be read.""",
    Exit.FINDINGS: """`compare` slower; `check` regressed or no longer helps; `verify` different in
        some worker; `profile lint` and `inspect` findings; `diagnose --fail-on regression` a
        regression; `fleet` some machine deviates.""",
    Exit.UNDECIDED: """`bench` wrong data; `verify` unknown; `compare` too few launches; `diagnose
        --fail-on regression` undecided.""",
    Exit.NOT_COMPARABLE: "`compare` and `check`: machine, library or method differ.",
    Exit.TIMED_OUT: "`verify --wait`: time ran out before every worker was live.",
    Exit.REFUSED: "`run` refused: machine or library do not match, or settings conflict.",
    126: "`run`: the command was found but could not be executed, as env(1).",
    127: "`run`: the command was not found, as env(1).",
    Exit.INTERRUPTED: "Ctrl-C. A sweep goes on with `--resume`.",
}


def commands() -> str:
    """Return the reference of every command, from click."""
    text = [NOTE, "# Commands\n\n"]
    text.append(
        "`collbench bench`, `sweep` and `check` start torchrun as a child and return true exit "
        "codes; `torchrun -m collbench.sweep` and `torchrun -m collbench.bench` take the same "
        "arguments.\n\n"
        "PROFILE is a profile's directory, its `profile.env`, its id, or `current`, looked for in "
        "`$COLLBENCH_RESULTS`, `./results` and `/etc/collbench`.\n\n"
        "Progress and logs go to stderr. `NO_COLOR` and pipes get plain text.\n"
    )
    context = click.Context(cli, info_name="collbench")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        text += _command(command, f"collbench {name}", 2)
    return "".join(text)


def _command(command: click.Command, path: str, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"\n{'#' * level} {path}\n\n"
    yield _prose(command.help or "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"\n\n    {path} {usage}\n"
    given = [p for p in command.get_params(context) if isinstance(p, click.Option)]
    rows = [option.get_help_record(context) for option in given]
    options = [row for row in rows if row is not None]
    if options:
        yield "\n| option | |\n|---|---|\n"
        for names, words in options:
            yield f"| `{_cell(names)}` | {_cell(words)} |\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _command(child, f"{path} {name}", level + 1)


def _prose(text: str) -> str:
    """Return a click help text as Markdown: blocks after a backspace are kept as they are."""
    blocks = []
    for block in inspect.cleandoc(text).replace("\\b\n", "\b\n").split("\n\n"):
        if block.startswith("\b\n"):
            lines = block[2:].splitlines()
            head = [line for line in lines if not line.startswith(" ")]
            code = [f"    {line.strip()}" for line in lines if line.startswith(" ")]
            blocks.append("\n".join(head) + ("\n\n" + "\n".join(code) if code else ""))
        else:
            blocks.append(re.sub(r"\s+", " ", block))
    return "\n\n".join(blocks).replace("<", "&lt;")


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")


def exit_codes() -> str:
    """Return the page of exit codes."""
    rows = "".join(
        f"| {int(code)} | {_cell(meaning)} |\n" for code, meaning in sorted(MEANINGS.items())
    )
    return (
        f"{NOTE}# Exit codes\n\n| code | means |\n|---|---|\n{rows}\n"
        "`run` otherwise ends as the command it became: its exit code, its signals. Under a bare "
        "torchrun a shell sees 0 or 1 only; the document's `exit_code` has the true one.\n"
    )


LIBRARIES = {
    "nccl": "NCCL",
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "server": "Servers and what surrounds NCCL",
}
READ_AT = {
    "process": "once a process",
    "communicator": "per communicator",
    "library_load": "when the library loads",
}
HAZARD_WORDS = {
    "ll128": "any value that enables LL128 off NVLink: data may be wrong, silently",
    "p2p": "peer access beyond the default: hangs where IOMMU or ACS forbid it",
    "graph-mixing": "safe only where captured and eager calls of one communicator never overlap",
    "loads-code": "plugins and paths: a profile that names one is code",
    "numerics": "changes the order of summation; a hazard only with `--keep-order`",
    "never": "recognised, so that it can be read and linted, but never searched",
}


def knobs() -> str:
    """Return the page of all registered settings."""
    from collbench.knobs import registry

    text = [
        NOTE,
        "# Settings\n\n",
        "Every variable that collbench knows: only these can stand in a profile. `sweep` proposes "
        "those that its sweep file names; `profile lint` and `inspect` read all of them.\n\n",
        "| hazard | |\n|---|---|\n",
        *(f"| `{name}` | {words} |\n" for name, words in HAZARD_WORDS.items()),
    ]
    for library, title in LIBRARIES.items():
        entries = [entry for entry in registry().values() if entry.library == library]
        heads = [
            *("variable", "moves", "values", "default"),
            *("versions", "read", "hazard", "source"),
        ]
        text.append(f"\n## {title}\n\n| {' | '.join(heads)} |\n{'|---' * len(heads)}|\n")
        text += [f"| {' | '.join(map(_cell, _knob(entry)))} |\n" for entry in entries]
    return "".join(text)


def _knob(entry: Any) -> Iterator[str]:
    yield f"`{entry.name}`"
    yield entry.moves + ("" if entry.documented else " (undocumented)")
    values = ", ".join(f"`{value}`" for value in entry.values)
    limits = (entry.minimum, entry.maximum)
    span = "" if limits == (None, None) else f"{limits[0]} to {limits[1]}".replace("None", "any")
    yield "; ".join(part for part in (entry.type, span, values) if part)
    yield f"`{entry.default}`" if entry.default is not None else "automatic"
    since, until = (".".join(map(str, version)) for version in (entry.since, entry.until))
    versions = f"{since} to below {until}" if until else f"{since} on" if since else "all"
    yield versions if since or not until else f"below {until}"
    yield READ_AT[entry.read_at]
    some = [f"`{hazard}` for `{value}`" for value, hazard in entry.hazard_values.items()]
    order = ["`numerics`"] if entry.numerics else []
    yield ", ".join([*([f"`{entry.hazard}`"] if entry.hazard else []), *some, *order]) or "-"
    yield entry.source


def index(folder: str, title: str, lead: str) -> str:
    """Return the page that lists the Markdown pages of a folder by their titles."""
    rows = []
    for path in sorted((DOCS / folder).glob("*.md")):
        if path.name != "index.md":
            lines = path.read_text(encoding="utf-8").lstrip().splitlines()
            told = lines[2] if len(lines) > 2 and lines[2][:1].isalpha() else ""
            rows.append(f"- [{lines[0].lstrip('# ')}]({path.name}){': ' if told else ''}{told}\n")
    return f"{NOTE}# {title}\n\n{lead}\n\n{''.join(rows)}"


def schema(model: Any, name: str, title: str) -> str:
    """Return the JSON schema of a stored model."""
    from pydantic import TypeAdapter

    made = TypeAdapter(model).json_schema(mode="serialization")
    properties = made.get("properties", {})
    if "schema_" in properties:
        made["properties"] = {"schema": properties.pop("schema_"), **properties}
    made.pop("title", None)
    draft = "https://json-schema.org/draft/2020-12/schema"
    head = {"$schema": draft, "$id": f"collbench/{name}", "title": title}
    return json.dumps({**head, **made}, indent=2) + "\n"


def pages() -> dict[str, str]:
    """Return every generated page by its path below docs/."""
    from collbench.profiles import Profile
    from collbench.record import RunRecord

    return {
        "commands.md": commands(),
        "exit-codes.md": exit_codes(),
        "knobs.md": knobs(),
        "design/index.md": index(
            "design",
            "Design notes",
            "One decision a page: context, decision, consequences, what would change our mind.",
        ),
        "findings/index.md": index(
            "findings",
            "Findings",
            "What `inspect`, `diagnose`, `verify` and `profile lint` report: what it means, how to "
            "see it by hand, how to mend it, and what it is often confused with.",
        ),
        "schema/run.json": schema(RunRecord, "run.json", "A run record"),
        "schema/profile.json": schema(Profile, "profile.json", "profile.json of a profile"),
    }


def main() -> int:
    """Write the pages, or with ``--check`` name the stale ones."""
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        old = path.read_text(encoding="utf-8") if path.exists() else None
        if old == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        sys.stderr.write(f"stale: {', '.join(stale)}; run python docs/generate.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
