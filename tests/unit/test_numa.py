"""Binding to a GPU's NUMA node, on machines described by sysfs trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench import numa
from collbench.numa import bind_to_device, format_cpus, parse_cpus, visible

PCI = "0000:c1:00.0"


def machine(
    root: Path, *, node: int | str | None, nodes: dict[int, str], cpuset: str | None = None
) -> str:
    """Write the part of sysfs that is read; return the root."""
    device = root / "sys/bus/pci/devices" / PCI
    device.mkdir(parents=True)
    if node is not None:
        (device / "numa_node").write_text(f"{node}\n")
    base = root / "sys/devices/system/node"
    base.mkdir(parents=True)
    (base / "online").write_text(format_cpus(nodes) + "\n")
    everything: set[int] = set()
    for number, cpus in nodes.items():
        (base / f"node{number}").mkdir()
        (base / f"node{number}" / "cpulist").write_text(cpus + "\n")
        everything |= parse_cpus(cpus)
    (root / "sys/devices/system/cpu").mkdir(parents=True)
    (root / "sys/devices/system/cpu/online").write_text(format_cpus(everything) + "\n")
    if cpuset is not None:
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text("0::/job\n")
        (root / "sys/fs/cgroup/job").mkdir(parents=True)
        (root / "sys/fs/cgroup/job/cpuset.cpus.effective").write_text(cpuset + "\n")
    return str(root)


class Kernel:
    """Stands for the two system calls: what was asked, and what the process may run on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, allowed: set[int]) -> None:
        self.allowed = allowed
        self.memory: int | None = None
        self.memory_error = 0
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(self.allowed))
        monkeypatch.setattr(os, "sched_setaffinity", self.set_affinity)
        monkeypatch.setattr(numa, "_prefer_memory", self.prefer)

    def set_affinity(self, _: int, cpus: set[int]) -> None:
        self.allowed = set(cpus)

    def prefer(self, node: int) -> int:
        self.memory = node
        return self.memory_error


TWO_NODES = {0: "0-3", 1: "4-7"}


def test_cpus_and_memory_of_the_gpus_node_are_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine(tmp_path, node=1, nodes=TWO_NODES)
    kernel = Kernel(monkeypatch, set(range(8)))
    binding = bind_to_device(PCI, root=root)
    assert (binding.bound, binding.numa_node, binding.warnings) == ("cpus+memory", 1, ())
    assert kernel.allowed == {4, 5, 6, 7}
    assert kernel.memory == 1


def test_memory_that_the_kernel_refuses_leaves_the_cpus_bound_and_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine(tmp_path, node=0, nodes=TWO_NODES)
    kernel = Kernel(monkeypatch, set(range(8)))
    kernel.memory_error = 1
    binding = bind_to_device(PCI, root=root)
    assert binding.bound == "cpus"
    assert "Operation not permitted" in binding.warnings[0]
    assert kernel.allowed == {0, 1, 2, 3}


def test_an_affinity_that_a_launcher_narrowed_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine(tmp_path, node=1, nodes=TWO_NODES)
    kernel = Kernel(monkeypatch, {4, 5})
    binding = bind_to_device(PCI, root=root)
    assert (binding.bound, binding.warnings) == ("inherited", ())
    assert kernel.allowed == {4, 5}
    assert kernel.memory is None


def test_an_inherited_affinity_beside_the_gpus_node_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine(tmp_path, node=1, nodes=TWO_NODES)
    Kernel(monkeypatch, {0, 1})
    binding = bind_to_device(PCI, root=root)
    assert binding.bound == "inherited"
    assert "4-7" in binding.warnings[0]
    assert "0-1" in binding.warnings[0]


def test_a_containers_cpuset_is_not_taken_for_a_launchers_binding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine(tmp_path, node=1, nodes=TWO_NODES, cpuset="2-5")
    kernel = Kernel(monkeypatch, {2, 3, 4, 5})
    binding = bind_to_device(PCI, root=root)
    assert binding.bound == "cpus+memory"
    assert kernel.allowed == {4, 5}


def test_a_cpuset_without_the_gpus_node_is_refused_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine(tmp_path, node=1, nodes=TWO_NODES, cpuset="0-3")
    kernel = Kernel(monkeypatch, {0, 1, 2, 3})
    binding = bind_to_device(PCI, root=root)
    assert binding.bound.startswith("refused: ")
    assert binding.warnings
    assert kernel.allowed == {0, 1, 2, 3}


@pytest.mark.parametrize("node", [-1, None, "junk"])
def test_a_machine_that_does_not_tell_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: int | str | None
) -> None:
    root = machine(tmp_path, node=node, nodes={0: "0-7"})
    kernel = Kernel(monkeypatch, set(range(8)))
    binding = bind_to_device(PCI, root=root)
    assert (binding.bound, binding.numa_node) == ("unknown", None)
    assert kernel.allowed == set(range(8))


def test_a_refused_affinity_is_told_with_the_kernels_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine(tmp_path, node=0, nodes=TWO_NODES)
    kernel = Kernel(monkeypatch, set(range(8)))

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    binding = bind_to_device(PCI, root=root)
    assert binding.bound == "refused: sched_setaffinity: Operation not permitted"
    assert kernel.memory is None


def test_the_real_memory_call_gives_zero_or_an_errno() -> None:
    pid = os.fork()
    if pid == 0:  # the policy must not stay with the tests
        os._exit(min(numa._prefer_memory(0), 255))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0 or os.strerror(code)


@pytest.mark.parametrize("node", [0, 1, 63, 64, 130])
def test_the_kernel_is_told_the_node_and_no_other(
    monkeypatch: pytest.MonkeyPatch, node: int
) -> None:
    told: list[tuple[int, int, int]] = []

    class Libc:
        def syscall(self, number: int, mode: int, mask: object, bits: int) -> int:
            words = list(mask._obj)  # type: ignore[attr-defined]
            told.append((mode, sum(word << (64 * i) for i, word in enumerate(words)), bits))
            return 0

    monkeypatch.setattr(numa.ctypes, "CDLL", lambda *_, **__: Libc())
    monkeypatch.setattr(numa.platform, "machine", lambda: "x86_64")
    assert numa._prefer_memory(node) == 0
    ((mode, mask, bits),) = told
    assert (mode, mask) == (numa._MPOL_PREFERRED, 1 << node)
    assert bits > node


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_survive_writing_and_reading(cpus: set[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == cpus


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (None, ["a", "b", "c"]),
        ("2,0", ["c", "a"]),
        ("GPU-2", ["b"]),
        ("0,9,1", ["a"]),
        ("", []),
        ("-1", []),
        ("GPU-", []),
    ],
)
def test_visible_devices_are_resolved_as_cuda_does(wanted: str | None, shown: list[str]) -> None:
    gpus = [("GPU-1x", "a"), ("GPU-2x", "b"), ("GPU-3x", "c")]
    assert visible(gpus, wanted) == shown
