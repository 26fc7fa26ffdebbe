"""Whether this machine and environment are those a profile was measured in, before a launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.knobs import Knob, registry
from collbench.live import conf_files, libraries
from collbench.live.text import printable
from collbench.profiles import Profile, check_names, profile_id
from collbench.profiles.store import Reference


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """One difference between the launch and the measurement."""

    code: str
    evidence: str
    next: str


def check_allowed(reference: Reference, environ: Mapping[str, str]) -> None:
    """Refuse what a launch must not set; what stands in the environment already is not set by it.

    Raises:
        CollbenchError: a name outside the registry, or one that loads code without the profile's
            mark.
    """
    from collbench.errors import CollbenchError, Exit

    try:
        check_names(reference.values, where=str(reference.path))
    except CollbenchError as error:
        raise CollbenchError(error.what, fix=error.fix, code=Exit.REFUSED) from error
    marked = reference.profile is not None and "loads-code" in reference.profile.hazards
    for name, value in reference.values.items():
        there = environ.get(name) == value
        if registry()[name].hazard == "loads-code" and not marked and not there:
            raise CollbenchError(
                f"{reference.path}: {name}={value!r:.80} names code or a file that decides for "
                "the library, and the profile has no mark for it",
                fix="take it out, or make the profile with: collbench sweep --allow loads-code",
                code=Exit.REFUSED,
            )


def mismatches(
    reference: Reference,
    command: Sequence[str],
    environ: Mapping[str, str],
    gpus: Sequence[Mapping[str, Any]] | None = None,
    driver: str | None = None,
) -> list[Mismatch]:
    """Return how a launch would differ from the measurement.

    Args:
        reference: The profile, or an env file (then only the environment is looked at).
        command: The command line to be started.
        environ: The environment before the profile is added.
        gpus: GPUs that CUDA will see, as `machine.probe.read_gpus` gives them; None: not looked.
        driver: Version of the driver.
    """
    found = _environment(reference, environ)
    profile = reference.profile
    if profile is not None:
        if profile.id != profile_id(profile):
            found.append(
                Mismatch(
                    code="env.profile_edited",
                    evidence="settings, scope or machine in profile.json are not those its id was "
                    "made of: what was measured was something else",
                    next="restore the file, or copy profile.env elsewhere and run that",
                )
            )
        if gpus is not None and profile.machine.get("gpus"):
            found += _machine(profile, gpus, driver)
        if profile.library.startswith("NCCL "):
            found += _library(profile, command, {**environ, **reference.values})
    return found


def _environment(reference: Reference, environ: Mapping[str, str]) -> list[Mismatch]:
    found = []
    profile = reference.profile
    for name, value in reference.values.items():
        if environ.get(name, value) != value and name != "COLLBENCH_PROFILE":
            found.append(
                Mismatch(
                    code="env.conflict",
                    evidence=f"{name} is {environ[name]} here, and becomes {value}",
                    next=f"unset {name}",
                )
            )
    # What a server writes itself need not be here yet; a sweep file's baseline must.
    written = profile is not None and profile.conditions.get("like", "none") != "none"
    for name, value in (profile.baseline if profile else {}).items():
        have = environ.get(name, value if written else None)
        if name not in reference.values and have != value:
            found.append(
                Mismatch(
                    code="env.baseline_differs",
                    evidence=f"{name} is {'not set' if have is None else have} here; "
                    f"it was measured with {value}",
                    next=f"set {name} to {value}, or sweep again without that baseline",
                )
            )
    known = {*reference.values, *(profile.baseline if profile else {})}
    for name, value in environ.items():
        entry = registry().get(name)
        if profile is not None and entry is not None and name not in known and _tunes(entry):
            found.append(
                Mismatch(
                    code="env.not_measured",
                    evidence=f"{name}={value} is set here and was not while measuring",
                    next=f"unset {name}, or sweep again with it set",
                )
            )
    for name, line in conf_files.effective({**environ, **reference.values}).items():
        if name.startswith("NCCL_"):
            found.append(
                Mismatch(
                    code="env.shadowed_by_conf",
                    evidence=f"{line.path}:{line.line} adds {name}={line.value}",
                    next="take the line out, or sweep again with it in place",
                )
            )
    return found


def _tunes(entry: Knob) -> bool:
    """Return whether a variable moves a measurement: pins, logs and markers do not count."""
    return entry.library in ("nccl", "openmpi", "mpich") and entry.hazard != "never"


def _machine(
    profile: Profile, gpus: Sequence[Mapping[str, Any]], driver: str | None
) -> list[Mismatch]:
    found = []
    stored = profile.machine["gpus"]
    check = "collbench check PROFILE   measures whether the profile still helps"
    if _kinds(stored) != _kinds(gpus):
        text = f"GPUs are {_shown(gpus)}; measured on {_shown(stored)}"
        found.append(Mismatch(code="topo.gpu_set_changed", evidence=text, next=check))
    elif _ids(stored) != _ids(gpus) and _ids(stored):
        text = "the GPUs are of the same kind, but other ones than those measured"
        found.append(Mismatch(code="topo.gpu_set_changed", evidence=text, next=check))
    nodes = [gpu.get("numa_node") for gpu in gpus]
    before = [gpu.get("numa_node") for gpu in stored]
    if len(nodes) == len(before) and nodes != before:
        text = f"NUMA nodes of the GPUs are {nodes}; measured with {before}"
        found.append(Mismatch(code="topo.placement_changed", evidence=text, next=check))
    links = [(gpu.get("link_gen_max"), gpu.get("link_width_max")) for gpu in gpus]
    past = [(gpu.get("link_gen_max"), gpu.get("link_width_max")) for gpu in stored]
    if len(links) == len(past) and links != past:
        text = f"PCIe links (generation, width) are {links}; measured with {past}"
        found.append(Mismatch(code="topo.placement_changed", evidence=text, next=check))
    old = profile.machine.get("driver")
    if driver and old and driver != old:
        text = f"driver {driver}; measured with {old}"
        found.append(Mismatch(code="stack.driver_changed", evidence=text, next=check))
    return found


def _library(
    profile: Profile, command: Sequence[str], environ: Mapping[str, str]
) -> list[Mismatch]:
    stored = profile.library.removeprefix("NCCL ").split("+")[0].strip()
    path = libraries.will_load(command[0], environ)
    version = libraries.version_of(path) if path is not None else None
    if version is None:
        where = f"{path} does not tell its version" if path else "no libnccl found"
        return [
            Mismatch(
                code="stack.nccl_unknown",
                evidence=f"{where} for {command[0]}; measured with {stored}",
                next="collbench verify PROFILE --log LOG   tells the version once it runs",
            )
        ]
    if version != stored:
        return [
            Mismatch(
                code="stack.nccl_version_changed",
                evidence=f"NCCL {version} will be loaded ({path}); measured with {stored}",
                next="collbench check PROFILE   measures whether the profile still helps",
            )
        ]
    return []


def _kinds(gpus: Sequence[Mapping[str, Any]]) -> Counter[str]:
    return Counter(str(gpu.get("name")) for gpu in gpus)


def _ids(gpus: Sequence[Mapping[str, Any]]) -> set[str]:
    return {str(gpu["uuid"]) for gpu in gpus if gpu.get("uuid")}


def _shown(gpus: Sequence[Mapping[str, Any]]) -> str:
    kinds = _kinds(gpus)
    return ", ".join(f"{count}x {printable(name)}" for name, count in kinds.items()) or "none"


def one_line(reference: Reference, found: Sequence[Mismatch]) -> str:
    """Return what `run` says before it starts the command."""
    if reference.profile is None:
        name = f"env file {printable(str(reference.path))}, without a fingerprint"
    else:
        name = f"profile {reference.id}"
    settings = " ".join(f"{n}={v}" for n, v in reference.settings.items())
    if not found:
        state = "as measured" if reference.profile else "nothing conflicts"
        return f"collbench run: {name}: {state}: {printable(settings)}"
    texts = "; ".join(f"{m.code}: {m.evidence}" for m in found)
    return f"collbench run: {name}: MISMATCH: {printable(texts, 2000)}"
