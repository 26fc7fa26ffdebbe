"""`collbench profile`: show, list, lint, emit, activate, rollback."""

from __future__ import annotations

from pathlib import Path

import click

from collbench.cli.document import deliver, json_options

_CONTEXT = {"help_option_names": ["-h", "--help"]}
_at = click.option(
    "--at", type=click.Path(path_type=Path), metavar="DIR", help="Folder whose 'current' is meant."
)


@click.group(context_settings=_CONTEXT)
def profile() -> None:
    r"""Show, list, lint, emit, activate or roll back profiles.

    \b
    Example:
      collbench profile list
      collbench profile emit current --target systemd
      collbench profile activate 3f2a9c10b4de --at /etc/collbench
    """


@profile.command(context_settings=_CONTEXT)
@click.argument("reference", metavar="PROFILE")
@json_options
def show(reference: str, as_json: bool, json_file: Path | None) -> int:
    r"""Show one profile: settings, gain, what it is bound to.

    \b
    Example:
      collbench profile show current
    """
    from collbench.cli.profile_text import show_document, show_lines
    from collbench.profiles.store import load

    loaded = load(reference)
    text = "\n".join(show_lines(loaded)) + "\n"
    return deliver(show_document(loaded), text, as_json=as_json, json_file=json_file)


@profile.command(
    "list", short_help="List the profiles that can be found.", context_settings=_CONTEXT
)
@json_options
def list_(as_json: bool, json_file: Path | None) -> int:
    r"""List the profiles in $COLLBENCH_RESULTS, ./results and /etc/collbench.

    \b
    Example:
      collbench profile list
    """
    from collbench.cli.profile_text import list_document, list_lines

    document = list_document()
    text = "\n".join(list_lines(document)) + "\n"
    return deliver(document, text, as_json=as_json, json_file=json_file)


@profile.command(context_settings=_CONTEXT)
@click.argument("file", metavar="FILE")
@click.option(
    "--like",
    type=click.Choice(["none", "sglang", "vllm"]),
    default="none",
    show_default=True,
    help="Server that will be started with it.",
)
@click.option(
    "--nccl-version",
    metavar="V",
    help="NCCL that will read it. Default: the profile's, else the newest known.",
)
@json_options
def lint(
    file: str, like: str, nccl_version: str | None, as_json: bool, json_file: Path | None
) -> int:
    r"""Say what is wrong with an env file or a profile. Needs no GPU.

    Exit code: 0 nothing found, 3 findings.

    \b
    Example:
      collbench profile lint my.env --like sglang --nccl-version 2.28.9
    """
    from collbench.cli.profile_text import lint_reference
    from collbench.live.text import printable

    found = lint_reference(file, like=like, nccl_version=nccl_version)
    code = 3 if found else 0
    document = {
        "schema": 1,
        "command": "profile lint",
        "exit_code": code,
        "file": printable(file),
        "findings": [{**f, "evidence": printable(f["evidence"])} for f in found],
    }
    lines = []
    for f in found:
        where = f"{file}:{f['line']}" if f["line"] else file
        lines.append(f"{printable(where)}: {f['code']}: {printable(f['evidence'])}")
        lines.append(f"  next: {f['next']}")
    text = "\n".join(lines or [f"{printable(file)}: nothing found"]) + "\n"
    return deliver(document, text, as_json=as_json, json_file=json_file)


@profile.command(context_settings=_CONTEXT)
@click.argument("reference", metavar="PROFILE")
@click.option(
    "--target",
    required=True,
    type=click.Choice(
        ["env", "docker", "compose", "systemd", "k8s", "slurm", "shell", "nccl-conf"]
    ),
    help="What is going to start the server.",
)
@click.option(
    "--service",
    default="server",
    show_default=True,
    metavar="NAME",
    help="Unit, container or deployment in the snippet.",
)
@click.option("--env-path", metavar="PATH", help="Path of the env file as the target will see it.")
@click.option("--ray", is_flag=True, help="Name the variables that Ray has to copy.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write into FILE."
)
def emit(
    reference: str, target: str, service: str, env_path: str | None, ray: bool, out: Path | None
) -> int:
    r"""Print a profile in the form that a launcher takes, to be pasted.

    \b
    Example:
      collbench profile emit current --target systemd --service sglang
      collbench profile emit current --target k8s -o profile.yaml
    """
    from collbench.cli.profile_text import stable_path
    from collbench.emit import render
    from collbench.profiles.store import load

    loaded = load(reference)
    text = render(
        target, loaded, service=service, env_path=env_path or stable_path(loaded), ray=ray
    )
    if out is None:
        click.echo(text, nl=False)
    else:
        from collbench.files import refuse_inputs, write_atomic

        own = loaded.path.rglob("*") if loaded.path.is_dir() else [loaded.path]
        refuse_inputs(out, own, where="-o")
        write_atomic(out, text)
    return 0


@profile.command(context_settings=_CONTEXT)
@click.argument("reference", metavar="PROFILE")
@_at
def activate(reference: str, at: Path | None) -> int:
    r"""Make 'current' mean this profile, so that units need not change.

    With --at DIR a profile that lies elsewhere is copied there first.

    \b
    Example:
      collbench profile activate 3f2a9c10b4de --at /etc/collbench
    """
    from collbench.profiles import current

    link, before = current.activate(reference, at=at)
    click.echo(f"{link} -> {link.readlink()}" + (f" (before: {before})" if before else ""))
    click.echo("running servers keep their environment: restart them, then collbench verify")
    return 0


@profile.command(context_settings=_CONTEXT)
@_at
def rollback(at: Path | None) -> int:
    r"""Make 'current' mean the profile of before; again: back.

    \b
    Example:
      collbench profile rollback --at /etc/collbench
    """
    from collbench.profiles import current

    link, now, before = current.rollback(at=at)
    click.echo(f"{link} -> {now} (before: {before})")
    click.echo("running servers keep their environment: restart them, then collbench verify")
    return 0
