"""A server launched with a profile, by hand without, and one that overwrites a value: told apart?

    python -m benchmarks.live_server --out results/MACHINE/live_server.json

Starts the tests' small server three times (on GPUs with NCCL in captured graphs and NCCL's log
on, else with Gloo), asks `collbench verify` and `collbench status` about each, and writes what they
said. Exit code 1 if any answer is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collbench.files import write_atomic
from collbench.machine import fingerprint
from collbench.profiles import Profile, Scope
from collbench.profiles.store import load, publish
from collbench.record import now_utc

SERVER = Path(__file__).parent.parent / "tests" / "server" / "small_server.py"
SETTINGS = {"NCCL_PROTO": "LL,Simple", "NCCL_MIN_NCHANNELS": "16"}
READY_S = 180.0
TITLES = importlib.util.find_spec("setproctitle") is not None
"""Without it the ranks have no titles, and are looked for by pid only."""


@contextmanager
def server(command: list[str], env: dict[str, str], log: Path) -> Iterator[int]:
    """Start a server, wait until it is ready, give its pid, end it."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + READY_S
            while "fired up" not in log.read_text(errors="replace"):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the server did not start:\n{log.read_text()[-4000:]}")
                time.sleep(0.1)
            yield process.pid
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def ask(*words: str, env: dict[str, str]) -> dict[str, Any]:
    """Run a command of collbench; return its document, exit code and seconds."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "collbench", *words, "--json"],
        capture_output=True, text=True, env=env, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - began
    if not done.stdout:  # an error of usage: there is no document
        raise SystemExit(f"collbench {' '.join(words)}: {done.stderr}")
    document = json.loads(done.stdout)
    return {"exit_code": done.returncode, "seconds": round(seconds, 3), "document": document}


def evidence(document: dict[str, Any], settings: dict[str, str]) -> list[str]:
    """Return the sources of the verdicts on the settings, each once."""
    return sorted(
        {str(w["settings"][name]["evidence"]) for w in document["workers"] for name in settings}
    )


def trial(backend: str, ranks: int, folder: Path) -> dict[str, Any]:
    """Start the three servers one after the other and ask about each."""
    machine = fingerprint().model_dump(mode="json")
    profile = publish(
        folder / "results",
        "here",
        Profile(settings=SETTINGS, scope=Scope(nranks=ranks), machine=machine),
    )
    reference = load(profile)
    clean = {n: v for n, v in os.environ.items() if n not in reference.values}
    clean["COLLBENCH_RESULTS"] = str(folder / "results")
    if backend == "nccl":
        clean |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING"}
    prefix = f"T{os.getpid()}"  # another server may run here
    start = [sys.executable, str(SERVER), "--ranks", str(ranks), "--backend", backend]
    start += ["--prefix", prefix]
    run = [sys.executable, "-m", "collbench", "run", str(profile), "--", *start]
    # Ranks of NCCL that disagree about channels truncate each other's messages: all of them, there.
    overwriting = -1 if backend == "nccl" else ranks - 1
    launches = {
        "with_the_profile": (run, "live", 0),
        "by_hand_without": (start, "different", 3),
        "overwritten_in_process": (
            [*run, "--overwrite", "NCCL_MIN_NCHANNELS=4", "--in-rank", str(overwriting)],
            "different",
            3,
        ),
    }
    results: dict[str, Any] = {}
    for name, (command, verdict, code) in launches.items():
        log = folder / f"{name}.log"
        with server(command, clean, log) as pid:
            answers = {"by_pid": ask("verify", str(profile), "--pid", str(pid), env=clean)}
            if TITLES:
                pattern = f"^{prefix}::Worker_TP"
                answers["by_match"] = ask("verify", str(profile), "--match", pattern, env=clean)
                answers["status"] = ask("status", "--log", str(log), env=clean)
            if backend == "nccl":
                answers["with_the_log"] = ask(
                    "verify", str(profile), "--pid", str(pid), "--log", str(log), env=clean
                )
        results[name] = _judge(name, answers, pid, verdict, code, ranks)
    return {"profile": reference.id, "settings": SETTINGS, "machine": machine, "launches": results}


def _judge(
    name: str, answers: dict[str, Any], pid: int, verdict: str, code: int, ranks: int
) -> dict[str, Any]:
    """Return what was said of one launch, and what of it is wrong."""
    wrong = []
    summary: dict[str, Any] = {}
    for how, answer in answers.items():
        document = answer["document"]
        if how == "status":
            entry = next(s for s in document["servers"] if s["pid"] == pid)
            expected = {"live": "live", "different": "different"}[verdict]
            expected = "none" if name == "by_hand_without" else expected
            summary[how] = {"profile": entry["profile"], "log": entry["log"]["state"]}
            if name != "by_hand_without" and entry["profile"]["state"] != expected:
                wrong.append(f"status: {entry['profile']}")
        else:
            summary[how] = {
                "verdict": document["verdict"],
                "exit_code": answer["exit_code"],
                "workers": {
                    str(w["rank"]): {n: w["settings"][n]["verdict"] for n in SETTINGS}
                    for w in document["workers"]
                },
                "evidence": evidence(document, SETTINGS),
                "libnccl": document["workers"][0]["libnccl"] if document["workers"] else [],
                "findings": sorted({f["code"] for f in document["findings"]}),
            }
            if (document["verdict"], answer["exit_code"]) != (verdict, code):
                wrong.append(f"{how}: {document['verdict']}, exit code {answer['exit_code']}")
            if len(document["workers"]) != ranks:
                wrong.append(f"{how}: {len(document['workers'])} workers, not {ranks}")
        summary[how]["seconds"] = answer["seconds"]
    log = summary.get("with_the_log")
    if log is not None and name == "with_the_profile" and log["evidence"] != ["log"]:
        wrong.append(f"NCCL's own lines do not confirm it: {log['evidence']}")
    return {"expected": verdict, "wrong": wrong, **summary}


def main() -> int:
    """Run the trial and write its record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", choices=["auto", "nccl", "gloo"], default="auto")
    options = parser.parse_args()
    backend = options.backend
    if backend == "auto":
        backend = "nccl" if fingerprint().gpus else "gloo"
    with tempfile.TemporaryDirectory() as folder:
        result = trial(backend, options.ranks, Path(folder))
    wrong = [text for launch in result["launches"].values() for text in launch["wrong"]]
    record = {
        "schema": 1,
        "kind": "live_server",
        "created": now_utc(),
        "command": ["python", "-m", "benchmarks.live_server", *sys.argv[1:]],
        "backend": backend,
        "ranks": options.ranks,
        "titles": TITLES,
        "wrong": wrong,
        **result,
    }
    write_atomic(options.out, json.dumps(record, indent=1) + "\n")
    for name, launch in result["launches"].items():
        print(f"{name}: {launch['by_pid']['verdict']} (expected {launch['expected']})")
    print("wrong: " + ("; ".join(wrong) if wrong else "nothing"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
