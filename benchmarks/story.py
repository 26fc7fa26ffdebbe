"""The whole story with real processes: a profile is lost, and diagnose says so and what it costs.

    python -m benchmarks.story --backend mpi  --out results/MACHINE/story.json
    python -m benchmarks.story --backend nccl --out results/MACHINE/story.json   (2 GPUs)

1. Time the default and the settings with `collbench bench`; publish them as a profile.
2. Start a server with the profile: the baseline. Start it again without: `collbench diagnose` has
   to name env.profile_absent first, its expected cost within 25 % of the measured change. All of
   this in turns.
3. Start it with the profile and one rank slowed by compute: verify.skew_not_transfer first.

Exit code 1 if a step of the story is not told rightly. CPU hosts change their speed between
launches; a story whose baseline moved is told again, up to `--attempts` times.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from collbench.files import write_atomic
from collbench.profiles import Profile, Scope, machine_slug
from collbench.profiles.store import load, publish
from collbench.record import RunRecord, dump, now_utc
from collbench.record import load as load_record
from collbench.results import results

SERVER = Path(__file__).with_name("step_server.py")
TOLERANCE = 0.25
READY_S = 180


@dataclass(frozen=True)
class Scene:
    """What is told on one kind of machine."""

    backend: str
    settings: dict[str, str]
    size_bytes: int
    count: int
    """Calls per step; on a CPU few, so that a step ends within one slice of the scheduler."""
    mode: str
    late_us: float
    nranks: int = 2
    launches: int = 2
    turns: int = 3
    starts: int = 1
    """Of the server, with and without the profile, in each turn."""
    steps: int = 60


SCENES = {
    "mpi": Scene(
        "mpi",
        {"OMPI_MCA_btl_sm_eager_limit": "65536", "OMPI_MCA_btl_sm_max_send_size": "262144"},
        16384,
        100,
        "eager",
        late_us=60.0,
        starts=3,
    ),
    "nccl": Scene(
        *("nccl", {"NCCL_MIN_NCHANNELS": "16"}, 262144, 123, "graph"),
        late_us=50.0,
        launches=3,
        turns=2,
    ),
}


@dataclass
class Told:
    """What came of one attempt."""

    profile: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    absent: dict[str, Any] = field(default_factory=dict)
    late: dict[str, Any] = field(default_factory=dict)
    noise: float = 0.0
    """Middle half of an arm's launches over their median, in the arm where it is widest."""

    def faults(self) -> list[str]:
        """Return where the story is not told rightly."""
        found = []
        first = (self.absent.get("findings") or [{}])[0]
        delta = self.absent.get("measured_delta_ms") or 0.0
        if self.absent.get("verdict") != "regression":
            found.append(f"without the profile: verdict {self.absent.get('verdict')}")
        if first.get("code") != "env.profile_absent":
            found.append(f"without the profile: first is {first.get('code')}")
        elif abs(first["expected_ms"] - delta) > TOLERANCE * delta:
            found.append(f"expected {first['expected_ms']:.3f} ms, measured {delta:.3f} ms")
        second = (self.late.get("findings") or [{}])[0]
        if second.get("code") != "verify.skew_not_transfer":
            found.append(f"with a late rank: first is {second.get('code')}")
        codes = {finding["code"] for finding in self.late.get("findings", ())}
        wrong = codes & {"env.profile_absent", "verify.comm_regression"}
        if wrong:
            found.append(f"with a late rank: {sorted(wrong)}")
        return found


def child_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the inherited environment (its pins have to survive) with settings."""
    return {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # Ranks that poll on a shared core lose it for a scheduler slice; on both arms alike.
        "OMPI_MCA_mpi_yield_when_idle": "1",
        **settings,
    }


def bench(scene: Scene, env_file: Path | None, folder: Path) -> RunRecord:
    """Time one arm with the product's own bench."""
    document = folder / "bench.json"
    command = [
        *(sys.executable, "-m", "collbench", "bench", "--backend", scene.backend),
        *("--nproc-per-node", str(scene.nranks), "--sizes", str(scene.size_bytes)),
        *("--mode", scene.mode, "--launches", str(scene.launches), "--out", str(folder)),
        *("--no-proof", "--json-file", str(document)),
        *(("--env", str(env_file)) if env_file else ()),
    ]
    for _ in range(60):
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=child_environment({}), check=False,
        )  # fmt: skip
        if "another collbench" not in done.stderr:
            break
        time.sleep(5)  # One bench at a time: the other one has the lock of these cores.
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return load_record(Path(json.loads(document.read_text())["record"]), RunRecord)


def publish_profile(scene: Scene, records: Mapping[str, list[RunRecord]], folder: Path) -> Path:
    """Publish what was measured of both arms as a profile; its id does not depend on the times."""
    joined = {
        arm: found[0].model_copy(
            update={"launches": [run for record in found for run in record.launches]}
        )
        for arm, found in records.items()
    }
    machine = joined["default"].machine.model_dump(mode="json")
    profile = Profile(
        backend=scene.backend,
        settings=scene.settings,
        scope=Scope(nranks=scene.nranks, sizes=(scene.size_bytes,), objective="decode"),
        machine=machine,
    )
    files = {f"records/{arm}.json": dump(record) for arm, record in joined.items()}
    return publish(folder / "results", machine_slug(machine), profile, files=files)


