"""A profile in the form that a launcher takes: text to paste, one function a target.

The universal env file is best wherever it can be named; the snippets name it. Values that it
cannot hold are written into the snippet itself, quoted as that target needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from collbench.errors import CollbenchError
from collbench.profiles.env_file import NAME, representable
from collbench.profiles.store import Reference

_PATHLESS = ("env", "shell", "nccl-conf", "k8s")
"""Targets that hold the variables themselves and name no file of this machine."""
TARGETS = ("env", "docker", "compose", "systemd", "k8s", "slurm", "shell", "nccl-conf")
RAY_COPY = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
RAY_PREFIXES = ("NCCL_", "VLLM_", "UCX_", "HF_")
"""Prefixes that vLLM copies to Ray workers by itself."""
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}")
_SERVICE_OF = {
    "docker": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+"), "letters, digits, '_', '.', '-'"),
    "compose": (re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_.-]+"), "letters, digits, '_', '.', '-'"),
    "k8s": (
        re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]*[a-z0-9])?"),
        "small letters, digits and '-' inside, not digits alone",
    ),
}
"""What else a target asks of a name; without a letter it is a number to YAML."""
_GUARD = "profile-guard"
"""Name of the guard's own service or container."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    """What a target is rendered from."""

    values: Mapping[str, str]
    """Everything to set, markers included, in order."""
    env_path: str
    """Absolute path of the env file, as it will be named."""
    profile_path: str
    """What `verify` is to be given."""
    profile_id: str
    service: str
    """Name of the unit, container or deployment."""
    nccl: tuple[int, ...]
    """Version of the profile's NCCL; empty if unknown."""
    nranks: int
    """Ranks of the profile; 0 if unknown."""

    @property
    def title(self) -> str:
        """The profile in a few words."""
        return f"collbench profile {self.profile_id}" if self.profile_id else "collbench"

    @property
    def universal(self) -> bool:
        """Whether the env file can hold every value."""
        return all(map(representable, self.values.values()))


def render(
    target: str,
    reference: Reference,
    *,
    service: str = "server",
    env_path: str | None = None,
    ray: bool = False,
) -> str:
    """Return the text for one target.

    Args:
        target: One of `TARGETS`.
        reference: The profile or env file.
        service: Name of the unit, container or deployment in the example.
        env_path: Path of the env file as the target will see it.
        ray: Also name the variables that Ray has to copy to its workers.

    Raises:
        CollbenchError: an unknown target, a wrong name or path, or a value that the target cannot
            carry.
    """
    from collbench.emit import containers, plain, units

    renderers: dict[str, Callable[[Snippet], str]] = {
        "env": plain.env,
        "shell": plain.shell,
        "nccl-conf": plain.nccl_conf,
        "docker": containers.docker,
        "compose": containers.compose,
        "k8s": containers.k8s,
        "systemd": units.systemd,
        "slurm": units.slurm,
    }
    if target not in renderers:
        raise CollbenchError(
            f"--target: {target!r} is not known", fix=f"choose one of {', '.join(TARGETS)}"
        )
    pattern, allowed = _SERVICE_OF.get(target, (_SERVICE, "letters, digits, '_', '.', '@', '-'"))
    if not (_SERVICE.fullmatch(service) and pattern.fullmatch(service)) or service == _GUARD:
        raise CollbenchError(
            f"--service: {service!r:.80} is not a name of a server for {target}", fix=allowed
        )
    values = dict(reference.values)
    if ray:
        names = [name for name in values if not name.startswith(RAY_PREFIXES)]
        values[RAY_COPY] = ",".join(names)
    for name, value in values.items():
        if not NAME.fullmatch(name) or not value.isprintable():
            raise CollbenchError(
                f"{name!r:.60}: a name or value with control characters fits no target",
                fix="take it out of the profile",
            )
    named = env_path is not None or target not in _PATHLESS
    return renderers[target](_snippet(reference, values, service, env_path, checked=named))


def _snippet(
    reference: Reference,
    values: Mapping[str, str],
    service: str,
    env_path: str | None,
    *,
    checked: bool,
) -> Snippet:
    from collbench.knobs import parse_version

    path = env_path or str(reference.env_path.absolute())
    # docker and compose part a mount at its colons
    plain = path.startswith("/") and representable(path) and ":" not in path
    if checked and not plain:
        raise CollbenchError(
            f"--env-path: {path!r:.120}: has to be absolute, of letters, digits and ._/+@%^,-",
            fix="collbench profile activate PROFILE --at /etc/collbench   gives it a plain path",
        )
    profile = reference.profile
    in_directory = profile is not None and path.endswith("/profile.env")
    return Snippet(
        values=values,
        env_path=path,
        profile_path=path.removesuffix("/profile.env") if in_directory else path,
        profile_id=reference.id if re.fullmatch(r"[0-9a-f]{12}", reference.id) else "",
        service=service,
        nccl=parse_version(profile.library.removeprefix("NCCL ")) if profile else (),
        nranks=profile.scope.nranks if profile else 0,
    )
