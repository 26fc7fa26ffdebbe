"""The steps of models have the calls, sizes and compute that the servers' sources give them."""

import doctest
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench import workload
from collbench.errors import CollbenchError, Exit
from collbench.workload import buckets, compute, load, load_table, presets, step
from collbench.workload.buckets import sglang_sequences, vllm_tokens
from collbench.workload.compute import attention_weights, feed_forward_weights
from collbench.workload.model import LIMITS, model_of_config, read_model

DENSE: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
}


def write(folder: Path, config: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("module", [buckets, compute, step])
def test_doctests_hold(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("preset", "reduces", "size_bytes", "sent"),
    [
        ("61x7168", 123, 57_344, 129_280),
        ("61x7168-e384", 123, 57_344, 163_840),
        ("64x5120", 129, 40_960, 151_936),
        ("80x8192", 161, 65_536, 128_256),
    ],
)
def test_presets_at_tp8_batch_1_and_four_draft_tokens(
    preset: str, reduces: int, size_bytes: int, sent: int
) -> None:
    made = load(preset, tp=8, draft_tokens=4)
    assert made.totals() == [
        ("all_reduce", size_bytes, "bfloat16", reduces),
        ("all_gather", sent * 8, "bfloat16", 1),
    ]


def test_the_fixed_step_is_that_of_the_recorded_landscapes() -> None:
    made = load("verify-61x7168")
    assert made.kind == "fixed"
    assert made.totals() == [
        ("all_reduce", 57_344, "bfloat16", 122),
        ("all_gather", 1_310_720, "bfloat16", 1),
    ]
    assert made.step.calls[0].compute == ((4, 7168, 1792), (4, 1792, 7168))
    assert [case.key for case in made.cases()] == [
        "all_reduce/57344/bfloat16/graph",
        "all_gather/1310720/bfloat16/graph",
    ]


def test_all_reduce_bytes_do_not_depend_on_the_ranks() -> None:
    assert {load("80x8192", tp=tp).totals()[0] for tp in (2, 4, 8)} == {
        ("all_reduce", 16384, "bfloat16", 161)
    }


def test_calls_stand_in_the_order_of_the_layers() -> None:
    calls = load("64x5120", tp=4).step.calls
    attention_width = (16 + 2 * 2 + 16) * 128 // 2
    assert calls[0].compute == ()
    assert [call.compute for call in calls[1:5]] == [
        ((1, 5120, attention_width), (1, attention_width, 5120)),
        ((1, 5120, 6400 * 3 // 2), (1, 6400 * 3 // 2, 5120)),
    ] * 2
    assert calls[-1].collective == "all_gather"
    assert calls[-1].compute == ((1, 5120, 151936 // 4),)


@pytest.mark.parametrize("name", list(presets()))
@pytest.mark.parametrize("tokens", [1, 4, 96])
def test_products_chain_and_end_in_the_message_of_their_call(name: str, tokens: int) -> None:
    for call in load(name, tp=4, batch=tokens, server="vllm").step.calls[1:]:
        for (_, _, n), (_, k, _) in zip(call.compute, call.compute[1:], strict=False):
            assert n == k
        m, _, n = call.compute[-1]
        share = 4 if call.collective == "all_gather" else 1
        assert m * n * 2 * share == call.size_bytes


def test_the_weights_of_latent_attention_are_all_counted() -> None:
    model = read_model("61x7168")
    heads = 128 // 8
    assert attention_weights(model, 8) == (
        7168 * (1536 + 512 + 64)
        + 1536 * heads * (128 + 64)
        + heads * 128 * 512
        + 512 * heads * 128
        + heads * 128 * 7168
    )


def test_the_weights_of_woken_experts_are_counted() -> None:
    model = read_model("61x7168")
    expert = 3 * 7168 * 2048 // 8
    router = 7168 * 256
    assert feed_forward_weights(model, 1, 8, layer=10) == router + (8 + 1) * expert
    assert feed_forward_weights(model, 10_000, 8, layer=10) == router + (256 + 1) * expert
    assert feed_forward_weights(model, 1, 8, layer=2) == 3 * 7168 * 18432 // 8  # dense


def test_the_models_weights_add_up_to_its_published_size() -> None:
    # All experts woken and one rank: the 671 billion parameters of the model, but for embeddings
    # (0.9 billion, looked up, not multiplied) and norms.
    model = read_model("61x7168")
    layers = sum(
        attention_weights(model, 1) + feed_forward_weights(model, 10_000, 1, layer)
        for layer in range(model.layers)
    )
    assert abs(layers + 2 * model.vocab * model.hidden - 671e9) < 1e9
    dense = read_model("80x8192")
    layers = dense.layers * (attention_weights(dense, 1) + feed_forward_weights(dense, 1, 1, 0))
    assert abs(layers + 2 * dense.vocab * dense.hidden - 70.6e9) < 0.1e9


def test_graph_buckets_are_those_of_the_servers() -> None:
    assert sglang_sequences(256, speculative=True)[:20] == [*range(1, 9), *range(10, 33, 2)]
    assert sglang_sequences(20, speculative=False) == [1, 2, 4, 8, 12, 16, 20]
    assert sglang_sequences(512, speculative=False)[-3:] == [480, 496, 512]
    assert vllm_tokens(512, draft_tokens=1)[:6] == [1, 2, 4, 8, 16, 24]
    assert vllm_tokens(512, draft_tokens=1)[-2:] == [496, 512]
    assert vllm_tokens(16, draft_tokens=3) == [3, 6, 9]
    assert all(size % 7 == 0 for size in vllm_tokens(512, draft_tokens=7))


def test_a_batch_runs_in_its_bucket_and_says_so() -> None:
    made = load("64x5120", tp=8, batch=9, draft_tokens=4, server="sglang")
    assert made.tokens == 40
    assert made.totals()[0][1] == 40 * 5120 * 2
    assert any("36 tokens run in the graph of 40" in note for note in made.notes)
    assert load("64x5120", tp=8, batch=9, draft_tokens=4, server="vllm").tokens == 40
    assert load("64x5120", tp=8, batch=3, draft_tokens=5, server="vllm").tokens == 20


def test_above_the_largest_graph_the_step_is_eager_and_says_so() -> None:
    made = load("64x5120", tp=8, batch=40, largest_graph=32)
    assert made.eager
    assert made.tokens == 40
    assert any("eagerly" in note for note in made.notes)


def test_a_draft_model_adds_one_pass_of_d_and_d_minus_2_of_one() -> None:
    alone = load("61x7168", tp=8, draft_tokens=4)
    both = load("61x7168", tp=8, draft_tokens=4, draft="mtp")
    assert {row[:2]: row[3] for row in both.totals()} == {
        ("all_reduce", 57_344): 123 + 3,
        ("all_gather", 129_280 * 8): 2,
        ("all_reduce", 14_336): 2 * 3,
        ("all_gather", 129_280 * 2): 2,
    }
    assert any("left out" in note for note in alone.notes)


def test_padding_of_the_vocabulary_divides_by_the_ranks(tmp_path: Path) -> None:
    made = load(write(tmp_path, DENSE), tp=3)
    assert made.totals()[1] == ("all_gather", 1152 * 2, "bfloat16", 1)  # 64 x 3 x 6


def test_text_config_of_a_multimodal_model_is_used(tmp_path: Path) -> None:
    path = write(tmp_path, {"model_type": "x_vl", "text_config": DENSE})
    assert load(path, tp=2).totals()[0] == ("all_reduce", 128, "bfloat16", 5)
    assert load(str(tmp_path), tp=2).totals() == load(path, tp=2).totals()


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "minimax_m2", "attn_type_list": [1, 1]},
        {"model_type": "gpt_neox", "use_parallel_residual": False},
        {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0},
        {"model_type": "gpt_oss", "layer_types": ["sliding_attention", "full_attention"]},
    ],
)
def test_a_relative_of_a_refused_family_with_plain_layers_is_taken(change: dict[str, Any]) -> None:
    assert model_of_config({**DENSE, **change}, name="x", where="x").layers == 2


@pytest.mark.parametrize("place", ["text_config", "llm_config", "language_config"])
def test_the_language_model_is_found_where_multimodal_configs_keep_it(place: str) -> None:
    read = model_of_config({"model_type": "vl", place: DENSE}, name="x", where="x")
    assert (read.layers, read.hidden, read.vocab) == (2, 64, 1000)
    nested = {"thinker_config": {"text_config": DENSE, "audio_config": {"hidden_size": 9}}}
    assert model_of_config(nested, name="x", where="x") == read


def test_a_gemma_3_config_as_published_leaves_out_its_vocabulary() -> None:
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
    }
    config = {"model_type": "gemma3", "text_config": text, "torch_dtype": "bfloat16"}
    read = model_of_config(config, name="x", where="x")
    assert (read.vocab, read.heads, read.kv_heads, read.head_dim) == (262208, 8, 4, 256)


@pytest.mark.parametrize(
    ("types", "dtype", "notes"),
    [
        ({"torch_dtype": "float16"}, "float16", 0),
        ({"dtype": "float16"}, "float16", 0),
        ({"torch_dtype": None, "dtype": "float16"}, "float16", 0),
        ({}, "bfloat16", 0),
        ({"torch_dtype": "float32"}, "bfloat16", 1),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_the_type_is_the_one_servers_run(
    types: dict[str, Any], dtype: str, notes: int, nested: bool
) -> None:
    plain = {name: value for name, value in DENSE.items() if name != "torch_dtype"}
    config = {"text_config": plain, **types} if nested else {**plain, **types}
    read = model_of_config(config, name="x", where="x")
    assert (read.dtype, len(read.notes)) == (dtype, notes)


def test_a_config_in_float32_is_not_sent_in_twice_the_bytes(tmp_path: Path) -> None:
    source = write(tmp_path, {**DENSE, "torch_dtype": "float32"})
    assert load(source, tp=2).totals()[0][:3] == ("all_reduce", 128, "bfloat16")
    assert any("float32" in note for note in load(source, tp=2).notes)
    asked = load(source, tp=2, dtype="float32")
    assert asked.totals()[0][:3] == ("all_reduce", 256, "float32")


def test_experts_are_found_under_the_names_of_each_family() -> None:
    for names in (
        {"num_local_experts": 64, "num_experts_per_tok": 8},
        {"moe_num_experts": 64, "moe_k": 8},
        {"num_experts": 64, "moe_topk": [8, 8]},
        {"moe_num_experts": 64, "moe_top_k": 8},
    ):
        read = model_of_config({**DENSE, **names}, name="x", where="x")
        assert (read.experts, read.experts_per_token) == (64, 8)


def test_as_dtype_keeps_the_bytes() -> None:
    made = load("verify-61x7168", dtype="float32")
    assert made.totals()[0] == ("all_reduce", 57_344, "float32", 122)
    model = model_of_config({**DENSE, "hidden_size": 3}, name="m", where="m")
    odd = step.step_of_model(model, source="m", tp=2)
    with pytest.raises(CollbenchError, match="not a whole number of float64"):
        odd.as_dtype("float64")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "hidden_size: missing"),
        ({"hidden_size": 0}, "hidden_size: '0'"),
        ({"hidden_size": -7168}, "'-7168' is not an integer from 1 to 1048576"),
        ({"hidden_size": 10**12}, "hidden_size: '1000000000000'"),
        ({"num_hidden_layers": "61"}, "num_hidden_layers: '61'"),
        ({"num_hidden_layers": True}, "num_hidden_layers: 'True'"),
        ({"vocab_size": 1.5}, "vocab_size: '1.5'"),
        ({"torch_dtype": "int4"}, "torch_dtype: 'int4'"),
        ({"model_type": "bert"}, "encoder-only"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "mamba2"}, "Mamba"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "linear-attention"),
        ({"hc_mult": 4}, "mHC"),
        ({"model_type": "falcon"}, "in parallel"),
        ({"model_type": "stablelm", "use_parallel_residual": True}, "in parallel"),
        ({"model_type": "minimax_m1", "attn_type_list": [0, 1]}, "linear-attention"),
        ({"model_type": "kimi_linear", "linear_attn_config": {}}, "linear-attention"),
        ({"model_type": "nemotron-nas", "block_configs": []}, "left out"),
        ({"model_type": "rwkv7"}, "recurrent"),
        ({"block_types": ["recurrent", "attention"]}, "recurrent"),
        ({"layers_block_type": ["mamba", "attention"]}, "linear-attention"),
        ({"text_config": {**DENSE, "altup_num_inputs": 4}}, "per-layer embeddings"),
        ({"text_config": {**DENSE, "hidden_size_per_layer_input": 256}}, "per-layer embeddings"),
        ({"moe_topk": [8, 4]}, "moe_topk"),
    ],
)
def test_a_wrong_or_foreign_config_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(CollbenchError, match=said.replace("(", r"\(")) as raised:
        load(write(tmp_path, {**DENSE, **change}), tp=2)
    assert raised.value.code == Exit.USAGE
    assert raised.value.fix


