"""The matrix products one rank does before each collective, sized from the model's shards.

A simplification, on purpose: each block of a layer stands as two products in a row,
``[T, H] @ [H, w] @ [w, H]``, with w such that they read as many weights as all projections of the
block do on one rank; so their result can be the very message of the all_reduce that follows.
Kept: the bytes of weights read, and with them the time of a decode or verify step, which is bound
by them. Left out: attention over the context (it grows with the context, which is not known),
norms, activations, routing, sampling; and quantised weights count as weights of the
collectives' dtype.
"""

from __future__ import annotations

from collbench.workload.model import Model

Product = tuple[int, int, int]
"""(m, k, n) for ``[m, k] @ [k, n]``."""

WIDTH_MULTIPLE = 8
"""Widths are whole multiples, for the alignment that fast kernels want."""


def pair(tokens: int, hidden: int, weights: int) -> tuple[Product, ...]:
    """Return two products in a row that read so many weights; none for no weights.

    >>> pair(4, 7168, 2 * 7168 * 1792)
    ((4, 7168, 1792), (4, 1792, 7168))
    """
    if not weights:
        return ()
    width = max(1, round(weights / (2 * hidden * WIDTH_MULTIPLE))) * WIDTH_MULTIPLE
    return (tokens, hidden, width), (tokens, width, hidden)


def attention_weights(model: Model, tp: int) -> int:
    """Return the weights of one attention block's projections on one rank.

    0 where the config has no heads. Latent attention (a key-value rank) keeps its down-projections
    whole on every rank, and its absorbed products read the per-head matrices once.
    """
    if model.heads is None:
        return 0
    heads = max(1, model.heads // tp)
    hidden = model.hidden
    if model.kv_rank is None:
        dim = model.head_dim or hidden // model.heads
        kv_heads = max(1, (model.kv_heads or model.heads) // tp)
        return hidden * dim * (heads + 2 * kv_heads) + heads * dim * hidden
    query = heads * (model.nope_dim + model.rope_dim)
    latent = model.kv_rank + model.rope_dim
    first = hidden * model.q_rank + model.q_rank * query if model.q_rank else hidden * query
    absorbed = heads * model.kv_rank * (model.nope_dim + model.v_dim)
    return first + hidden * latent + absorbed + heads * model.v_dim * hidden


def woken_experts(model: Model, tokens: int) -> int:
    """Return how many routed experts some tokens wake in one layer.

    With k of E experts per token chosen evenly, T tokens wake E * (1 - (1 - k/E)**T) of them.
    """
    chance = min(1.0, model.experts_per_token / model.experts)
    return max(1, round(model.experts * (1.0 - (1.0 - chance) ** tokens)))


def feed_forward_weights(model: Model, tokens: int, tp: int, layer: int) -> int:
    """Return the weights one rank reads in one feed-forward block: gate, up and down.

    In a mixture of experts those of the router, of the shared experts and of the woken ones.
    """
    if model.is_dense(layer) or not model.experts_per_token:
        return 3 * model.hidden * ((model.intermediate or 0) // tp)
    width = (model.moe_intermediate or model.intermediate or 0) // tp
    experts = woken_experts(model, tokens) + model.shared_experts
    return model.hidden * model.experts + 3 * model.hidden * width * experts


def attention(model: Model, tokens: int, tp: int) -> tuple[Product, ...]:
    """Return the products of one attention block on one rank."""
    return pair(tokens, model.hidden, attention_weights(model, tp))


def feed_forward(model: Model, tokens: int, tp: int, layer: int) -> tuple[Product, ...]:
    """Return the products of one feed-forward block on one rank."""
    return pair(tokens, model.hidden, feed_forward_weights(model, tokens, tp, layer))


def head(model: Model, tokens: int, vocab_share: int) -> tuple[Product, ...]:
    """Return the product of the language-model head on one rank's share of the vocabulary."""
    return ((tokens, model.hidden, vocab_share),)
