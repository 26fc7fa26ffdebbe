"""Results to report, built from recorded launches: a run record, a study, profiles, a machine."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collbench import profiles
from collbench.job import (
    Case,
    CaseTimes,
    Choice,
    Job,
    RankFacts,
    Run,
    StepTimes,
    to_plain,
)
from collbench.machine import Fingerprint, Gpu
from collbench.profiles import store
from collbench.record import RunRecord, dump, save

DATA = Path(__file__).parent.parent / "data" / "report"
WINNER = {"NCCL_MIN_NCHANNELS": "16"}
NAMES = {"ar": "all_reduce", "ag": "all_gather"}


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def machine(gpus: int = 2, host: str = "gpu-node-7") -> Fingerprint:
    return Fingerprint(
        host=host,
        gpus=[
            Gpu(
                index=i,
                name="NVIDIA H200",
                pci=f"0000:{16 * i + 3:02x}:00.0",
                numa_node=i * 2 // gpus,
                memory_bytes=150_754_820_096,
                link_gen_max=5,
                link_width_max=16 if i != 5 else 8,
            )
            for i in range(gpus)
        ],
        driver="580.159.04",
        cuda="13.0",
        torch="2.11.0",
        library="NCCL 2.28.9",
        library_path="/opt/venv/lib/libnccl.so.2",
        python="3.12.3",
        cpu="Intel Xeon Platinum 8558",
        cpus=192,
        numa_nodes=2,
        kernel="6.8.0",
        shm_bytes=1 << 37,
    )


def ranks(count: int = 2) -> tuple[RankFacts, ...]:
    return tuple(
        RankFacts(
            rank=r,
            pid=4000 + r,
            host="gpu-node-7",
            device="NVIDIA H200",
            numa_node=r * 2 // count,
            cpus=f"{48 * r}-{48 * r + 47}",
            bound="cpus+memory",
            memory_bytes=3_221_225_472 + r,
        )
        for r in range(count)
    )


def run_of(line: dict[str, Any], index: int) -> Run:
    """One recorded launch; the mean over ranks stands for both, rank 1 later by 0.2 %."""
    res = line["res"]
    cases = tuple(
        CaseTimes(
            case=Case(collective=NAMES[key], size_bytes=int(size), dtype="bfloat16", mode="graph"),
            times_us=[times, [round(t * 1.002, 3) for t in times]],
            wrong=[0, 0],
        )
        for key in NAMES
        for size, times in res.get(key, {}).items()
    )
    step = StepTimes(
        total_us=[res["step_us"], [t + 1.5 for t in res["step_us"]]],
        nocomm_us=[res["step_nocomm_us"], res["step_nocomm_us"]],
        wrong=[0, 0],
    )
    return Run(
        job_id=str(index), settings=line["env"], outcome="ok", cases=cases, step=step, ranks=ranks()
    )


def proof(settings: dict[str, str], channels: str) -> Run:
    return Run(
        job_id="proof",
        settings=settings,
        outcome="ok",
        choices=(
            Choice(
                collective="all_reduce",
                size_bytes=57344,
                algorithm="Ring",
                protocol="LL",
                channels=channels,
                count=122,
            ),
        ),
        transports={"SHM": 8},
    )


@pytest.fixture
def confirmed() -> list[Run]:
    return [run_of(line, i) for i, line in enumerate(recorded("confirm.jsonl"))]


@pytest.fixture
def make_record(tmp_path: Path, confirmed: list[Run]) -> Callable[..., Path]:
    """Write a run record of the recorded launches and return its path."""

    def make(name: str = "run.json", runs: list[Run] | None = None, **fields: Any) -> Path:
        values: dict[str, Any] = {
            "created": "2026-01-02T03:04:05Z",
            "collbench": "0.1.0",
            "command": ["collbench", "bench"],
            "backend": "nccl",
            "nranks": 2,
            "workload": "decode",
            "machine": machine(),
            "settings": WINNER,
            "pinned": {"NCCL_P2P_DISABLE": "1"},
            "job": Job(job_id="0", backend="nccl", nranks=2),
            "launches": runs if runs is not None else confirmed,
            **fields,
        }
        path = tmp_path / name
        save(path, RunRecord(**values))
        return path

    return make


@pytest.fixture
def make_profile(tmp_path: Path, confirmed: list[Run]) -> Callable[..., Path]:
    """Publish a profile with its confirming and proof launches and return its directory."""

    def make(created: str = "2026-01-02T03:04:05Z", **changes: Any) -> Path:
        record = RunRecord(
            created=created,
            backend="nccl",
            nranks=2,
            workload="decode",
            machine=machine(8),
            settings=WINNER,
            job=Job(job_id="0", backend="nccl", nranks=2),
            launches=[*confirmed, proof({}, "0..3"), proof(WINNER, "0..15")],
        )
        evidence = {
            "default_us": 4338.2,
            "winner_us": 4021.4,
            "default_exposed_us": 2069.0,
            "winner_exposed_us": 1734.0,
            "ratio": 0.927,
            "interval": [0.925, 0.93],
            "search_value_us": 4005.0,
            "noise_pct": 0.4,
            "pairs": 6,
            "ablation": [
                {
                    "dropped": {"NCCL_MIN_NCHANNELS": "16"},
                    "ratio": 1.078,
                    "interval": [1.07, 1.08],
                    "kept": True,
                },
                {
                    "dropped": {"NCCL_NTHREADS": "128"},
                    "ratio": 1.001,
                    "interval": [0.996, 1.006],
                    "kept": False,
                },
            ],
        }
        values: dict[str, Any] = {
            "created": created,
            "collbench": "0.1.0",
            "method": 1,
            "settings": WINNER,
            "pinned": {"NCCL_P2P_DISABLE": "1"},
            "scope": profiles.Scope(
                workload="decode", nranks=2, sizes=(57344,), objective="decode"
            ),
            "machine": machine(8).model_dump(mode="json"),
            "evidence": evidence,
            "not_searched": ("graph-mixing",),
            **changes,
        }
        return store.publish(
            tmp_path / "results",
            "8x-nvidia-h200",
            profiles.Profile(**values),
            files={"confirm.json": dump(record)},
        )

    return make


@pytest.fixture
def make_study(tmp_path: Path) -> Callable[..., Path]:
    """Write a study as the search leaves it, of recorded launches, repeated to `trials`."""

    def make(trials: int = 60, name: str = "study.db") -> Path:
        import optuna

        from collbench.search.ledger import PREFIX

        path = tmp_path / name
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(storage=f"sqlite:///{path}", study_name="decode")
        study.set_user_attr("spec", {"backend": "nccl", "objective": "decode", "nranks": 2})
        lines = recorded("search.jsonl")
        knobs = ["NCCL_PROTO", "NCCL_ALGO", "NCCL_MIN_NCHANNELS", "NCCL_NTHREADS"]
        choices = {k: sorted({line["env"].get(k, "unset") for line in lines}) for k in knobs}
        space: dict[str, optuna.distributions.BaseDistribution] = {
            k: optuna.distributions.CategoricalDistribution(v) for k, v in choices.items()
        }
        done, rows = [], []
        for number in range(trials):
            line = lines[number % len(lines)]
            run = run_of(line, number)
            if number % 40 == 17:
                run = Run(
                    job_id=str(number),
                    settings=line["env"],
                    outcome="hung",
                    reason="no answer in 30 s",
                )
            plain = {
                "phase": "search",
                "purpose": "search",
                "by_exec": False,
                "asked": line["env"],
                "trial": number,
                "run": to_plain(run),
            }
            rows.append((1, f"{PREFIX}{number:06d}", json.dumps(plain)))
            if run.step and number < 30:
                done.append(
                    optuna.create_trial(
                        params={k: line["env"].get(k, "unset") for k in knobs},
                        distributions=space,
                        value=run.step.total_us[0][0],
                        user_attrs={"value_us": run.step.total_us[0][0]},
                    )
                )
        study.add_trials(done)
        # One transaction instead of one a launch: as set_user_attr writes them, only quicker.
        with sqlite3.connect(path) as connection:
            insert = (
                "INSERT INTO study_user_attributes (study_id, key, value_json) VALUES (?, ?, ?)"
            )
            connection.executemany(insert, rows)
        connection.close()
        return path

    return make