@pytest.mark.parametrize("text", ["", "[]", '"x"', "{", "\x00", "[" * 100_000])
def test_what_is_not_a_config_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CollbenchError, match=r"config\.json"):
        load(str(path), tp=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tp": None}, "--tp: a model needs"),
        ({"tp": 1}, "1 rank has no collectives"),
        ({"tp": 0}, "--tp: 0 is not from 1"),
        ({"tp": 2, "batch": 0}, "--batch: 0"),
        ({"tp": 2, "batch": -1}, "--batch: -1"),
        ({"tp": 2, "batch": 10**9}, "--batch: 1000000000"),
        ({"tp": 2, "draft_tokens": 0}, "--draft-tokens: 0"),
        ({"tp": 2, "batch": 65536, "draft_tokens": 64}, "over 16 GiB"),
        ({"tp": 2, "server": "tgi"}, "--server: 'tgi'"),
        ({"tp": 2, "dtype": "bf16"}, "--dtype: unknown dtype 'bf16'"),
        ({"tp": 2, "draft": "mtp"}, "no multi-token prediction layer"),
        ({"tp": 2, "config": "x"}, "is not a log"),
    ],
)
def test_absurd_arguments_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(CollbenchError, match=said):
        load("80x8192", **arguments)


def test_an_unknown_source_names_the_known_ones() -> None:
    with pytest.raises(CollbenchError, match="nothing-here") as raised:
        load("nothing-here", tp=2)
    assert "80x8192" in raised.value.fix


