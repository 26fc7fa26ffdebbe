"""The facts of a launch snippet: which launcher, what arrives, what is missing or different."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from collbench.readers import Given, Reading, UnreadableError
from collbench.readers.env_files import nccl_conf
from collbench.readers.launch import Delivery, Env, Var, docker, k8s, slurm, systemd
from collbench.readers.launch.compose import compose_delivery
from collbench.readers.launch.walk import Started, Walk
from collbench.readers.launch.wrappers import RUNTIMES
from collbench.readers.text import Section

_ASSIGNMENT = re.compile(r"(?:export\s+)?[A-Za-z_]\w*[ \t]*=")
_BARE = re.compile(r"(?:export\s+)?[A-Za-z_]\w*\s*$")
_STARTS = re.compile(
    r"^(?:\$ )?(?:[A-Za-z_]\w*=\S* +)*(?:(?:exec|nohup|env|sudo(?: -\w+)*) +)*"
    r"(?:docker|podman|nerdctl|sbatch|srun|kubectl|mpirun|mpiexec|torchrun|python3?|vllm|sglang)"
    r" +[\w./-]",
    re.MULTILINE,
)
"""A line that starts something, with variables in front of it or without."""
_PROMPT = re.compile(r"(?:[\w.-]{1,64}@[\w.-]{1,64}[: ]\S{0,200})?[$] +(?=\S)")
_SCRIPT = re.compile(r"\.(?:sh|bash|sbatch|slurm|job)$")


def part_of(section: Section) -> str | None:
    """Return what a section is to a launch, or None.

    One of compose, k8s, unit, inspect, image, conf, env, script.
    """
    text, base = section.text, section.base
    if re.search(r"^services:", text, re.MULTILINE) and not text.lstrip().startswith("{"):
        return "compose"
    if k8s.is_manifest(section):
        return "k8s"
    if systemd.is_unit(section):
        return "unit"
    if text.lstrip().startswith(("[", "{")) and '"Config"' in text and '"Env"' in text:
        return "inspect"
    if base in ("nccl.conf", ".nccl.conf"):
        return "conf"
    if slurm.is_job(section) or text.startswith("#!") or _SCRIPT.search(base):
        return "script"
    if docker.is_dockerfile(section):
        return "image"
    if _STARTS.search(text):
        return "script"
    if _is_env(text):
        return "env"
    if re.search(r"(?:^|[\s;&/])(?:docker|podman|sbatch|srun|kubectl)\s+\S", text, re.MULTILINE):
        return "script"
    return "env" if base.endswith(".env") else None


def _is_env(text: str) -> bool:
    """Return whether a text is nothing but assignments and bare names."""
    lines = [line.lstrip("\ufeff \t") for line in text.split("\n") if line.strip("\ufeff \t\r")]
    lines = [line for line in lines if line[:1] not in ("#", ";")]
    assigned = [line for line in lines if _ASSIGNMENT.match(line)]
    return bool(assigned) and all(_ASSIGNMENT.match(li) or _BARE.match(li) for li in lines)


def launch_reading(sections: Sequence[Section], given: Given) -> Reading:
    """Return the facts of a launch snippet.

    Raises:
        UnreadableError: nothing in it starts or describes a server.
    """
    sections = [_without_prompts(section) for section in sections]
    parts: dict[str, list[Section]] = {}
    for section in sections:
        parts.setdefault(part_of(section) or "other", []).append(section)
    scripts = parts.get("script", [])
    found = _deliver(parts, scripts, sections)
    conf = _conf(parts.get("conf", []), given)
    adds = {name: var for name, var in conf.items() if name not in found.env}
    facts: dict[str, Any] = {
        "launcher": found.launcher,
        "service": found.service,
        "env_in_service": {name: var.value for name, var in found.env.items()},
    }
    if found.environment_files is not None:
        facts["environment_files"] = found.environment_files
    if adds:
        facts["nccl_conf_adds"] = {name: var.value for name, var in adds.items()}
    signs: dict[str, Any] = {"delivery": found, "conf": conf, "unknown": []}
    reaches = False
    if given.profile is not None:
        reaches = _compare(facts, signs, given.profile, found, adds)
    if found.lost_at and (given.profile is None or facts.get("missing")):
        facts["lost_at"] = found.lost_at
    facts["profile_reaches_worker"] = reaches
    lines = {name: var.line for name, var in (found.env | adds).items() if var.line is not None}
    where = {f"var:{name}": line for name, line in lines.items()}
    for key, line in (("service", found.line), ("lost", found.lost_line)):
        if line is not None:
            where[key] = line
    for name, line in found.cut.items():
        where[f"cut:{name}"] = line
    return Reading(kind="launch", facts=facts, signs=signs, lines=where)


def _without_prompts(section: Section) -> Section:
    """Return a copy of a terminal as the script of its commands, without what they printed."""
    lines = section.text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if not _PROMPT.match(first):
        return section
    kept, goes_on = [], False
    for line in lines:
        prompt = _PROMPT.match(line)
        kept.append(line[prompt.end() :] if prompt else line if goes_on else "")
        goes_on = kept[-1].rstrip().endswith("\\")
    return Section(section.name, "\n".join(kept), section.start)


def _compare(
    facts: dict[str, Any],
    signs: dict[str, Any],
    profile: Any,
    found: Delivery,
    adds: Env,
) -> bool:
    """Add missing, differs and quoted; return whether the whole profile arrives."""
    arrives = adds | found.env
    missing, differs, quoted = [], [], []
    for name, want in sorted(profile.items()):
        var = arrives.get(name)
        if var is None:
            missing.append(name)
        elif var.value is None:
            signs["unknown"].append(name)
        elif var.value != want:
            differs.append(name)
            if var.value[:1] in ("'", '"') and var.value.strip("'\"") == want:
                quoted.append(name)
    if found.unseen:
        # What a file that is not shown would bring is not missing, it is unknown.
        signs["unknown"] += missing
        missing = []
    for key, names in (("missing", missing), ("differs", differs), ("quoted", quoted)):
        if names:
            facts[key] = names
    return not (missing or differs or signs["unknown"])


def _deliver(
    parts: dict[str, list[Section]], scripts: list[Section], sections: Sequence[Section]
) -> Delivery:
    jobs = [section for section in scripts if slurm.is_job(section)]
    named = " ".join(s.text for p in ("image",) for s in parts.get(p, []))
    entry = " ".join(docker.entrypoint(sections))
    tops = [s for s in scripts if s not in jobs and not (named and s.base and s.base in entry)]
    walk = Walk(sections)
    for section in tops:
        walk.run(section)
    if not parts.get("script") and not any(
        p in parts for p in ("compose", "k8s", "unit", "inspect")
    ):
        for section in parts.get("other", []):
            walk.run(section)
    found = _launcher(parts, jobs, walk, sections)
    found.cut = walk.cut
    return found


def _launcher(
    parts: dict[str, list[Section]], jobs: list[Section], walk: Walk, sections: Sequence[Section]
) -> Delivery:
    if "compose" in parts:
        caller = next((s for s in reversed(walk.started) if _calls_compose(s)), None)
        found = compose_delivery(
            sorted(parts["compose"], key=lambda s: "override" in s.base),
            sections,
            caller.env if caller else walk.env(),
            _fillers(caller.words) if caller else (),
        )
        if caller and caller.lost_at:
            found.lost_at, found.lost_line = caller.lost_at, caller.line
        calls = [started for started in walk.started if _calls_compose(started)]
        if calls and all(_keeps_containers(started.words) for started in calls):
            found.asked |= set(found.env)
            found.env = {}
            _restart(found, calls[-1])
        return found
    if "unit" in parts:
        return systemd.unit_delivery(parts["unit"], sections)
    if "k8s" in parts:
        return k8s.k8s_delivery(parts["k8s"], sections)
    submit = next((s for s in reversed(walk.started) if _verb(s) == "sbatch"), None)
    step = next((s for s in reversed(walk.started) if _verb(s) == "srun"), None)
    if jobs or submit or step:
        job = jobs[0] if jobs else None
        return slurm.slurm_delivery(job, submit, step, sections)
    run = next((s for s in reversed(walk.started) if docker.is_run(s.words)), None)
    if run is not None:
        return docker.run_delivery(run, sections)
    again = next((s for s in reversed(walk.started) if docker.is_restart(s.words)), None)
    if "inspect" in parts:
        found = docker.inspect_delivery(parts["inspect"][0])
        if again is not None:
            _restart(found, again)
        return found
    if again is not None:
        found = Delivery("docker_run", again.words[-1], line=again.line)
        _restart(found, again)
        return found
    if walk.started:
        last = walk.started[-1]
        inside = (last.lost_at or "").endswith(" exec")
        return Delivery(
            "shell", env=last.env, lost_at=last.lost_at, lost_line=last.line, line=last.line,
            arguments=last.words, unseen=["what the container was made with"] if inside else [],
        )  # fmt: skip
    raise UnreadableError("nothing in it starts or describes a server")


def _restart(found: Delivery, again: Started) -> None:
    words = again.words[: 3 if _calls_compose(again) else 2]
    found.lost_at = f"{again.section.base or 'script'}: {' '.join(words)}"
    found.lost_line = again.line


def _verb(started: Started) -> str:
    return started.words[0].rsplit("/", 1)[-1]


def _calls_compose(started: Started) -> bool:
    verb = _verb(started)
    return verb in ("docker-compose", "podman-compose") or (
        verb in RUNTIMES and started.words[1:2] == ["compose"]
    )


def _fillers(words: Sequence[str]) -> list[str]:
    """Return the files of ``compose --env-file``."""
    found = [after for word, after in pairwise(words) if word == "--env-file"]
    return found + [w.partition("=")[2] for w in words if w.startswith("--env-file=")]


def _keeps_containers(words: Sequence[str]) -> bool:
    """Return whether compose starts containers that exist, with the environment they have."""
    return not {"up", "run", "create"} & set(words) and bool({"restart", "start"} & set(words))


def _conf(sections: Sequence[Section], given: Given) -> Env:
    """Return what nccl.conf files set: the user's own before /etc, the first line wins."""
    version = tuple(int(part) for part in re.findall(r"\d+", given.nccl_version or "")[:3])
    found: Env = {}
    for section in sorted(sections, key=lambda s: s.name.startswith("/etc/")):
        for name, var in docker.from_values(nccl_conf(section.text, version), section).items():
            found.setdefault(name, Var(var.value, "conf", var.line))
    return found
