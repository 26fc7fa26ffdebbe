"""The measuring side on a group of threads: slots, checks, clocks, the session's result file."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from collbench.backends import ROOT, SUPPORTED_DTYPES, Call, Refused, Span, Unsupported
from collbench.job import Case, Job, Plan, RankResult, Skew, Step, StepCall, from_plain
from collbench.measure.functions import smoke
from collbench.measure.host import HostClock
from collbench.measure.results import ResultFile
from collbench.measure.session import Session
from collbench.measure.slots import Slots, default_chain

FORMATS = {"float32": "f", "int64": "q"}
SIZES = {"float32": 4, "int64": 8}


class Group:
    """What the threads of one group share."""

    def __init__(self, nranks: int) -> None:
        self.nranks = nranks
        self.barrier = threading.Barrier(nranks, timeout=20)
        self.board: list[Any] = [None] * nranks


class ThreadBackend:
    """A backend whose ranks are threads: real collectives on real memory, slow and exact."""

    name = "threads"
    clock: Literal["device", "host"] = "host"
    dtypes = frozenset(FORMATS)
    device = "cpu"
    pci: str | None = None

    def __init__(
        self,
        group: Group,
        rank: int,
        *,
        reduce_scatter_at: Literal["own", "front"] = "own",
        damage: Callable[[str, bytes], bytes] | None = None,
    ) -> None:
        self.group, self.rank, self.nranks = group, rank, group.nranks
        self.reduce_scatter_at: Literal["own", "front"] = reduce_scatter_at
        self.seconds: dict[str, float] = {}
        self.damage = damage

    def library(self) -> tuple[str, str | None]:
        return "threads", None

    def allocate(self, nbytes: int) -> bytearray:
        return bytearray(nbytes)

    def clear(self, memory: bytearray) -> None:
        memory[:] = bytes(len(memory))

    def write(self, memory: bytearray, data: bytes) -> None:
        memory[: len(data)] = data

    def read(self, memory: bytearray, nbytes: int) -> bytes:
        return bytes(memory[:nbytes])

    def share(self, value: Any) -> list[Any]:
        self.group.board[self.rank] = value
        self.group.barrier.wait()
        everything = list(self.group.board)
        self.group.barrier.wait()
        return everything

    def prepare(self, collective: str, dtype: str, send: Span, recv: Span) -> Call:
        item = SIZES[dtype]

        def get(span: Span) -> bytes:
            return bytes(span.memory[span.offset : span.offset + span.count * item])

        def total(parts: list[bytes]) -> bytes:
            columns = [struct.unpack(f"={len(p) // item}{FORMATS[dtype]}", p) for p in parts]
            sums = [sum(column) for column in zip(*columns, strict=True)]
            return struct.pack(f"={len(sums)}{FORMATS[dtype]}", *sums)

        def call() -> None:
            parts = self.share(get(send if collective != "broadcast" else recv))
            result: bytes | None
            if collective == "all_reduce":
                result = total(parts)
            elif collective == "reduce":
                result = total(parts) if self.rank == ROOT else None
            elif collective == "reduce_scatter":
                share = recv.count * item
                result = total([p[self.rank * share : (self.rank + 1) * share] for p in parts])
            elif collective == "all_gather":
                result = b"".join(parts)
            elif collective == "broadcast":
                result = parts[ROOT]
            else:
                result = parts[(self.rank - 1) % self.nranks]
            if result is not None:
                if self.damage is not None:
                    result = self.damage(collective, result)
                recv.memory[recv.offset : recv.offset + len(result)] = result

        return call

    def prepare_send(self, dtype: str, span: Span, peer: int) -> Call:
        raise NotImplementedError

    def prepare_recv(self, dtype: str, span: Span, peer: int) -> Call:
        raise NotImplementedError

    def barrier(self) -> None:
        self.group.barrier.wait()

    def agree(self, value: float) -> float:
        return float(self.share(value)[0])

    def explain(self, error: Exception) -> Exception:
        return error

    def memory_used(self) -> int | None:
        return None

    def reopen(self, generation: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        return None


def on_ranks(nranks: int, work: Callable[[ThreadBackend], Any], **options: Any) -> list[Any]:
    """Run `work` on every rank of a group and return what each returned."""
    group = Group(nranks)
    answers: list[Any] = [None] * nranks

    def rank_main(rank: int) -> None:
        mine = {k: v[rank] if k == "damage" else v for k, v in options.items()}
        try:
            answers[rank] = work(ThreadBackend(group, rank, **mine))
        except BaseException as error:
            answers[rank] = error
            group.barrier.abort()

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(nranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = next((a for a in answers if isinstance(a, BaseException)), None)
    broken = [a for a in answers if isinstance(a, threading.BrokenBarrierError)]
    if first is not None and first not in broken:
        raise first
    return answers


COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "send_recv"]


@pytest.mark.parametrize("at", ["own", "front"])
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_right_results_count_no_wrong_element(nranks: int, collective: str, at: Any) -> None:
    def work(backend: ThreadBackend) -> int:
        slots = Slots(backend, collective, 48 * nranks, "float32", pool_bytes=1024, uses=5)
        return slots.check() + slots.check()

    assert on_ranks(nranks, work, reduce_scatter_at=at) == [0] * nranks


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_flipped_bit_on_one_rank_is_one_wrong_element_there(collective: str) -> None:
    def flip(_: str, result: bytes) -> bytes:
        return result[:-1] + bytes([result[-1] ^ 1])

    def work(backend: ThreadBackend) -> int:
        return Slots(backend, collective, 64, "float32", pool_bytes=64, uses=1).check()

    found = on_ranks(2, work, damage=[flip, None])
    assert found == [1, 0]


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
def test_a_collective_that_does_nothing_is_caught(collective: str) -> None:
    def work(backend: ThreadBackend) -> int:
        slots = Slots(backend, collective, 64, "float32", pool_bytes=64, uses=1)
        slots.fill()
        return slots.wrong()

    assert all(wrong > 0 for wrong in on_ranks(2, work)[1:])


@pytest.mark.parametrize(
    ("collective", "wrong"), [("all_gather", [1024, 1024]), ("broadcast", [0, 2048])]
)
def test_memory_that_nobody_wrote_never_passes_for_a_right_zero(
    collective: str, wrong: list[int]
) -> None:
    def work(backend: ThreadBackend) -> int:
        slots = Slots(backend, collective, 8192, "float32", pool_bytes=8192, uses=1)
        slots.fill()
        return slots.wrong()

    assert on_ranks(2, work) == wrong


def test_every_window_begins_behind_a_barrier_and_only_calls_stand_in_it() -> None:
    seen: list[str] = []

    class Watched(ThreadBackend):
        def barrier(self) -> None:
            seen.append("barrier")

    backend = Watched(Group(1), 0)
    clock = HostClock(backend, Plan(replays=3, step_replays=2, warmup_replays=2, entry_samples=2))
    call = lambda: seen.append("call")  # noqa: E731
    assert len(clock.timed([call, call], 3)) == 3
    assert seen == ["barrier", "call", "call"] * 3
    seen.clear()
    clock.entry([call])
    assert seen[-4:] == ["barrier", "call"] * 2


def test_a_chunk_of_the_wrong_rank_is_caught() -> None:
    def swap(_: str, result: bytes) -> bytes:
        half = len(result) // 2
        return result[half:] + result[:half]

    def work(backend: ThreadBackend) -> int:
        return Slots(backend, "all_gather", 8192, "float32", pool_bytes=1, uses=1).check()

    found = on_ranks(2, work, damage=[swap, None])
    assert found[0] > 1000
    assert found[1] == 0


def test_slots_are_aligned_and_no_more_than_are_used() -> None:
    def work(backend: ThreadBackend) -> tuple[int, int, int]:
        odd = Slots(backend, "all_reduce", 20, "float32", pool_bytes=1 << 20, uses=7)
        large = Slots(backend, "all_reduce", 4096, "float32", pool_bytes=16384, uses=100)
        one = Slots(backend, "all_reduce", 4096, "float32", pool_bytes=1, uses=100)
        assert odd.input_span(1).offset % 16 == 0
        return odd.slots, large.slots, one.slots

    assert on_ranks(1, work) == [(7, 4, 1)]


@pytest.mark.parametrize(
    ("collective", "size", "dtype", "word"),
    [
        ("all_gather", 20, "float32", "multiple of 8"),
        ("all_reduce", 0, "float32", "multiple of 4"),
        ("all_reduce", 6, "float32", "multiple of 4"),
        ("all_reduce", 8, "bfloat16", "no dtype bfloat16"),
        ("all_to_all", 8, "float32", "no collective"),
    ],
)
def test_what_cannot_be_done_is_unsupported(
    collective: str, size: int, dtype: str, word: str
) -> None:
    def work(backend: ThreadBackend) -> None:
        Slots(backend, collective, size, dtype, pool_bytes=64, uses=1)

    with pytest.raises(Unsupported, match=word):
        on_ranks(2, work)


def test_sums_stay_zero_after_clear_however_often_they_are_repeated() -> None:
    def work(backend: ThreadBackend) -> bool:
        slots = Slots(backend, "all_reduce", 64, "float32", pool_bytes=64, uses=1)
        slots.clear()
        for _ in range(300):
            slots.run_once()
        return backend.read(slots.input_span(0).memory, 64) == bytes(64)

    assert on_ranks(2, work) == [True, True]


def test_chain_lengths_are_those_that_agree_with_nccl_tests() -> None:
    mib = 1 << 20
    sizes = (8, 65536, 65537, mib, mib + 1, 8 * mib, 8 * mib + 1)
    assert [default_chain(size) for size in sizes] == [100, 100, 50, 50, 20, 20, 5]


def test_every_rank_times_batches_of_the_length_rank_0_chooses() -> None:
    plan = Plan(replays=4, batch_us=2000.0)

    def work(backend: ThreadBackend) -> tuple[int, int]:
        def call() -> None:
            time.sleep(0.0001 * (backend.rank + 1))

        times = HostClock(backend, plan).chain([call], None)
        assert all(us >= 100 * (backend.rank + 1) for us in times.times_us)
        return times.chain, len(times.times_us)

    (first, count), second = on_ranks(2, work)
    assert (first, count) == second
    assert 5 <= first <= 20
    assert count == 4


def job(**fields: Any) -> Job:
    plan = Plan(replays=3, step_replays=3, batch_us=200.0, entry_samples=5, warmup_replays=2)
    return Job(**{"job_id": "t", "backend": "threads", "nranks": 2, "plan": plan, **fields})


def parts_of(path: Path) -> list[RankResult]:
    return [from_plain(RankResult, part) for part in json.loads(path.read_text())["parts"]]


def session(tmp_path: Path, asked: Job, **options: Any) -> list[RankResult]:
    def work(backend: ThreadBackend) -> None:
        file = ResultFile(str(tmp_path / f"{backend.rank}.json"), backend.rank)
        Session(asked, backend, file).run()

    on_ranks(2, work, **options)
    return [parts_of(tmp_path / f"{rank}.json")[0] for rank in range(2)]


def case(collective: str = "all_reduce", size: int = 64, **fields: Any) -> Case:
    return Case(
        **{"collective": collective, "size_bytes": size, "dtype": "float32", "mode": "eager"}
        | fields
    )


STEP = Step(
    name="s",
    calls=(
        StepCall(collective="all_reduce", size_bytes=64, dtype="float32", count=3),
        StepCall(collective="all_gather", size_bytes=64, dtype="float32", count=1),
        StepCall(collective="all_reduce", size_bytes=64, dtype="float32", count=2),
    ),
)


def test_a_session_times_cases_step_and_functions(tmp_path: Path) -> None:
    asked = job(cases=(case(), case("all_gather"), case(mode="entry")), step=STEP, functions=True)
    for result in session(tmp_path, asked):
        assert (result.outcome, result.reason) == ("ok", "")
        assert [len(c.times_us) for c in result.cases] == [3, 3, 5]
        assert all(c.wrong == 0 and c.error is None for c in result.cases)
        assert len(result.step_total_us) == 3
        assert result.step_nocomm_us == []
        assert len(result.functions) == 36
        assert set(result.functions.values()) == {"ok"}


def test_wrong_data_is_an_outcome_and_the_other_cases_go_on(tmp_path: Path) -> None:
    def flip(collective: str, result: bytes) -> bytes:
        return result if collective != "broadcast" else bytes([result[0] ^ 1]) + result[1:]

    asked = job(cases=(case("broadcast"), case("all_reduce")))
    zero, one = session(tmp_path, asked, damage=[flip, None])
    assert zero.outcome == "wrong"
    assert "broadcast" in zero.reason
    assert [c.wrong for c in zero.cases] == [2 * 100, 0]
    assert zero.cases[1].times_us
    assert one.outcome == "ok"


def test_an_unsupported_case_costs_itself_and_only_alone_the_launch(tmp_path: Path) -> None:
    odd = case("all_gather", 20)
    both = session(tmp_path, job(cases=(odd, case())))
    assert [r.outcome for r in both] == ["ok", "ok"]
    assert both[0].cases[0].error is not None
    alone = session(tmp_path, job(cases=(odd,)))
    assert [r.outcome for r in alone] == ["unsupported", "unsupported"]


def test_the_file_of_a_rank_that_ends_in_a_case_keeps_the_cases_before(tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def die(collective: str, result: bytes) -> bytes:
        if collective == "broadcast":
            raise KilledError
        return result

    def work(backend: ThreadBackend) -> None:
        file = ResultFile(str(tmp_path / f"{backend.rank}.json"), backend.rank)
        Session(job(cases=(case(), case("broadcast"))), backend, file).run()

    with pytest.raises(KilledError):
        on_ranks(2, work, damage=[die, die])
    (part,) = parts_of(tmp_path / "0.json")
    assert part.outcome == "hung"
    assert part.reason.startswith("broadcast/")
    assert len(part.cases[0].times_us) == 3
    assert part.cases[1].error == "died: "


def test_a_refusal_in_a_case_is_raised_and_recorded_there(tmp_path: Path) -> None:
    class Strict(ThreadBackend):
        def explain(self, error: Exception) -> Exception:
            return Refused("no such algorithm")

    def work(rank: int) -> None:
        backend = Strict(Group(1), rank)
        backend.prepare = lambda *_: 1 / 0  # type: ignore[method-assign,assignment]
        file = ResultFile(str(tmp_path / "r.json"), rank)
        Session(job(nranks=1, cases=(case(),)), backend, file).run()

    with pytest.raises(Refused):
        work(0)
    (part,) = parts_of(tmp_path / "r.json")
    assert part.cases[0].error == "refused: no such algorithm"


def test_lateness_of_one_rank_shows_in_its_own_time_without_collectives(tmp_path: Path) -> None:
    asked = job(step=STEP, skew=Skew(rank=1, delay_us=2000.0))
    zero, one = session(tmp_path, asked)
    assert min(one.step_nocomm_us) >= 6 * 2000
    assert max(zero.step_nocomm_us) < 6 * 2000
    assert min(zero.step_total_us) > 5 * 2000


def test_parts_are_written_one_after_the_other(tmp_path: Path) -> None:
    file = ResultFile(str(tmp_path / "r.json"), 1)
    assert [p.outcome for p in parts_of(tmp_path / "r.json")] == ["hung"]
    file.update(outcome="ok", reason="")
    file.next_part()
    file.update(reason="second")
    outcomes = [(p.outcome, p.reason) for p in parts_of(tmp_path / "r.json")]
    assert outcomes == [("ok", ""), ("hung", "second")]
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_smoke_names_what_was_wrong() -> None:
    def damage(collective: str, result: bytes) -> bytes:
        return result if collective != "reduce" else bytes(len(result))

    def work(backend: ThreadBackend) -> dict[str, str]:
        return dict(smoke(backend))

    zero, one = on_ranks(2, work, damage=[damage, None])
    assert {k for k, v in zero.items() if v != "ok"} == {k for k in zero if k[:7] == "reduce/"}
    assert set(one.values()) == {"ok"}


def test_no_backend_promises_a_dtype_that_cannot_be_checked() -> None:
    from collbench.backends.pattern import ITEM_BYTES, largest_value

    for dtypes in SUPPORTED_DTYPES.values():
        assert dtypes <= set(ITEM_BYTES)
        assert all(largest_value(dtype, 8) > 0 for dtype in dtypes)
