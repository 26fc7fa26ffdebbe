"""From a sweep file to spaces: every name and value checked against the registry.

A value that this version of the library does not know, or a variable that is pinned in the
environment, is left out with a note. What is wrong in itself is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collbench.errors import CollbenchError
from collbench.job import Settings
from collbench.knobs import HAZARDS, Version, knob, registry
from collbench.knobs.rules import check_settings, check_value
from collbench.space.axes import Axis, Key, Space, axis, key
from collbench.space.known import KNOWN_GOOD
from collbench.space.spec import AxisTable, Spec

MUST_HOLD = {
    "ll128": "stores of 128 bytes reach the peer whole on this path: true over NVLink, unproven "
    "over PCIe; run a bit-exact soak over all sizes before serving",
    "p2p": "direct peer access works on this machine: IOMMU off or in pass-through, ACS off on the "
    "path, no virtual machine in between",
    "graph-mixing": "a captured and an eager call on one communicator never overlap in the server",
    "loads-code": "every file that the profile names is the one that was measured",
    "numerics": "a change of the summation order is acceptable",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The spaces of a sweep on one machine."""

    space: Space
    """Without hazards."""
    hazards: Mapping[str, Space] = field(default_factory=dict)
    """Allowed hazard -> the axes of the second study, on top of the safe winner."""
    not_searched: tuple[str, ...] = ()
    """Hazards that the sweep knows and that were not allowed."""
    baseline: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What was left out and why, in plain words."""


def plan(
    spec: Spec,
    *,
    version: Version = (),
    environ: Mapping[str, str] | None = None,
    allow: Sequence[str] = (),
    keep_order: bool = False,
    nodes: int = 1,
) -> Plan:
    """Build the spaces of a sweep.

    Args:
        spec: The sweep file.
        version: Of the library as loaded; empty: unknown, taken as current.
        environ: The environment that launches inherit: what is set there is pinned.
        allow: Hazards that may be searched, in a second study.
        keep_order: The order of summation must not change.
        nodes: Hosts that a launch spans; over several, settings that act inside one are left out.

    Raises:
        CollbenchError: unknown variable, value outside the registry, a hazard that its axis does
            not declare, an unknown hazard, or nothing left to search.
    """
    for name in allow:
        if name not in HAZARDS:
            raise CollbenchError(
                f"--allow {name!r} is no hazard", fix=f"choose one of {', '.join(HAZARDS)}"
            )
    builder = _Builder(spec, version, environ or {}, keep_order, nodes)
    safe: list[Axis] = []
    risky: dict[str, list[Axis]] = {}
    for index, table in enumerate(spec.table.axis):
        built = builder.axis(table, index)
        if len(built.choices) < 2:
            continue
        if built.hazard:
            risky.setdefault(built.hazard, []).append(built)
        else:
            safe.append(built)
    builder.no_variable_twice([*safe, *(a for axes in risky.values() for a in axes)])
    if builder.ordered_out:
        builder.notes.append("what changes the order of summation is left out (--keep-order)")
    if not safe:
        raise CollbenchError(
            f"{spec.path}: axis: nothing is left to search: {'; '.join(builder.notes)}",
            fix="leave --keep-order out, or add axes"
            if builder.ordered_out
            else "unset what is pinned, or add axes",
        )
    space = builder.space(safe)
    hazards = {name: builder.space(axes) for name, axes in risky.items() if name in allow}
    left_out = sorted(set(risky) - set(allow)) + (["numerics"] if builder.ordered_out else [])
    return Plan(
        space=space,
        hazards=hazards,
        not_searched=tuple(left_out),
        baseline={n: str(v) for n, v in spec.table.baseline.items()},
        notes=tuple(builder.notes),
    )


class _Builder:
    """Checks and builds the axes of one sweep file."""

    def __init__(
        self,
        spec: Spec,
        version: Version,
        environ: Mapping[str, str],
        keep_order: bool,
        nodes: int,
    ) -> None:
        self.spec, self.version, self.environ = spec, version, environ
        self.keep_order = keep_order
        self.nodes = nodes
        self.ordered_out = False
        self.notes: list[str] = []
        for name, value in spec.table.baseline.items():
            self._check({name: str(value)}, f"baseline.{name}", hazard="any")

    def axis(self, table: AxisTable, index: int) -> Axis:
        """Return one axis, without what is pinned or not in this version."""
        where = f"axis[{index}]"
        sets = self._sets(table, where)
        hazard = table.hazard or None
        if hazard is not None and hazard not in HAZARDS:
            raise self._wrong(f"{where}.hazard", hazard, f"one of {', '.join(HAZARDS)}")
        name = table.name or table.knob or table.least or table.most or where
        for settings in sets:
            self._check(settings, where, hazard=hazard)
        for variable in table.when:
            knob(variable, where=f"{self.spec.path}: {where}.when")
        usable = [s for s in sets if self._usable(s, name)]
        when = {n: tuple(str(v) for v in values) for n, values in table.when.items()}
        return axis(name, usable, when=when, hazard=hazard)

    def _sets(self, table: AxisTable, where: str) -> list[dict[str, str]]:
        forms = [bool(table.knob), bool(table.least or table.most), bool(table.choices)]
        if sum(forms) != 1:
            raise CollbenchError(
                f"{self.spec.path}: {where}: give exactly one of knob, least and most, or choices",
                fix='for example knob = "NCCL_PROTO" with values = ["LL", "Simple"]',
            )
        if table.knob:
            values = [str(v) for v in table.values]
            values = values or list(knob(table.knob, where=self._at(where, "knob")).candidates)
            return [{table.knob: value} for value in values]
        if table.choices:
            return [{n: str(v) for n, v in one.items()} for one in table.choices]
        if not (table.least and table.most):
            raise CollbenchError(
                f"{self.spec.path}: {where}: least and most belong together",
                fix='write least = "NCCL_MIN_NCHANNELS" and most = "NCCL_MAX_NCHANNELS"',
            )
        sets = [{table.least: str(v)} for v in table.least_only]
        sets += [{table.most: str(v)} for v in table.most_only]
        return sets + [{table.least: str(v), table.most: str(v)} for v in table.equal]

    def _at(self, where: str, field_name: str) -> str:
        return f"{self.spec.path}: {where}.{field_name}"

    def _check(self, settings: Settings, where: str, *, hazard: str | None) -> None:
        """Raise for what is wrong whatever the version: names, values, undeclared hazards."""
        for name, value in settings.items():
            entry = knob(name, where=f"{self.spec.path}: {where}")
            if entry.library not in (self.spec.table.library, "server"):
                raise self._wrong(
                    where, name, f"a variable of {self.spec.table.library}, not {entry.library}"
                )
            bad = [f for f in check_value(entry, value) if f.level == "invalid"]
            if bad:
                raise CollbenchError(
                    f"{self.spec.path}: {where}: {name}={value}: {bad[0].message}; "
                    f"allowed: {_allowed(name)}",
                    fix=bad[0].next,
                )
            danger = entry.hazard_of(value)
            if danger == "never" or (danger and hazard not in (danger, "any")):
                raise self._undeclared(where, name, value, danger)

    def _undeclared(self, where: str, name: str, value: str, danger: str) -> CollbenchError:
        if danger == "never":
            return CollbenchError(
                f"{self.spec.path}: {where}: {name}={value} is never searched",
                fix="take it out of the sweep",
            )
        return CollbenchError(
            f"{self.spec.path}: {where}: {name}={value} is a hazard ({danger})",
            fix=f'move it to an [[axis]] with hazard = "{danger}" and sweep with --allow {danger}',
        )

    def _usable(self, settings: Settings, axis_name: str) -> bool:
        pinned = sorted(n for n in settings if n in self.environ)
        if pinned:
            note = f"{pinned[0]} is pinned in the environment: fixed, part of the baseline"
            if note not in self.notes:
                self.notes.append(note)
            return False
        if self.nodes > 1 and all(registry()[n].scope == "node" for n in settings):
            note = f"{axis_name} acts inside one node: not searched over {self.nodes} nodes"
            if note not in self.notes:
                self.notes.append(note)
            return False
        if self.keep_order and any(registry()[n].numerics for n in settings):
            self.ordered_out = True
            return False
        fixed = {n: str(v) for n, v in self.spec.table.baseline.items()}
        if set(fixed) & set(settings):
            clash = sorted(set(fixed) & set(settings))[0]
            raise self._wrong(f"axis {axis_name}", clash, "not in [baseline] and in an axis")
        complete = dict(settings)
        for name in settings:
            complete |= dict(registry()[name].requires)
        faults = [f for f in check_settings(complete, self.version) if f.level == "invalid"]
        if faults:
            shown = ".".join(map(str, self.version)) or "current versions"
            self.notes.append(
                f"{' '.join(f'{n}={v}' for n, v in settings.items())} left out ({shown}): "
                f"{faults[0].message}"
            )
        return not faults

    def no_variable_twice(self, axes: Sequence[Axis]) -> None:
        """Raise where two axes set one variable."""
        seen: dict[str, str] = {}
        for one in axes:
            for name in sorted(one.variables):
                if name in seen:
                    raise self._wrong(
                        f"axis {one.name}", name, f"in one axis only (it is in {seen[name]} too)"
                    )
                seen[name] = one.name

    def space(self, axes: Sequence[Axis]) -> Space:
        """Return the space of some axes, with the seeds that it can express."""
        implied: dict[str, Key] = {}
        variables = {n for one in axes for n in one.variables}
        for name in variables:
            needs = {n: v for n, v in registry()[name].requires.items() if n not in variables}
            if needs:
                implied[name] = key(needs)
        space = Space(
            axes=tuple(axes),
            forbidden=tuple(key({n: str(v) for n, v in r.items()}) for r in self.spec.table.forbid),
            implied=implied,
        )
        given = self.spec.table.seeds
        wanted: list[dict[str, str]] = (
            [dict(s) for s in KNOWN_GOOD[self.spec.table.library]]
            if given is None
            else [{n: str(v) for n, v in s.items()} for s in given]
        )
        fitting = [s for s in wanted if space.contains(s)]
        if given is not None and len(fitting) < len(wanted) and not self.notes:
            odd = next(s for s in wanted if s not in fitting)
            raise self._wrong("seeds", str(odd), "settings that the axes can express")
        return Space(
            axes=space.axes,
            seeds=tuple(key(s) for s in fitting),
            forbidden=space.forbidden,
            implied=implied,
        )

    def _wrong(self, where: str, value: str, allowed: str) -> CollbenchError:
        return CollbenchError(
            f"{self.spec.path}: {where}: {value!r}: must be {allowed}", fix="see docs/search.md"
        )


def _allowed(name: str) -> str:
    entry = knob(name)
    if entry.elements:
        return f"lists of {', '.join(entry.elements)}"
    if entry.type == "enum" or (entry.values and entry.minimum is None):
        return ", ".join(entry.values)
    if entry.type == "bool":
        return "0, 1"
    if entry.minimum is not None:
        step = f", multiples of {entry.multiple}" if entry.multiple > 1 else ""
        return f"{entry.minimum} to {entry.maximum}{step}"
    return entry.type