@contextmanager
def server(
    scene: Scene, settings: Mapping[str, str], out: Path, label: str, *, late: bool = False
) -> Iterator[int]:
    """Start a server, wait until its steps are written, give its pid, end it."""
    tail = [
        *(str(SERVER), "--backend", scene.backend, "--steps", str(scene.steps), "--label", label),
        *("--count", str(scene.count), "--bytes", str(scene.size_bytes), "--out", str(out)),
        *(("--late", "1", "--late-us", str(scene.late_us)) if late else ()),
    ]
    if scene.backend == "mpi":
        from collbench.pool.mpi import find_mpirun

        launcher = [find_mpirun()[0], "--bind-to", "core:overload-allowed", "--map-by",
                    "core:oversubscribe", "-n", str(scene.nranks), sys.executable]  # fmt: skip
    else:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                    "--nproc-per-node", str(scene.nranks)]  # fmt: skip
    stop = out.with_name(out.name + ".stop")
    process = subprocess.Popen([*launcher, *tail], env=child_environment(settings))
    try:
        deadline = time.monotonic() + READY_S
        while not out.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server wrote no steps (exit code {process.poll()})")
            time.sleep(0.05)
        yield process.pid
    finally:
        stop.touch()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def diagnose(profile: Path, before: Path, after: Path, pid: int) -> dict[str, Any]:
    """Ask the product."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "collbench", "diagnose", "--profile", str(profile)),
            *("--steps", str(before), "--steps", str(after), "--pid", str(pid), "--json"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment({}),
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def tell(scene: Scene, folder: Path) -> Told:
    """Tell the story once."""
    told = Told()
    draft = folder / "draft.env"
    draft.write_text("".join(f"{name}={value}\n" for name, value in scene.settings.items()))
    records: dict[str, list[RunRecord]] = {"default": [], "profile": []}
    paths = {name: folder / f"{name}.json" for name in ("before", "after", "late")}
    # Benches and servers in turns: the host changes its speed, for all of them alike.
    for turn in range(1, scene.turns + 1):
        print(f"turn {turn}/{scene.turns}", file=sys.stderr, flush=True)
        records["profile"].append(bench(scene, draft, folder))
        records["default"].append(bench(scene, None, folder))
        profile = publish_profile(scene, records, folder)
        reference = load(profile)
        for start in range(1, scene.starts + 1):
            before = folder / f"before-{turn}-{start}.json"
            with server(scene, reference.values, before, "before"):
                add_runs(paths["before"], before)
            after = folder / f"after-{turn}-{start}.json"
            with server(scene, {}, after, "after") as pid:
                add_runs(paths["after"], after)
                if (turn, start) == (scene.turns, scene.starts):
                    told.absent = diagnose(profile, paths["before"], paths["after"], pid)
    with server(scene, reference.values, paths["late"], "after", late=True) as pid:
        told.late = diagnose(profile, paths["before"], paths["late"], pid)
    told.profile = reference.id
    launches: dict[str, list[float]] = {}
    for arm, found in records.items():
        values = [us for record in found for us in results(record).cases[0].values_us]
        launches[f"bench_{arm}_us"] = values
    for name, path in paths.items():
        runs = json.loads(path.read_text())["runs"]
        launches[f"server_{name}_step_ms"] = [median(run["verify_ms"]) for run in runs]
    for name, values in launches.items():
        told.figures[name] = round(median(values), 4)
        if len(values) > 1:
            low, _, high = quantiles(values, n=4, method="inclusive")
            told.noise = max(told.noise, (high - low) / median(values))
    return told


def add_runs(path: Path, launch: Path) -> None:
    """Add the run of one launch to a file of step timings, as a repeat."""
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    path.write_text(json.dumps({"runs": [*runs, *json.loads(launch.read_text())["runs"]]}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--backend", choices=sorted(SCENES), default="mpi")
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    attempts = []
    faults: list[str] = []
    for number in range(1, asked.attempts + 1):
        with tempfile.TemporaryDirectory(prefix="collbench-story-") as folder:
            told = tell(SCENES[asked.backend], Path(folder))
        faults = told.faults()
        attempts.append({**told.__dict__, "faults": faults})
        print(f"attempt {number}: {'told' if not faults else '; '.join(faults)}", flush=True)
        print(f"  {json.dumps(told.figures)}", flush=True)
        for name, said in (("without", told.absent), ("late", told.late)):
            print(f"  {name}: {said.get('summary')}", flush=True)
        if not faults:
            break
    if asked.out is not None:
        document = {
            "created": now_utc(),
            "command": "python -m benchmarks.story " + " ".join(sys.argv[1:]),
            "scheduler": {0: "other", 1: "fifo", 2: "round robin"}.get(os.sched_getscheduler(0)),
            "load_average": os.getloadavg(),
            "attempts": attempts,
            "told": not faults,
        }
        write_atomic(asked.out, json.dumps(document, indent=1) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
