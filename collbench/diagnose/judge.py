"""From a reading to its findings, by kind."""

from __future__ import annotations

from collections.abc import Callable

from collbench.findings import Finding, ranked
from collbench.readers import Given, Reading


def judge(reading: Reading, given: Given) -> list[Finding]:
    """Return the findings of one file, weightiest first."""
    return ranked(_rules(reading.kind)(reading, given))


def _rules(kind: str) -> Callable[[Reading, Given], list[Finding]]:
    """Return the rules of a kind; only these are imported."""
    if kind == "nccl_log":
        from collbench.diagnose.log_rules import judge_log

        return judge_log
    if kind == "nccl_tests":
        from collbench.diagnose.table_rules import judge_table

        return judge_table
    if kind == "launch":
        from collbench.diagnose.launch_rules import judge_launch

        return judge_launch
    if kind in ("env_file", "proc_environ"):
        from collbench.diagnose import file_rules

        return file_rules.judge_env_file if kind == "env_file" else file_rules.judge_environ
    if kind == "e2e":
        from collbench.diagnose.step_rules import judge_steps

        return judge_steps
    if kind == "serving":
        from collbench.diagnose.serving_rules import judge_serving

        return judge_serving
    from collbench.diagnose import machine_rules

    return {
        "topo_m": machine_rules.judge_topology,
        "topo_p2p": machine_rules.judge_peers,
        "topo_affinity": machine_rules.judge_affinity,
        "pcie_query": machine_rules.judge_query,
        "pcie_lspci": machine_rules.judge_lspci,
        "pcie_sysfs": machine_rules.judge_sysfs,
    }[kind]