def test_arguments_without_effect_are_refused() -> None:
    with pytest.raises(CollbenchError, match="--batch: verify-61x7168 has fixed sizes"):
        load("verify-61x7168", batch=4)


def test_every_preset_loads_and_is_listed() -> None:
    assert set(presets()) < set(workload.names())
    for name in presets():
        assert load(name, tp=8).model is not None


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


FIELDS = [*DENSE, *LIMITS, "num_experts", "text_config", "layer_types", "dtype"]


def attempt(function: Callable[[], Any]) -> Any:
    """What a function returns, or its error."""
    try:
        return function()
    except CollbenchError as error:
        return error


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), junk))
def test_any_config_gives_a_model_or_one_line(change: dict[str, Any]) -> None:
    made = attempt(lambda: model_of_config({**DENSE, **change}, name="m", where="config.json"))
    if isinstance(made, CollbenchError):
        assert "config.json" in made.what
        assert made.what.isprintable()
    elif made.layers < 100:
        shown = attempt(lambda: step.step_of_model(made, source="m", tp=2))
        if isinstance(shown, CollbenchError):
            assert "over 16 GiB" in shown.what
        else:
            assert shown.totals()[0][3] == 2 * made.layers + 1


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["name", "dtype", "calls", "other", "model"]), junk))
def test_any_table_gives_a_step_or_one_line(table: dict[str, Any]) -> None:
    made = attempt(lambda: load_table(table, where="w.toml: workload", tp=2))
    assert isinstance(made, CollbenchError) or made.step.calls
