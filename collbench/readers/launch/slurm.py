"""Slurm: what sbatch takes along from the submitting shell, and srun from the job's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from collbench.readers.launch import Delivery, Env, Var, find
from collbench.readers.launch.docker import is_run, run_delivery
from collbench.readers.launch.walk import Started, Walk
from collbench.readers.text import Section

_DIRECTIVE = re.compile(r"#SBATCH\s+(.+?)\s*$")
_VALUED = frozenset("ADJKMNOPQRSTUVWbcdegijkmnopqrtwx")


def is_job(section: Section) -> bool:
    """Return whether a section is a job script."""
    return re.search(r"^#SBATCH\s", section.text, re.MULTILINE) is not None


def slurm_delivery(
    job: Section | None, submit: Started | None, step: Started | None, sections: Sequence[Section]
) -> Delivery:
    """Return what the server gets.

    Args:
        job: The job script, where there is one.
        submit: The sbatch command, where it is shown.
        step: An srun outside of a job script (then it is the submission).
        sections: All files of the snippet.
    """
    found = Delivery("slurm")
    env: Env = dict(submit.env) if submit else dict(step.env) if step else {}
    if submit and submit.lost_at:
        found.lost_at, found.lost_line = submit.lost_at, submit.line
    mode: str | None = None
    if submit is not None:
        job = _submitted(submit, sections) or job or _wrapped(submit)
    if job is not None:
        given = _directives(job)
        found.service = given.get("job-name", (None, 0))[0]
        where, line = job.base or "job", given.get("export", ("", job.start))[1]
        mode = given.get("export", (None, 0))[0]
        if submit is not None:
            options = _options(submit.words[1:])
            found.service = options.get("job-name", found.service)
            # The command line wins over the lines of the script.
            if "export" in options:
                mode, where, line = options["export"], submit.section.base or "submit", submit.line
        env = _exported(env, mode, found, where, line)
        walk = Walk(sections).give(env).run(job)
        found.line = job.start
        steps = [s for s in walk.started if s.words[0].rsplit("/", 1)[-1] == "srun"]
        if not steps:
            return _finish(found, walk.started[-1] if walk.started else None, walk, sections)
        step = steps[-1]
        if "SLURM_EXPORT_ENV" in walk.variables or "unset SLURM_EXPORT_ENV" in job.text:
            mode = None
    if step is None:
        found.env = env
        return found
    options = _options(step.words[1:])
    found.service = found.service or options.get("job-name")
    own = options.get("export", mode)
    found.line = step.line
    # sbatch --export=... sets SLURM_EXPORT_ENV, which srun takes as its own default.
    found.env = _exported(step.env, own, found, step.section.base or "job", step.line)
    command = _after_options(step.words[1:])
    walk = Walk(sections).give(found.env)
    if command and (target := find(sections, command[0])) is not None:
        walk.run(target)
    else:
        walk.start(command, found.env, step.line, step.section, None)
    return _finish(found, walk.started[-1] if walk.started else None, walk, sections)


def _submitted(submit: Started, sections: Sequence[Section]) -> Section | None:
    """Return the script that sbatch is given; it may be without any ``#SBATCH`` line."""
    named = (find(sections, word) for word in submit.words[1:] if not word.startswith("-"))
    return next((s for s in named if s and (is_job(s) or s.text.startswith("#!"))), None)


def _wrapped(submit: Started) -> Section | None:
    """Return the script of ``sbatch --wrap``."""
    text = _options(submit.words[1:]).get("wrap")
    return Section(submit.section.name, text + "\n", submit.line) if text else None


def _finish(
    found: Delivery, last: Started | None, walk: Walk, sections: Sequence[Section]
) -> Delivery:
    found.env = last.env if last else walk.env()
    found.arguments = last.words if last else []
    if last and is_run(last.words):
        inner = run_delivery(last, sections)
        found.env, found.arguments = inner.env, inner.arguments
    if last and last.lost_at and not found.lost_at:
        found.lost_at, found.lost_line = last.lost_at, last.line
    return found


def _exported(env: Env, mode: str | None, found: Delivery, where: str, line: int) -> Env:
    """Return what ``--export=MODE`` lets through, and note where variables get lost."""
    if mode is None:
        return env
    words = [word.strip() for word in mode.split(",") if word.strip()]
    kept: Env = {}
    if "ALL" in (word.upper() for word in words):
        kept = dict(env)
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            # A value of the user's environment wins over the explicit one.
            kept.setdefault(name, Var(value, "script", line))
        elif name in env:
            kept[name] = env[name]
    if set(env) - set(kept) and not found.lost_at:
        found.lost_at, found.lost_line = f"{where}: --export={mode}", line
    return kept


def _directives(job: Section) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(job.text.split("\n"), job.start):
        if line.strip() and not line.startswith("#"):
            break
        match = _DIRECTIVE.match(line)
        if match:
            for name, value in _options(match[1].partition(" #")[0].split()).items():
                found[name] = (value, number)
    return found


_LONG = {"J": "job-name"}


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return option -> value of the options in front of a command."""
    found: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].lstrip("-").partition("=")
        short = not words[at].startswith("--")
        if short and len(name) > 1:
            name, value, equals = name[0], name[1:], "="
        takes = name in _VALUED if short else name in ("export", "job-name", "export-file", "wrap")
        if not equals and takes and at + 1 < len(words):
            at += 1
            value = words[at]
        found[_LONG.get(name, name)] = value.strip("\"'")
        at += 1
    return found


def _after_options(words: Sequence[str]) -> list[str]:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 1
        if (len(word) == 2 and word[1] in _VALUED) or word in (
            "--export",
            "--job-name",
            "--ntasks",
            "--nodes",
            "--gres",
            "--container-image",
        ):
            at += 1
    return list(words[at:])
