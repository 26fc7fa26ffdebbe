"""The dimensions of a model, from its ``config.json``; families that are not modelled are refused.

Derivation of what is modelled: SGLang 0.5.23 and vLLM 0.33.0 with plain tensor parallelism.
"""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from collbench.errors import CollbenchError
from collbench.readers import UnreadableError
from collbench.readers.text import read_whole

LIMITS = {
    "num_hidden_layers": 1000,
    "hidden_size": 1 << 20,
    "vocab_size": 1 << 24,
    "num_attention_heads": 1 << 12,
    "num_key_value_heads": 1 << 12,
    "head_dim": 1 << 14,
    "intermediate_size": 1 << 22,
    "moe_intermediate_size": 1 << 22,
    "n_routed_experts": 1 << 14,
    "n_shared_experts": 1 << 8,
    "num_experts_per_tok": 1 << 8,
    "first_k_dense_replace": 1000,
    "q_lora_rank": 1 << 20,
    "kv_lora_rank": 1 << 20,
    "qk_nope_head_dim": 1 << 14,
    "qk_rope_head_dim": 1 << 14,
    "v_head_dim": 1 << 14,
}
"""Largest value believed of each field; beyond it the file is wrong."""

ALIASES = {
    "n_routed_experts": ("num_local_experts", "num_experts", "moe_num_experts"),
    "n_shared_experts": ("num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "num_experts_per_tok": ("num_experts_per_token", "moe_topk", "moe_top_k", "moe_k"),
}
INNER = ("thinker_config", "text_config", "llm_config", "language_config")
"""Where the configs of multimodal models keep their language model's."""
OMITTED: dict[str, dict[str, int]] = {
    "gemma3_text": {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
    }
}
"""What a family's published configs leave out: the defaults of its class in transformers
(``models/gemma3/configuration_gemma3.py``)."""

ENCODERS = (
    "albert,bert,camembert,deberta,deberta-v2,distilbert,electra,longformer,modernbert,mpnet,"
    "nomic_bert,roberta,xlm-roberta,xlm-roberta-xl"
)
PARALLEL_KINDS = ("cohere", "cohere2", "falcon", "gpt_neox", "gptj", "phi")
"""Unless their config says otherwise."""
RECURRENT = ("rwkv", "recurrent_gemma", "retnet", "xlstm")
LAYER_LISTS = ("layer_types", "layers_block_type", "block_types")
LINEAR_FIELDS = ("linear_num_key_heads", "linear_attn_config")
MAMBA = "bamba,falcon_h1,falcon_mamba,granitemoehybrid,jamba,mamba,mamba2,zamba2"


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """What the collectives and the compute of one forward pass depend on."""

    name: str
    layers: int
    hidden: int
    vocab: int
    dtype: str
    """Of the activations, which is what the collectives carry."""
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    intermediate: int | None = None
    moe_intermediate: int | None = None
    experts: int = 0
    """Routed experts of one layer; 0 for a dense model."""
    shared_experts: int = 0
    experts_per_token: int = 0
    dense_layers: int = 0
    """Leading layers of a mixture of experts that are dense."""
    q_rank: int | None = None
    kv_rank: int | None = None
    """Rank of the latent key-value cache; None: plain attention."""
    nope_dim: int = 0
    rope_dim: int = 0
    v_dim: int = 0
    nextn: int = 0
    """Multi-token prediction layers that come with the model."""
    notes: tuple[str, ...] = ()
    """What was assumed in reading it; to be printed."""

    def is_dense(self, layer: int) -> bool:
        """Say whether the feed-forward part of a layer is dense."""
        return self.experts == 0 or layer < self.dense_layers


@functools.cache
def presets() -> Mapping[str, Mapping[str, Any]]:
    """Return the presets by name, as the content of a ``config.json``."""
    text = resources.files("collbench.workload").joinpath("presets.toml").read_text("utf-8")
    return tomllib.loads(text)


def read_model(source: str, *, where: str = "source") -> Model:
    """Return the model of a preset name or of the path of a ``config.json`` (or its folder).

    Raises:
        CollbenchError: unreadable, a field is missing or wrong, or the family is not modelled.
    """
    if source in presets():
        return model_of_config(presets()[source], name=source, where=source)
    path = Path(source)
    if path.is_dir():
        path = path / "config.json"
    try:
        config = json.loads(read_whole(path).decode("utf-8"))
    except UnreadableError as error:
        raise CollbenchError(
            f"{where}: {source!r}: {error}",
            fix=f"give a config.json, an NCCL log, a .toml file, or one of {', '.join(presets())}",
        ) from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise CollbenchError(
            f"{path}: not JSON: {str(error)[:120]}",
            fix="give the config.json that lies beside the model's weights",
        ) from error
    if not isinstance(config, dict):
        raise CollbenchError(f"{path}: holds {type(config).__name__}, not a JSON object")
    folder = path.resolve().parent.name
    name = folder if path.name == "config.json" and folder else path.stem
    return model_of_config(config, name=name, where=str(path))


def model_of_config(config: Mapping[str, Any], *, name: str, where: str) -> Model:
    """Return the dimensions in the content of a ``config.json``.

    Raises:
        CollbenchError: a field is missing or wrong, or the family is not modelled.
    """
    inner = language_model(config)
    refuse(config, inner, where)
    dtype, notes = _dtype(config, inner, where)
    given = {name: value for name, value in inner.items() if value is not None}
    inner = {**OMITTED.get(str(inner.get("model_type")), {}), **given}
    read = functools.partial(_number, inner, where)
    return Model(
        name=name,
        layers=_required(inner, where, "num_hidden_layers"),
        hidden=_required(inner, where, "hidden_size"),
        vocab=_required(inner, where, "vocab_size"),
        dtype=dtype,
        heads=read("num_attention_heads"),
        kv_heads=read("num_key_value_heads"),
        head_dim=read("head_dim"),
        intermediate=read("intermediate_size"),
        moe_intermediate=read("moe_intermediate_size"),
        experts=read("n_routed_experts") or 0,
        shared_experts=read("n_shared_experts") or 0,
        experts_per_token=read("num_experts_per_tok") or 0,
        dense_layers=read("first_k_dense_replace") or 0,
        q_rank=read("q_lora_rank"),
        kv_rank=read("kv_lora_rank"),
        nope_dim=read("qk_nope_head_dim") or 0,
        rope_dim=read("qk_rope_head_dim") or 0,
        v_dim=read("v_head_dim") or 0,
        nextn=1 if inner.get("num_nextn_predict_layers") else 0,
        notes=notes,
    )


def language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a config that describes the language model; all of it, where that is."""
    inner = config
    for name in INNER:
        below = inner.get(name)
        if isinstance(below, Mapping):
            inner = below
    return inner


def _dtype(
    config: Mapping[str, Any], inner: Mapping[str, Any], where: str
) -> tuple[str, tuple[str, ...]]:
    """Return the type of the activations as the servers choose it, and what was assumed.

    Both run a config in float32, or without a type, in 16 bits unless they are told otherwise
    (SGLang ``configs/model_config.py``, vLLM ``config/model.py``: ``_get_and_verify_dtype``).
    """
    given = (part.get(name) for part in (inner, config) for name in ("torch_dtype", "dtype"))
    dtype = next((value for value in given if value is not None), "bfloat16")
    if dtype not in ("bfloat16", "float16", "float32"):
        raise CollbenchError(
            f"{where}: torch_dtype: {str(dtype)[:40]!r} is not one of bfloat16, float16, float32",
            fix="set torch_dtype to the type of the activations",
        )
    if dtype != "float32":
        return str(dtype), ()
    return "bfloat16", (
        "the config is in float32, which servers run in 16 bits; with --dtype float32 give both "
        "the server and this command that type",
    )


def _required(config: Mapping[str, Any], where: str, field: str) -> int:
    value = _number(config, where, field)
    if not value:
        raise CollbenchError(
            f"{where}: {field}: missing",
            fix="give the config.json of a decoder-only language model, or an NCCL log of the "
            "server",
        )
    return value


def _number(config: Mapping[str, Any], where: str, field: str) -> int | None:
    found = next((n for n in (field, *ALIASES.get(field, ())) if config.get(n) is not None), None)
    if found is None:
        return None
    value = config[found]
    if isinstance(value, list) and value and all(item == value[0] for item in value):
        value = value[0]  # one for each layer
    largest = LIMITS[field]
    lowest = 0 if field in ("n_shared_experts", "first_k_dense_replace") else 1
    if field.startswith(("n_routed", "num_experts", "qk_", "q_lora")):
        lowest = 0
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= largest:
        raise CollbenchError(
            f"{where}: {found}: {str(value)[:40]!r} is not an integer from {lowest} to {largest}",
            fix="give the model's own config.json",
        )
    return value


def refuse(config: Mapping[str, Any], inner: Mapping[str, Any], where: str) -> None:
    """Refuse by name the families whose collectives are not those of `step_of_model`.

    Raises:
        CollbenchError: the family is not modelled.
    """
    kind = str(inner.get("model_type", config.get("model_type", ""))).lower()
    layers = {str(item) for name in LAYER_LISTS for item in _items(inner.get(name))}
    linear = any("linear" in item or "mamba" in item for item in layers)
    fields = " ".join(str(name) for name in inner)
    family = ""
    if config.get("is_encoder_decoder"):
        family = "encoder-decoder models"
    elif kind in ENCODERS.split(","):
        family = "encoder-only models (no decode step)"
    elif kind in MAMBA.split(",") or "mamba" in fields or "ssm_" in fields:
        family = "state-space (Mamba) layers"
    elif kind.startswith(RECURRENT) or "recurrent" in layers:
        family = "recurrent layers"
    elif linear or any(name in fields for name in LINEAR_FIELDS) or _zero_in(inner):
        family = "linear-attention layers"
    elif "hc_mult" in fields:
        family = "hyper-connection (mHC) layers"
    elif "altup_" in fields or inner.get("hidden_size_per_layer_input"):
        family = "per-layer embeddings"
    elif "block_configs" in fields:
        family = "layers that differ or are left out (block_configs)"
    elif inner.get("use_parallel_residual", inner.get("parallel_attn", kind in PARALLEL_KINDS)):
        family = "layers with attention and MLP in parallel"
    if family:
        shown = "".join(c for c in kind if c.isalnum() or c in "-_")[:40] or "unnamed"
        raise CollbenchError(
            f"{where}: model_type {shown}: {family} are not modelled: their collectives per step "
            "are not two per layer and one for the embedding",
            fix="give the server's NCCL log instead (NCCL_DEBUG=INFO "
            "NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING)",
        )


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _zero_in(config: Mapping[str, Any]) -> bool:
    """Say whether MiniMax's list of attention kinds has a 0: linear; 1 is softmax attention."""
    return any(item in (0, "0") for item in _items(config.get("attn_type_list")))
