"""What `verify` says beyond its verdicts, each with evidence and the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collbench.live import libraries
from collbench.live.text import shown_value
from collbench.live.wording import finding, name_of
from collbench.profiles import MARKERS

if TYPE_CHECKING:
    from collbench.live.verify import Result, Wanted, Worker
    from collbench.readers.nccl_log import NcclLog


def of(
    result: Result,
    wanted: Wanted,
    *,
    writes: Mapping[str, Any],
    notes: Sequence[str],
    log: NcclLog | None,
    hidden: Sequence[int],
    driver: str | None = None,
    way: tuple[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return the findings, most important first."""
    workers = result.workers
    found: list[dict[str, Any]] = []
    if workers:
        found += _verdicts(workers, writes)
        if way is not None and any(_lacks(worker) for worker in workers):
            text = f"the workers were launched through {way[0]}, where variables get lost"
            found.append(finding("env.lost_in_launcher", text, way[1], confidence="low"))
        found += _ranks(result, wanted)
        found += _unknown(workers, hidden)
    if result.guessed:
        found.append(
            finding(
                "workers.guessed",
                "no process there has a worker's title, a GPU, NCCL or MPI: those without "
                "children were taken for the workers",
                "with --wait, say how many there have to be: --ranks N",
                confidence="low",
            )
        )
    found += _baseline(workers, wanted)
    found += _stack(workers, wanted, log)
    if driver and wanted.driver and driver != wanted.driver:
        text = f"driver {driver}; the profile was made with {wanted.driver}"
        check = "collbench check PROFILE   measures whether it still helps"
        found.append(finding("stack.driver_changed", text, check))
    found += _files(workers)
    found += _conf(workers, wanted)
    if result.path is not None and result.path.nccl is False:
        found.append(
            finding(
                "path.nccl_not_used",
                result.path.evidence,
                "the profile moves only what goes through NCCL: prefill and all-gathers",
                line=result.path.line,
            )
        )
    for note in notes[:8]:
        found.append(finding("log.not_this_run", note, "give the log of the running server"))
    return found


