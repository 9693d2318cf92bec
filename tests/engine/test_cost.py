"""The roofline against arithmetic by hand."""

import pytest

from kvbench.engine.cost import Accelerator, Chunk, CostModel, weight_bytes_touched
from kvbench.kv import ModelShape

# 1000 FLOP/s at half use and 100 B/s at half use: 500 FLOP/s and 50 B/s that count.
ACCELERATOR = Accelerator(
    id="slow",
    bf16_flops_per_s=1000,
    fp8_flops_per_s=2000,
    memory_bytes=1000,
    memory_bytes_per_s=100,
    prefill_utilisation=0.5,
    memory_utilisation=0.5,
    source="",
    prefill_utilisation_source="",
    memory_utilisation_source="",
)


def dense(**changes: object) -> ModelShape:
    shape = {
        "id": "dense", "layers": 2, "heads": 3, "kv_heads": 3, "head_dim": 5, "parameters": 100,
        "parameters_active": 100, "weight_bytes_per_parameter": 2, "source": "",
    }  # fmt: skip
    return ModelShape(**(shape | changes))  # type: ignore[arg-type]


MIXTURE = dense(parameters=1000, parameters_active=200, shared_parameters=100, experts=9, experts_active=1)
LATENT = dense(kv_lora_rank=7, qk_rope_head_dim=2)


@pytest.mark.parametrize(
    ("chunks", "seconds"),
    [
        ([], 0.0),
        # 2·100·4 = 800 FLOP of weights; attention 4·2·3·5 = 120 a pair, 1+2+3+4 = 10 pairs; 2000 ÷ 500
        ([Chunk(4, 0)], 4.0),
        # the same with 10 tokens before it: 4·10 more pairs
        ([Chunk(4, 10)], (800 + 120 * 50) / 500),
        # one token: 200 + 120 FLOP take 0.64 s, reading 200 B of weights at 50 B/s takes 4 s
        ([Chunk(1, 0)], 4.0),
        # several read the weights once
        ([Chunk(1, 0)] * 3, 4.0),
    ],
)
def test_prefill_takes_the_longer_of_arithmetic_and_weights(chunks: list[Chunk], seconds: float) -> None:
    assert CostModel(dense(), ACCELERATOR, 1).prefill_s(chunks) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("contexts", "seconds"),
    [
        ([], 0.0),
        # weights 200 B; KV 2·2·3·5·2 = 120 B a token
        ([10], (200 + 120 * 10) / 50),
        ([10, 20], (200 + 120 * 30) / 50),
    ],
)
def test_decode_reads_weights_once_and_the_kv_of_the_batch(contexts: list[int], seconds: float) -> None:
    assert CostModel(dense(), ACCELERATOR, 1).decode_s(contexts) == pytest.approx(seconds)


def test_decode_is_bound_by_arithmetic_where_that_is_longer() -> None:
    wide = Accelerator(**{f: getattr(ACCELERATOR, f) for f in Accelerator.__slots__} | {"memory_bytes_per_s": 10**9})
    assert CostModel(dense(), wide, 1).decode_s([10]) == pytest.approx((200 + 120 * 10) / 500)


def test_a_mixed_step_is_the_sum_of_its_parts() -> None:
    cost = CostModel(dense(), ACCELERATOR, 1)
    assert cost.step_s([Chunk(4, 0)], [10]) == pytest.approx(cost.prefill_s([Chunk(4, 0)]) + cost.decode_s([10]))


def test_ranks_share_the_work_evenly() -> None:
    one, three = CostModel(dense(), ACCELERATOR, 1), CostModel(dense(), ACCELERATOR, 3)
    assert one.step_s([Chunk(4, 0)], [10]) == pytest.approx(3 * three.step_s([Chunk(4, 0)], [10]))


@pytest.mark.parametrize(("tokens", "parameters"), [(1, 100 + 900 / 9), (2, 100 + 900 * (1 - (8 / 9) ** 2))])
def test_a_mixture_reads_the_experts_that_the_batch_touches(tokens: int, parameters: float) -> None:
    assert weight_bytes_touched(MIXTURE, tokens) == pytest.approx(2 * parameters)


def test_weights_of_one_byte_compute_at_the_fp8_peak() -> None:
    halved = CostModel(dense(weight_bytes_per_parameter=1), ACCELERATOR, 1).prefill_s([Chunk(400, 0)])
    assert CostModel(dense(), ACCELERATOR, 1).prefill_s([Chunk(400, 0)]) == pytest.approx(2 * halved)


def test_mla_expands_in_prefill_and_reads_its_latent_on_every_rank_in_decode() -> None:
    cost = CostModel(LATENT, ACCELERATOR, 4)
    # attention 2·2·3·(5+2+5) = 144 FLOP a pair
    assert cost.prefill_s([Chunk(4, 0)]) == pytest.approx((800 + 144 * 10) / (4 * 500))
    # latent 2·(7+2)·2 = 36 B a token, on each of 4 ranks
    assert cost.decode_s([10]) == pytest.approx((200 + 4 * 36 * 10) / (4 * 50))


def test_kv_gets_nine_tenths_of_memory_less_the_weights() -> None:
    assert CostModel(dense(), ACCELERATOR, 2).kv_budget_bytes() == 2 * 900 - 200


@pytest.mark.parametrize("share", [0, 1.01, -0.5])
def test_a_utilisation_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="memory_utilisation is a share"):
        Accelerator("x", 1, 1, 1, 0.5, share, "", "", "")
