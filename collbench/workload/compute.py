"""The matrix products one rank does before each collective, sized from the model's shards.

A simplification, on purpose. Kept: the bytes of weights read and the multiplications of every
projection, of the experts that a batch wakes, and of the language-model head. Left out: the
attention over the context (it grows with the context, which is not known), norms, activations,
routing and sampling; and quantised weights are timed as weights of the collectives' dtype.
"""

from __future__ import annotations

from collbench.workload.model import Model

Product = tuple[int, int, int]
"""(m, k, n) for ``[m, k] @ [k, n]``."""


def attention(model: Model, tokens: int, tp: int) -> tuple[Product, ...]:
    """Return the projections of one attention block; empty where the config has no heads."""
    if model.heads is None:
        return ()
    heads = max(1, model.heads // tp)
    hidden = model.hidden
    if model.kv_rank is None:
        dim = model.head_dim or hidden // model.heads
        kv_heads = max(1, (model.kv_heads or model.heads) // tp)
        return (
            (tokens, hidden, (heads + 2 * kv_heads) * dim),
            (tokens, heads * dim, hidden),
        )
    query = heads * (model.nope_dim + model.rope_dim)
    latent = model.kv_rank + model.rope_dim
    first: tuple[Product, ...] = ((tokens, hidden, query + latent),)
    if model.q_rank:
        first = ((tokens, hidden, model.q_rank + latent), (tokens, model.q_rank, query))
    # The absorbed products per head, [T, nope] @ [nope, rank] and [T, rank] @ [rank, v], as one
    # product each with the same weights and multiplications.
    return (
        *first,
        (tokens, heads * model.nope_dim, model.kv_rank),
        (tokens, model.kv_rank, heads * model.v_dim),
        (tokens, heads * model.v_dim, hidden),
    )


def feed_forward(model: Model, tokens: int, tp: int, layer: int) -> tuple[Product, ...]:
    """Return the products of one feed-forward block, gated; of woken experts in a mixture.

    With k of E experts per token chosen evenly, T tokens wake E * (1 - (1 - k/E)**T) of them. The
    woken experts stand in one product whose weights are theirs together.
    """
    hidden = model.hidden
    if model.is_dense(layer) or not model.experts_per_token:
        width = (model.intermediate or 0) // tp
        return gated(tokens, hidden, width)
    width = (model.moe_intermediate or model.intermediate or 0) // tp
    chance = min(1.0, model.experts_per_token / model.experts)
    woken = max(1, round(model.experts * (1.0 - (1.0 - chance) ** tokens)))
    rows = max(1, -(-tokens * model.experts_per_token // woken))
    shared = gated(tokens, hidden, width * model.shared_experts)
    return (tokens, hidden, model.experts), *shared, *gated(rows, hidden, width * woken)


def gated(tokens: int, hidden: int, width: int) -> tuple[Product, ...]:
    """Return gate and up as one product, then down; nothing where the width is not known."""
    return ((tokens, hidden, 2 * width), (tokens, width, hidden)) if width else ()


def head(model: Model, tokens: int, vocab_share: int) -> tuple[Product, ...]:
    """Return the product of the language-model head on one rank's share of the vocabulary."""
    return ((tokens, model.hidden, vocab_share),)