def _verdicts(workers: list[Worker], writes: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    judged = [
        (worker, name, j)
        for worker in workers
        for name, j in worker.settings.items()
        if name not in MARKERS
    ]
    if judged and all(j.verdict == "absent" for _, _, j in judged):
        return [
            finding(
                "env.profile_absent",
                f"no variable of the profile is in any of {len(workers)} workers",
                "start the server with: collbench run PROFILE -- COMMAND",
            )
        ]
    for worker, name, j in judged:
        if j.verdict != "differs":
            continue
        write = writes.get(name)
        have, want = shown_value(name, j.have), shown_value(name, j.want)
        text = f"{name_of(worker)}: {name} is {have!r}, wanted {want!r} ({j.evidence})"
        if write is not None and write.value == j.have and write.when == "overwrites":
            found.append(
                finding(
                    "env.overridden_by_server",
                    f"{text}; the server writes it itself{_because(write.option)}",
                    "take the option away, or make the profile with --like",
                )
            )
        else:
            found.append(finding("env.value_differs", text, "restart the server with the profile"))
    for worker, name, j in judged:
        if j.verdict == "absent":
            found.append(
                finding(
                    "env.value_absent",
                    f"{name_of(worker)}: {name} is not set ({j.evidence})",
                    "find where it is lost: launcher, container or unit (docs/verify.md)",
                )
            )
    return found


def _lacks(worker: Worker) -> bool:
    return any(j.verdict == "absent" for n, j in worker.settings.items() if n not in MARKERS)


def _because(option: str) -> str:
    return f" because of {option}" if option else ""


def _ranks(result: Result, wanted: Wanted) -> list[dict[str, Any]]:
    found = []
    states = {worker.verdict for worker in result.workers}
    if "live" in states and "different" in states:
        live = [name_of(w) for w in result.workers if w.verdict == "live"]
        lacking = [name_of(w) for w in result.workers if w.verdict == "different"]
        found.append(
            finding(
                "env.partial_ranks",
                f"live in {', '.join(live)}; not in {', '.join(lacking)}",
                "ranks that disagree can hang: restart the server with the profile",
            )
        )
    if result.missing_ranks:
        found.append(
            finding(
                "env.unknown",
                f"{len(result.workers)} workers found, the profile is for {wanted.nranks} ranks",
                "name the server with --pid or --match, or say how many with --ranks",
            )
        )
    return found


def _unknown(workers: list[Worker], hidden: Sequence[int]) -> list[dict[str, Any]]:
    reasons: dict[str, list[str]] = {}
    for worker in workers:
        if worker.verdict != "unknown":
            continue
        error = worker.seen.unreadable
        reasons.setdefault(error.why if error else "config", []).append(name_of(worker))
    helps = {
        "no_permission": "run as root, or as the server's user with kernel.yama.ptrace_scope=0 "
        "(CAP_SYS_PTRACE is enough)",
        "changing": "run verify again",
        "not_ready": "the process is just starting: run verify again, or use --wait",
        "gone": "run verify again",
        "unsupported": "start the server with SPT_NOENV=1, or give NCCL's log with --log",
        "config": "NCCL reads conf files when it starts: run verify again once it serves",
    }
    texts = {
        "no_permission": "no permission to read the memory of",
        "changing": "the memory changed while it was read in",
        "not_ready": "no environment yet in",
        "gone": "gone while it was read:",
        "unsupported": "the C library keeps no readable environment in",
        "config": "a conf file sets variables in",
    }
    found = [
        finding("env.unknown", f"{texts[why]} {', '.join(names)}", helps[why])
        for why, names in reasons.items()
    ]
    if hidden:
        pids = ", ".join(map(str, hidden[:16]))
        found.append(
            finding(
                "env.unknown",
                f"no permission to see what processes {pids} map: workers may be among them",
                helps["no_permission"],
                confidence="low",
            )
        )
    return found


def _baseline(workers: list[Worker], wanted: Wanted) -> list[dict[str, Any]]:
    """Return where workers deviate from what the server was expected to write itself."""
    differing: dict[tuple[str, str | None], list[str]] = {}
    for worker in workers:
        if worker.seen.environ is None:
            continue
        for name, value in wanted.baseline.items():
            have = worker.seen.environ.get(name)
            if name not in wanted.values and have != value:
                differing.setdefault((name, have), []).append(name_of(worker))
    return [
        finding(
            "env.baseline_differs",
            f"{name} is {'not set' if have is None else have} in {', '.join(names)}; the profile "
            f"was measured with {wanted.baseline[name]}",
            "collbench check PROFILE   measures whether it still helps; or sweep with the right "
            "--like",
            confidence="medium",
        )
        for (name, have), names in differing.items()
    ]


def _stack(workers: list[Worker], wanted: Wanted, log: NcclLog | None) -> list[dict[str, Any]]:
    found = []
    for worker in workers:
        paths = worker.seen.libraries
        if len(paths) > 1:
            found.append(
                finding(
                    "stack.two_libnccl",
                    f"{name_of(worker)} maps {' and '.join(paths)}",
                    "let server and torch use one library: unset VLLM_NCCL_SO_PATH or "
                    "SGLANG_NCCL_SO_PATH, or measure with --nccl-lib",
                )
            )
    if not wanted.library.startswith("NCCL "):
        return found
    stored = wanted.library.removeprefix("NCCL ").split("+")[0].strip()
    for worker in workers[:1]:
        for path in worker.seen.libraries:
            inside = Path(f"/proc/{worker.seen.process.pid}/root{path}")
            version = libraries.version_by_name(inside, follow=False)
            if version and version != stored:
                found.append(_other_version(f"{path} is NCCL {version}", stored))
    if log is not None and log.versions and stored not in log.versions:
        found.append(_other_version(f"the log says NCCL {', '.join(log.versions)}", stored))
    return found


def _other_version(text: str, stored: str) -> dict[str, Any]:
    return finding(
        "stack.nccl_version_changed",
        f"{text}; the profile was made with {stored}",
        "collbench check PROFILE   measures whether it still helps",
    )


def _files(workers: list[Worker]) -> list[dict[str, Any]]:
    found = []
    for worker in workers:
        for name, state in worker.files.items():
            if state != "file":
                path = worker.settings[name].want
                found.append(
                    finding(
                        "env.file_missing",
                        f"{name_of(worker)}: {name}={path}: {state.replace('_', ' ')} there",
                        "mount the file into the container, at the same path",
                        confidence="low" if state in ("no_permission", "unsupported") else "high",
                    )
                )
    return found


def _conf(workers: list[Worker], wanted: Wanted) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for worker in workers:
        for name, entry in worker.seen.conf.items():
            if name.startswith("NCCL_") and name not in wanted.values:
                where = f"{entry.path}:{entry.line}"
                found.setdefault(
                    where,
                    finding(
                        "env.shadowed_by_conf",
                        f"{where} adds {name}={entry.value}, which no environment shows",
                        "take the line out, or measure with it in place",
                    ),
                )
    return list(found.values())
