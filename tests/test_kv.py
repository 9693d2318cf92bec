import json
from typing import Any

import pytest

from kvbench.content import model_shapes
from kvbench.errors import UsageError
from kvbench.kv import full_pages, stored_shape
from kvbench.model import Engine


@pytest.mark.parametrize(
    ("model", "bytes_per_token"),
    [
        ("llama-3.1-8b", 131_072),
        ("llama-3.1-70b", 327_680),
        ("Qwen2.5-32B", 262_144),
        ("Qwen3-Coder-480B-A35B", 253_952),
        ("DeepSeek-V3", 70_272),
    ],
)
def test_bytes_per_token_are_those_of_the_method(model: str, bytes_per_token: int) -> None:
    assert model_shapes()[model].kv_bytes_per_token == bytes_per_token


def test_a_published_session_has_the_published_size() -> None:
    shape = model_shapes()["Qwen3-Coder-480B-A35B"]
    session_bytes = 118 * 256 * shape.kv_bytes_per_token
    assert session_bytes == pytest.approx(7.6714e9, rel=1e-4)
    assert session_bytes / 2**30 == pytest.approx(7.1445, abs=1e-4)


def test_the_pages_of_a_rank_have_the_sizes_that_engines_write() -> None:
    shape = model_shapes()["Qwen3-Coder-480B-A35B"]
    assert shape.page_bytes(tensor_parallel=8) == 8_126_464
    assert shape.page_bytes(tensor_parallel=4) == 16_252_928


def test_an_mla_latent_is_stored_on_every_rank() -> None:
    shape = model_shapes()["DeepSeek-V3"]
    assert shape.page_bytes(tensor_parallel=8) == 256 * 70_272
    assert shape.replication(8) == 8


def test_gqa_is_replicated_when_ranks_outnumber_its_heads() -> None:
    shape = model_shapes()["llama-3.1-8b"]
    assert [shape.replication(ranks) for ranks in (1, 8, 16)] == [1, 1, 2]
    assert shape.page_bytes(16) * 16 == 2 * 256 * shape.kv_bytes_per_token


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 0), (256, 0), (257, 1), (2049, 8), (2048, 7)])
def test_the_last_token_is_always_computed(tokens: int, pages: int) -> None:
    assert full_pages(tokens) == pages


@pytest.mark.parametrize(
    ("told", "bytes_per_token"),
    [
        ({}, 131_072),
        ({"parameters": {"dtype": "auto"}}, 131_072),
        ({"parameters": {"dtype": "float32"}}, 262_144),
        ({"extra_args": ("--kv-cache-dtype", "fp8_e4m3")}, 65_536),
        ({"extra_args": ("--kv-cache-dtype=fp8",), "parameters": {"dtype": "float32"}}, 65_536),
        ({"extra_args": ("--kv-cache-dtype=auto",), "parameters": {"dtype": "float32"}}, 262_144),
        ({"command": ("vllm", "serve", "m", "--dtype", "float32")}, 262_144),
        ({"extra_args": ("--kv-cache-dtype", "fp8", "--kv-cache-dtype=bfloat16")}, 131_072),
        ({"extra_args": ("--enforce-eager", "--kv-cache-dtype")}, 131_072),
    ],
)
def test_kv_has_the_type_that_the_engine_is_told(told: dict[str, Any], bytes_per_token: int) -> None:
    shape = stored_shape(Engine("launch", "llama-3.1-8b", **told), model_shapes())
    assert shape is not None
    assert shape.kv_bytes_per_token == bytes_per_token


def test_the_embedded_engine_is_told_no_type() -> None:
    shape = stored_shape(Engine(extra_args=("--kv-cache-dtype=fp8",)), model_shapes())
    assert shape == model_shapes()["llama-3.1-8b"]


def test_the_size_of_kv_of_a_type_that_is_not_known_is_not_known() -> None:
    assert stored_shape(Engine("launch", "llama-3.1-8b", parameters={"dtype": "int3"}), model_shapes()) is None
    assert stored_shape(Engine("launch", "somebody/model"), model_shapes()) is None


LLAMA = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
    "vocab_size": 128_256,
}


@pytest.mark.parametrize(
    ("config", "bytes_per_token"),
    [
        (LLAMA, 131_072),
        (LLAMA | {"head_dim": 64}, 65_536),  # a field of its own, where there is one
        (LLAMA | {"num_key_value_heads": None}, 524_288),  # every head has keys and values of its own
        (LLAMA | {"dtype": "float32"}, 262_144),
        (LLAMA | {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}, 70_272),
        ({"text_config": LLAMA, "torch_dtype": "float32"}, 131_072),  # of a model that also sees
    ],
)
def test_the_kv_of_a_folder_s_model_is_that_of_its_config(tmp_path, config, bytes_per_token):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert model_shapes().get(str(tmp_path)).kv_bytes_per_token == bytes_per_token


@pytest.mark.parametrize("lost", ["num_hidden_layers", "num_attention_heads", "torch_dtype", "vocab_size"])
def test_a_config_that_does_not_say_how_large_kv_is_is_refused(tmp_path, lost):
    (tmp_path / "config.json").write_text(json.dumps({key: value for key, value in LLAMA.items() if key != lost}))
    with pytest.raises(UsageError, match=rf"config\.json: '{lost}' is missing or not known"):
        model_shapes().get(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"text_config": null}',
        *(json.dumps(LLAMA | {"num_attention_heads": wrong}) for wrong in (None, 0, "x")),
    ],
)
def test_a_config_that_is_no_model_s_is_refused_by_its_name(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=r"config\.json"):
        model_shapes().get(str(tmp_path))


def test_a_folder_without_a_config_is_no_model(tmp_path):
    assert model_shapes().get(str(tmp_path)) is None
