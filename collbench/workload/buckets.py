"""The CUDA-graph bucket a batch runs in: collectives have the bucket's size, not the batch's.

SGLang 0.5.23 ``srt/arg_groups/cuda_graph_hook.py:500-532`` buckets sequences; vLLM 0.33.0
``config/vllm.py:2410,2441`` and ``config/compilation.py:1537`` buckets tokens, rounded up to
multiples of the tokens verified per sequence.
"""

from __future__ import annotations

from typing import Literal

Server = Literal["sglang", "vllm"]
SERVERS: tuple[Server, ...] = ("sglang", "vllm")

DEFAULT_LARGEST: dict[Server, int] = {"sglang": 256, "vllm": 512}
"""Largest captured size assumed: sequences (SGLang), tokens (vLLM). Servers choose it from the
GPU's memory and from their arguments."""


def sglang_sequences(largest: int, *, speculative: bool) -> list[int]:
    """Return the batch sizes SGLang captures, ascending, with `largest` last."""
    if speculative:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]
        sizes += range(272, largest + 1, 16)
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16)]
        sizes += range(512, largest + 1, 32)
    return sorted({size for size in sizes if size < largest} | {largest})


def vllm_tokens(largest: int, *, draft_tokens: int) -> list[int]:
    """Return the token counts vLLM captures, ascending; every one a multiple of `draft_tokens`."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    rounded = {-(-size // draft_tokens) * draft_tokens for size in sizes if size <= largest}
    return sorted(size for size in rounded if size <= largest)


def graph_tokens(
    server: Server, *, batch: int, draft_tokens: int, largest: int | None = None
) -> int | None:
    """Return the tokens of the bucket that holds `batch` sequences; None: eager, above all.

    >>> graph_tokens("sglang", batch=9, draft_tokens=4)
    40
    >>> graph_tokens("vllm", batch=3, draft_tokens=3)
    9
    >>> graph_tokens("vllm", batch=600, draft_tokens=1) is None
    True
    """
    largest = largest or DEFAULT_LARGEST[server]
    if server == "sglang":
        sequences = sglang_sequences(largest, speculative=draft_tokens > 1)
        held = next((size for size in sequences if size >= batch), None)
        return None if held is None else held * draft_tokens
    wanted = batch * draft_tokens
    tokens = vllm_tokens(largest, draft_tokens=draft_tokens)
    return next((size for size in tokens if size >= wanted), None)
