"""From a model to the step: 2L + 1 all_reduces of T x H elements and one all_gather of logits.

Read in SGLang 0.5.23 (``layers/vocab_parallel_embedding.py``, ``layers/linear.py``,
``models/deepseek_v2.py``, ``layers/logits_processor.py``) and vLLM 0.33.0; a server's own NCCL log
is to be preferred, because it says what the server did.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from collbench.collectives import itemsize
from collbench.errors import CollbenchError
from collbench.job import Case, Mode, Step, StepCall
from collbench.workload import compute
from collbench.workload.buckets import Server, graph_tokens
from collbench.workload.model import Model

MAX_BATCH = 1 << 16
MAX_DRAFT = 64
MAX_TP = 1024
MAX_CALL_BYTES = 1 << 34
COMPUTE_BOUND_TOKENS = 256
"""Rows from which a bf16 product on current GPUs is no longer bound by reading its weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A step and where it came from."""

    step: Step
    kind: Literal["model", "log", "toml", "fixed"]
    source: str
    """What the user named: a preset, a path."""
    nranks: int | None = None
    """Ranks it was made for; None: sizes do not depend on them."""
    batch: int | None = None
    draft_tokens: int | None = None
    tokens: int | None = None
    """Tokens of the step: the bucket, not the live batch."""
    server: Server | None = None
    eager: bool = False
    """Above the largest captured graph: the server runs the step without one."""
    model: Model | None = None
    draft: Model | None = None
    """Draft model whose passes are part of the round."""
    largest_graph: int | None = None
    """Largest captured size, as the user said it."""
    backends: tuple[str, ...] = ()
    """all_reduce backends a vLLM server said it tries, in order; empty: it did not say."""
    notes: tuple[str, ...] = ()
    """What was assumed or left out; to be printed."""

    def totals(self) -> list[tuple[str, int, str, int]]:
        """Return (collective, size_bytes, dtype, calls) of each distinct call, by first use."""
        found: dict[tuple[str, int, str], int] = {}
        for call in self.step.calls:
            key = (call.collective, call.size_bytes, call.dtype)
            found[key] = found.get(key, 0) + call.count
        return [(*key, count) for key, count in found.items()]

    def cases(self, mode: Mode = "graph") -> tuple[Case, ...]:
        """Return each distinct call as a case to be timed on its own."""
        return tuple(
            Case(collective=collective, size_bytes=size_bytes, dtype=dtype, mode=mode)
            for collective, size_bytes, dtype, _ in self.totals()
        )

    def as_dtype(self, dtype: str) -> Workload:
        """Return the same bytes as elements of another type (backends without bfloat16).

        Raises:
            CollbenchError: a size is not a whole number of such elements.
        """
        size = itemsize(dtype)
        for call in self.step.calls:
            if call.size_bytes % size:
                raise CollbenchError(
                    f"{self.source}: {call.collective} of {call.size_bytes} bytes is not a whole "
                    f"number of {dtype} elements",
                    fix="use a dtype of fewer bytes",
                )
        calls = tuple(dataclasses.replace(call, dtype=dtype) for call in self.step.calls)
        return dataclasses.replace(self, step=Step(name=self.step.name, calls=calls))


def within(name: str, value: int, largest: int) -> int:
    """Return `value` if it is from 1 to `largest`.

    Raises:
        CollbenchError: it is not.
    """
    if not 1 <= value <= largest:
        raise CollbenchError(f"{name}: {value} is not from 1 to {largest}", fix=f"change {name}")
    return value


def vocab_share(vocab: int, tp: int) -> int:
    """Return one rank's padded share of the vocabulary.

    Padded to 64, or to 64 x tp where that does not divide
    (SGLang ``vocab_parallel_embedding.py:273-274``).

    >>> vocab_share(151936, 8), vocab_share(32003, 3)
    (18992, 10688)
    """
    padded = -(-vocab // 64) * 64
    if padded % tp:
        padded = -(-vocab // (64 * tp)) * 64 * tp
    return padded // tp


def forward(model: Model, *, tokens: int, tp: int, dtype: str) -> Iterator[StepCall]:
    """Yield the collectives of one forward pass of `tokens` tokens, in order."""
    payload = tokens * model.hidden * itemsize(dtype)
    share = vocab_share(model.vocab, tp)

    def call(collective: str, size: int, products: tuple[compute.Product, ...]) -> StepCall:
        if size > MAX_CALL_BYTES:
            raise CollbenchError(
                f"{model.name}: {collective} of {size} bytes is over 16 GiB",
                fix="check --batch, --draft-tokens and the config's sizes",
            )
        return StepCall(
            collective=collective, size_bytes=size, dtype=dtype, count=1, compute=products
        )

    yield call("all_reduce", payload, ())  # embedding
    for layer in range(model.layers):
        yield call("all_reduce", payload, compute.attention(model, tokens, tp))
        yield call("all_reduce", payload, compute.feed_forward(model, tokens, tp, layer))
    gathered = tokens * share * itemsize(dtype) * tp
    yield call("all_gather", gathered, compute.head(model, tokens, share))


def in_rows(calls: Iterator[StepCall]) -> tuple[StepCall, ...]:
    """Join calls in a row that are equal."""
    rows: list[StepCall] = []
    for call in calls:
        if rows and dataclasses.replace(rows[-1], count=call.count) == call:
            rows[-1] = dataclasses.replace(call, count=rows[-1].count + call.count)
        else:
            rows.append(call)
    return tuple(rows)


def draft_passes(
    draft: Model, *, batch: int, draft_tokens: int, tokens: int, tp: int, dtype: str
) -> Iterator[StepCall]:
    """Yield the draft model's share of a speculative round, one draft at a time (top-k 1).

    One pass over the verified tokens, which also gives the first draft, then D - 2 passes of one
    token per sequence: D - 1 drafts and the target's own token make D.
    """
    if draft_tokens < 2:
        return
    yield from forward(draft, tokens=tokens, tp=tp, dtype=dtype)
    for _ in range(draft_tokens - 2):
        yield from forward(draft, tokens=batch, tp=tp, dtype=dtype)


def step_of_model(
    model: Model,
    *,
    source: str,
    tp: int,
    batch: int = 1,
    draft_tokens: int = 1,
    server: Server = "sglang",
    dtype: str | None = None,
    draft: Model | None = None,
    largest_graph: int | None = None,
) -> Workload:
    """Return the step of a model served with plain tensor parallelism over `tp` ranks.

    Args:
        model: The target model.
        source: What the user named.
        tp: Ranks; with 1 there is nothing to communicate.
        batch: Live sequences.
        draft_tokens: Tokens the target verifies per sequence; 1 is plain decode. SGLang's
            ``--speculative-num-draft-tokens``, vLLM's ``num_speculative_tokens`` + 1.
        server: Whose CUDA-graph buckets hold the batch.
        dtype: Of the activations; None: the config's.
        draft: Draft model, whose passes are then part of the round.
        largest_graph: Largest captured size: sequences (sglang), tokens (vllm).

    Raises:
        CollbenchError: a value is out of range, or `tp` is 1.
    """
    within("--batch", batch, MAX_BATCH)
    within("--draft-tokens", draft_tokens, MAX_DRAFT)
    if within("--tp", tp, MAX_TP) == 1:
        raise CollbenchError(
            "--tp: 1 rank has no collectives to time", fix="give the server's --tp, 2 or more"
        )
    if largest_graph is not None:
        within("--max-graph", largest_graph, MAX_BATCH)
    dtype = dtype or model.dtype
    bucket = graph_tokens(server, batch=batch, draft_tokens=draft_tokens, largest=largest_graph)
    tokens = bucket or batch * draft_tokens
    notes = ["derived from the config, not from a trace: an NCCL log of the server is preferred"]
    if dtype == model.dtype:
        notes += model.notes
    if bucket is None:
        notes.append("above the largest captured graph: the server runs this step eagerly")
    elif bucket != batch * draft_tokens:
        notes.append(f"{batch * draft_tokens} tokens run in the graph of {bucket}")
    if model.heads is None or not (model.intermediate or model.moe_intermediate):
        notes.append("the config does not say all sizes of the layers: compute is incomplete")
    if model.experts and tokens > COMPUTE_BOUND_TOKENS:
        notes.append(
            f"above {COMPUTE_BOUND_TOKENS} tokens the compute of the woken experts is overstated"
        )
    calls = list(forward(model, tokens=tokens, tp=tp, dtype=dtype))
    if draft is not None and draft_tokens > 1:
        per_sequence = tokens // draft_tokens
        calls += draft_passes(
            draft,
            batch=per_sequence,
            draft_tokens=draft_tokens,
            tokens=tokens,
            tp=tp,
            dtype=dtype,
        )
        notes.append(f"with the draft model {draft.name}, one draft at a time")
    elif draft is not None:
        notes.append("--draft-tokens is 1: the draft model does not run")
    elif draft_tokens > 1:
        notes.append("the draft model's own collectives are left out; give --draft-config")
    kind = "verify" if draft_tokens > 1 else "decode"
    return Workload(
        step=Step(name=f"{kind}-{model.name}-b{batch}-d{draft_tokens}", calls=in_rows(iter(calls))),
        kind="model",
        source=source,
        nranks=tp,
        batch=batch,
        draft_tokens=draft_tokens,
        tokens=tokens,
        server=server,
        eager=bucket is None,
        model=model,
        draft=draft,
        largest_graph=largest_graph,
        notes=tuple(notes),
    )
