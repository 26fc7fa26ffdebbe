"""The search space: axes, conditions, and the sweep files that describe them.

Importing this package is cheap; `load_spec` and `plan` import pydantic when they are first used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from collbench.knobs import Version
from collbench.space.axes import Axis, Choice, Key, Space, axis, key

if TYPE_CHECKING:
    from collbench.space.build import Plan
    from collbench.space.spec import Spec

__all__ = ["Axis", "Choice", "Key", "Space", "axis", "key", "load_spec", "plan"]


def load_spec(source: str) -> Spec:
    """Read a sweep file or a shipped sweep; see `collbench.space.spec.load_spec`."""
    from collbench.space.spec import load_spec as load

    return load(source)


def plan(
    spec: Spec,
    *,
    version: Version = (),
    environ: Mapping[str, str] | None = None,
    allow: Sequence[str] = (),
    keep_order: bool = False,
) -> Plan:
    """Build the spaces of a sweep; see `collbench.space.build.plan`."""
    from collbench.space.build import plan as build

    return build(spec, version=version, environ=environ, allow=allow, keep_order=keep_order)
