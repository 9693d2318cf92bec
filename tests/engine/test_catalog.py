"""workloads/models.yaml and workloads/accelerators.yaml against what is known of them."""

from pathlib import Path

import pytest

from kvbench.content import content_root
from kvbench.engine.catalog import Shapes, accelerators, models
from kvbench.engine.cost import Chunk, CostModel
from kvbench.errors import UsageError
from kvbench.kv import ModelShape

MODELS = models(content_root() / "workloads" / "models.yaml")
ACCELERATORS = accelerators(content_root() / "workloads" / "accelerators.yaml")


@pytest.mark.parametrize(
    ("model", "kv_bytes_per_token"),
    [
        ("llama-3.1-8b", 131_072),
        ("llama-3.1-70b", 327_680),
        ("Qwen2.5-32B", 262_144),
        ("Qwen3-Coder-480B-A35B", 253_952),
        ("DeepSeek-V3", 70_272),
    ],
)
def test_kv_bytes_per_token_are_those_of_the_method(model: str, kv_bytes_per_token: int) -> None:
    assert MODELS[model].kv_bytes_per_token == kv_bytes_per_token


@pytest.mark.parametrize("shape", [shape for shape in MODELS.values() if shape.experts], ids=lambda shape: shape.id)
def test_the_active_parameters_of_a_mixture_are_the_shared_ones_and_its_active_experts(shape: ModelShape) -> None:
    routed = shape.parameters - shape.shared_parameters
    active = shape.shared_parameters + routed * shape.experts_active // shape.experts
    assert active == shape.parameters_active


def test_every_accelerator_names_its_sources() -> None:
    for accelerator in ACCELERATORS.values():
        assert accelerator.source and accelerator.prefill_utilisation_source and accelerator.memory_utilisation_source


def test_the_derived_utilisation_of_mi308x_gives_back_the_published_recompute_time() -> None:
    cost = CostModel(MODELS["Qwen3-Coder-480B-A35B"], ACCELERATORS["MI308X"], 8)
    assert 15 * cost.prefill_s([Chunk(29_800, 0)]) == pytest.approx(237.34, rel=0.01)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bf16_flops_per_s: 188.4e12", "bf16_flops_per_s: fast", "key accelerators.0.bf16_flops_per_s"),
        ("    memory_bytes: 192 GB\n", "", "memory_bytes is missing"),
        ("memory_bytes: 192 GB", "memory_bytes: 192 potatoes", "'192 potatoes' is not a size"),
        ("prefill_utilisation: 0.073", "prefill_utilisation: 7.3", "prefill_utilisation is a share"),
        ("  - id: MI308X", "  - id: MI308X\n    colour: red", "unknown key accelerators.0.colour"),
    ],
)
def test_a_wrong_entry_is_named_with_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (content_root() / "workloads" / "accelerators.yaml").read_text()
    path = tmp_path / "accelerators.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError, match=message) as caught:
        accelerators(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    "config",
    [
        "", "[]", "5", "[" * 100_000, "{}", '{"text_config": 5}', "\udcff",
        '{"num_attention_heads": 0, "hidden_size": 8, "torch_dtype": "float16", "num_hidden_layers": 1}',
        '{"num_attention_heads": [1], "torch_dtype": "float16"}',
        '{"num_attention_heads": 1e999, "torch_dtype": "float16"}',
    ],
)  # fmt: skip
def test_a_config_that_tells_no_shape_is_named(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_bytes(config.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=rf"{tmp_path}/config\.json"):
        Shapes({})[str(tmp_path)]
