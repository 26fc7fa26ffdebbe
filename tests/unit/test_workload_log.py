"""From the log of a server's graph capture to the calls of one step.

The logs are built here in the shape NCCL prints, so that what was captured is known.
"""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.errors import CollbenchError
from collbench.workload import load
from collbench.workload.log import read_calls

HIDDEN = 5120
LAYERS = 4
VOCAB = 151936
CONFIG = {"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "vocab_size": VOCAB}
Calls = list[tuple[str, int]]


def forward(tokens: int, nranks: int = 4, layers: int = LAYERS, logits: int | None = None) -> Calls:
    """The calls of one pass, with the bytes of one rank's share for all_gather."""
    shared = (logits or tokens) * VOCAB // nranks * 2
    return [("AllReduce", tokens * HIDDEN * 2)] * (2 * layers + 1) + [("AllGather", shared)]


def lines(calls: Calls, style: str = "2.24", pid: int = 7, nranks: int = 4) -> Iterator[str]:
    head = f"node-a:{pid}:{pid} [0] NCCL INFO "
    yield f"{head}ncclCommInitRank comm 0x1 rank 0 nranks {nranks} cudaDev 0 - Init COMPLETE\n"
    for name, size in calls:
        if style == "2.24":
            rest = "Algo RING proto LL channel{Lo..Hi}={0..3}"
        else:
            rest = "Algo 1 proto 0 time 26.913599"
            size *= nranks if name == "AllGather" else 1
        named = "" if style == "2.20" else f"{name}: "
        yield f"{head}{named}{size} Bytes -> {rest}\n"


def write(folder: Path, text: str) -> str:
    path = folder / "nccl.log"
    path.write_text(text, encoding="utf-8")
    return str(path)


def captured(draft: int = 1, batches: tuple[int, ...] = (8, 4, 2, 1)) -> Calls:
    """Two warm-ups and the capture of every batch size, largest first, as servers do."""
    return [call for b in batches for _ in range(3) for call in forward(b * draft)]


@pytest.mark.parametrize("style", ["2.20", "2.23", "2.24"])
@pytest.mark.parametrize(("batch", "held"), [(1, 1), (2, 2), (3, 4), (8, 8)])
def test_one_pass_of_the_right_batch_is_taken(
    tmp_path: Path, style: str, batch: int, held: int
) -> None:
    path = write(tmp_path, "".join(lines(captured(), style)))
    made = load(path, batch=batch)
    assert made.nranks == 4
    assert made.totals() == [
        ("all_reduce", held * HIDDEN * 2, "bfloat16", 2 * LAYERS + 1),
        ("all_gather", held * VOCAB * 2, "bfloat16", 1),
    ]
    assert any("3 times" in note for note in made.notes)


def test_a_verify_capture_counts_sequences_not_tokens(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(lines(captured(draft=4))))
    assert load(path, batch=2, draft_tokens=4).totals()[0][1] == 8 * HIDDEN * 2


def test_a_second_communicator_a_draft_model_and_a_prefill_are_left_out(tmp_path: Path) -> None:
    calls: Calls = [("AllReduce", 4), ("Broadcast", 8), ("AllGather", 64), ("AllReduce", 4)]
    calls += captured()
    for tokens in (1, 2):
        calls += 3 * forward(tokens, layers=1)  # EAGLE draft
    calls += [("Broadcast", 4)] * 3
    calls += [*forward(3000, logits=1), ("AllReduce", 4), *forward(2, logits=1)]
    made = load(write(tmp_path, "".join(lines(calls))), batch=1)
    assert made.totals()[0] == ("all_reduce", HIDDEN * 2, "bfloat16", 2 * LAYERS + 1)
    assert any("6x 3 all_reduces" in note for note in made.notes)
    with pytest.raises(CollbenchError, match="the largest captured step holds 8 sequences"):
        load(write(tmp_path, "".join(lines(calls))), batch=9)


def test_one_process_is_taken_when_several_print(tmp_path: Path) -> None:
    streams = [lines(captured(), pid=7), lines(captured(), pid=9)]
    turns = [0, 1] * len(list(lines(captured())))
    random.Random(3).shuffle(turns)
    mixed = [next(streams[turn]) for turn in turns]
    assert load(write(tmp_path, "".join(mixed))).totals()[0][3] == 2 * LAYERS + 1


def test_torn_and_prefixed_lines_are_survived(tmp_path: Path) -> None:
    whole = list(lines(captured()))
    prefixed = [f"(Worker_TP0 pid=12) 2026-01-01T00:00:00Z {line}" for line in whole]
    torn = [line[: len(line) // 2] + "\n" for line in whole[5:12]]
    path = write(tmp_path, "\ufeffstart\n\x00\x1b[31m\n" + "".join(torn[:1]) + "".join(prefixed))
    assert load(path).totals()[0][3] == 2 * LAYERS + 1


def test_the_model_puts_its_compute_between_the_calls(tmp_path: Path) -> None:
    config = {**CONFIG, "num_attention_heads": 8, "intermediate_size": 1024, "head_dim": 16}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    path = write(tmp_path, "".join(lines(captured())))
    plain = load(path, batch=2)
    full = load(path, batch=2, config=str(tmp_path / "config.json"))
    assert full.totals() == plain.totals()
    assert full.step == load(str(tmp_path), tp=4, batch=2).step.__class__(
        name=full.step.name, calls=load(str(tmp_path), tp=4, batch=2).step.calls
    )
    assert any("no compute" in note for note in plain.notes)


def test_a_model_that_is_not_the_servers_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(lines(captured())))
    with pytest.raises(CollbenchError, match="--config: 80x8192 would make 162 calls"):
        load(path, config="80x8192")


def test_without_gathers_the_model_cuts_the_passes(tmp_path: Path) -> None:
    calls = [call for call in captured() if call[0] == "AllReduce"]
    path = write(tmp_path, "".join(lines(calls)))
    with pytest.raises(CollbenchError, match="cannot be told apart"):
        load(path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    made = load(path, config=str(tmp_path))
    assert made.totals() == [("all_reduce", HIDDEN * 2, "bfloat16", 2 * LAYERS + 1)]


def test_the_logged_datatype_is_used(tmp_path: Path) -> None:
    coll = (
        "node-a:7:7 [0] NCCL INFO AllReduce: opCount 3 sendbuff 0x1 recvbuff 0x2 count 5120 "
        "datatype 6 op 0 root 0 comm 0x1 [nranks=4] stream 0x3\n"
    )
    path = write(tmp_path, coll + "".join(lines(captured())))
    assert load(path).totals()[0][2] == "float16"
    assert load(path, dtype="float32").totals()[0][2] == "float32"


@pytest.mark.parametrize(
    "text",
    ["", "hello\n", "node-a:7:7 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n", "\x00" * 5000],
)
def test_a_log_without_calls_says_how_to_get_them(tmp_path: Path, text: str) -> None:
    with pytest.raises(CollbenchError, match="it has no calls") as raised:
        load(write(tmp_path, text))
    assert "NCCL_DEBUG_SUBSYS" in raised.value.fix


def test_ranks_must_be_those_of_the_log(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(lines(captured())))
    assert load(path, tp=4).nranks == 4
    with pytest.raises(CollbenchError, match="ran with 4 ranks, not 2"):
        load(path, tp=2)
    bare = write(tmp_path, "".join(line for line in lines(captured()) if "nranks" not in line))
    with pytest.raises(CollbenchError, match="does not say how many ranks"):
        load(bare)
    assert load(bare, tp=8).totals()[1][1] == VOCAB // 4 * 2 * 8


def test_communicators_of_several_sizes_need_the_number_of_ranks(tmp_path: Path) -> None:
    world = "node-a:7:7 [0] NCCL INFO ncclCommInitRank comm 0x2 rank 0 nranks 8 x - Init COMPLETE"
    path = write(tmp_path, world + "\n" + "".join(lines(captured())))
    with pytest.raises(CollbenchError, match="communicators of 4 and 8 ranks"):
        load(path)
    assert load(path, tp=4).totals()[1][1] == VOCAB * 2


def test_symmetric_kernels_are_calls_and_are_noted(tmp_path: Path) -> None:
    symmetric = re.compile(r"AllReduce: (\d+) Bytes -> .*")
    text = symmetric.sub(
        r"AllReduce [Symmetric]: \1 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4",
        "".join(lines(captured())),
    )
    made = load(write(tmp_path, text))
    assert made.totals()[0][3] == 2 * LAYERS + 1
    assert any("symmetric" in note for note in made.notes)


def test_a_pass_too_short_for_a_model_is_noted(tmp_path: Path) -> None:
    made = load(write(tmp_path, "".join(lines(forward(1)[-3:]))))
    assert any("may be cut" in note for note in made.notes)


@pytest.mark.parametrize("batch", [0, -3])
def test_a_batch_below_one_is_refused(tmp_path: Path, batch: int) -> None:
    with pytest.raises(CollbenchError, match="--batch"):
        load(write(tmp_path, "".join(lines(captured()))), batch=batch)


def test_a_missing_log_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CollbenchError, match="No such file"):
        load(str(tmp_path / "no.log"), tp=2)


def test_a_log_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collbench.workload.log.MAX_CALLS", 50)
    with pytest.raises(CollbenchError, match="more than 50 calls"):
        load(write(tmp_path, "".join(lines(captured()))))


@settings(deadline=None)
@given(st.lists(st.text(max_size=80), max_size=30))
def test_no_text_crashes_the_reader(texts: list[str]) -> None:
    raw = [text.encode("utf-8", "surrogatepass") for text in texts]
    raw += [b"a:1:1 [0] NCCL INFO " + line for line in raw]
    read_calls([(i, line, True) for i, line in enumerate(raw)])
