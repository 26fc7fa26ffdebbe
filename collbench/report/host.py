"""Machine, libraries and method; what NCCL chose; the files to copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from collbench.job import RankFacts
from collbench.report.links import link_text
from collbench.report.parts import Cell, Part, Section, Snippet, Table, Text
from collbench.report.sources import PLACE
from collbench.report.story import Story
from collbench.report.trials import named
from collbench.units import format_size

FEW_WARNINGS = 3
"""So many are shown at once; more become a list to open."""


def choices_section(story: Story) -> Section:
    """Return the chapter on what NCCL said it chose, from proof runs; empty without one."""
    rows: list[list[Cell]] = []
    transports: list[str] = []
    for arm in story.arms:
        counts: Counter[tuple[int, str, str, str, str]] = Counter()
        used: Counter[str] = Counter()
        for run in arm.runs:
            for c in run.choices:
                key = (
                    c.size_bytes,
                    c.collective or "not told",
                    c.algorithm,
                    c.protocol,
                    c.channels,
                )
                counts[key] += c.count
            used.update(run.transports)
        for (size, collective, algorithm, protocol, channels), count in sorted(counts.items()):
            rows.append(
                [arm.name, collective, format_size(size), algorithm, protocol, channels, count]
            )
        if used:
            listed = ", ".join(f"{name} {count}" for name, count in used.most_common())
            transports.append(f"{arm.name}: {listed}")
    parts: list[Part] = []
    if rows:
        parts.append(
            Table(
                caption="What NCCL said it chose (a run of its own with NCCL_DEBUG, never timed)",
                columns=["arm", "collective", "size", "algorithm", "protocol", "channels", "lines"],
                rows=rows,
            )
        )
    if transports:
        parts.append(Text(text="Transports (connections): " + "; ".join(transports) + "."))
    return Section(name="choices", title="What NCCL chose", parts=parts)


def warnings_table(warnings: Sequence[str]) -> Table:
    """Return warnings as a folded list, each once."""
    found = list(dict.fromkeys(warnings))
    return Table(
        caption=f"Warnings ({len(found)})",
        columns=["warning"],
        rows=[[text] for text in found],
        folded=True,
    )


def machine_section(story: Story) -> Section:
    """Return the chapter on machine and method."""
    parts: list[Part] = []
    if len(story.warnings) > FEW_WARNINGS:
        parts.append(warnings_table(story.warnings))
    else:
        parts += [Text(text=text, kind="warning") for text in story.warnings]
    machine = story.machine
    if machine is not None:
        facts: list[tuple[str, Cell]] = [
            ("host", machine.host),
            ("driver", machine.driver),
            ("CUDA", machine.cuda),
            ("torch", machine.torch),
            ("communication library", machine.library),
            ("library file", machine.library_path),
            ("CPU", f"{machine.cpu}, {machine.cpus} CPUs" if machine.cpu else machine.cpus or None),
            ("NUMA nodes", machine.numa_nodes),
            ("kernel", machine.kernel),
            ("kernel command line (PCI, IOMMU)", machine.cmdline),
            ("/dev/shm", format_size(machine.shm_bytes) if machine.shm_bytes else None),
            ("nccl.conf", ", ".join(machine.nccl_conf) or "none"),
            ("Python", machine.python),
        ]
        parts.append(_pairs("Machine and libraries", facts))
        if machine.gpus:
            parts.append(_gpus(story))
    ranks = _ranks(story)
    if ranks:
        parts.append(ranks)
    memory = _memory(story)
    if memory:
        parts.append(Text(text=memory))
    parts.append(_method(story))
    return Section(name="machine", title="Machine and method", parts=parts)


def _gpus(story: Story) -> Table:
    assert story.machine is not None
    rows: list[list[Cell]] = [
        [
            gpu.index,
            gpu.name,
            gpu.pci,
            gpu.numa_node,
            link_text(gpu),
            format_size(gpu.memory_bytes) if gpu.memory_bytes else None,
        ]
        for gpu in story.machine.gpus
    ]
    return Table(
        caption="GPUs",
        columns=["GPU", "name", "PCI address", "NUMA node", "link (maximum)", "memory"],
        rows=rows,
    )


def _ranks(story: Story) -> Table | None:
    """Return where the ranks of the last launch of every arm ran, and what memory they took."""
    rows: list[list[Cell]] = []
    for arm in story.arms:
        facts: tuple[RankFacts, ...] = next((r.ranks for r in reversed(arm.runs) if r.ranks), ())
        for fact in facts:
            memory = format_size(fact.memory_bytes) if fact.memory_bytes else None
            place: list[Cell] = [fact.device, fact.numa_node, fact.cpus, fact.bound, memory]
            rows.append([arm.name, fact.rank, fact.host, *place])
    if not rows:
        return None
    return Table(
        caption="Where the ranks ran",
        columns=["arm", "rank", "host", "device", "NUMA node", "CPUs", "bound", "GPU memory"],
        rows=rows,
        folded=True,
    )


def _memory(story: Story) -> str:
    """Return what every arm takes of the GPU memory of a rank: channels eat KV cache."""
    found = []
    for arm in story.arms:
        used = [f.memory_bytes for run in arm.runs for f in run.ranks if f.memory_bytes]
        if used:
            found.append(f"{arm.name} {format_size(round(median(used)))}")
    return f"GPU memory of a rank with its communicator up: {', '.join(found)}." if found else ""


def _planted(story: Story) -> str | None:
    skew = story.record.job.skew if story.record else None
    return f"rank {skew.rank}, {skew.delay_us:g} us before each collective" if skew else None


def _method(story: Story) -> Table:
    launches = ", ".join(f"{arm.name} {len(arm.runs)}" for arm in story.arms)
    facts: list[tuple[str, Cell]] = [
        ("from", story.path),
        ("made", story.created),
        ("command", " ".join(story.command)),
        ("collbench", story.collbench),
        ("method version", story.method),
        ("backend", story.backend),
        ("ranks", story.nranks or None),
        ("workload", story.workload),
        ("launches", launches),
        ("made late on purpose", _planted(story)),
        (
            "baseline (under default and candidates alike)",
            named(story.baseline) if story.baseline else None,
        ),
        ("pinned in the environment", named(story.pinned) if story.pinned else None),
    ]
    return _pairs(
        "Method",
        facts,
        "One launch is one set of fresh processes; its windows are summarised by their median "
        "before launches are compared. Ratio: time / time of the default; intervals are 95 %.",
    )


def _pairs(caption: str, facts: list[tuple[str, Cell]], note: str = "") -> Table:
    """Return known facts as a table of two columns, numbers as text so that both read alike."""
    rows = [[name, str(value)] for name, value in facts if value not in (None, "")]
    return Table(caption=caption, columns=["what", "value"], rows=rows, note=note)


def files_section(story: Story) -> Section:
    """Return the chapter with the files to copy, byte for byte."""
    parts: list[Part] = [
        Snippet(title=name, text=text, folded=index > 0)
        for index, (name, text) in enumerate(story.files.items())
    ]
    if len(parts) > 1:
        text = f"Paths are those after: collbench profile activate PROFILE --at {PLACE}"
        parts.insert(1, Text(text=text, kind="legend"))
    return Section(name="files", title="Files to copy", parts=parts)
