"""How long an accelerator computes: a roofline (Williams et al. 2009, doi:10.1145/1498765.1498785). Pure.

A step takes the longer of its arithmetic (FLOP ÷ FLOP/s) and its memory traffic (bytes ÷ B/s), each at the share of
the peak that the accelerator's `*_utilisation` states. Tensor parallelism divides both; its communication is not
modelled, and neither are launch overheads or the copy from host to device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvbench.kv import ModelShape
from kvbench.units import RateBytes, SizeBytes


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device. Peaks are dense; `*_utilisation` are the shares of the peaks that inference reaches (0 to 1]."""

    id: str
    bf16_flops_per_s: float
    memory_bytes: SizeBytes
    memory_bytes_per_s: RateBytes
    prefill_utilisation: float
    memory_utilisation: float
    source: str
    prefill_utilisation_source: str
    memory_utilisation_source: str
    fp8_flops_per_s: float | None = None

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    def __post_init__(self) -> None:
        for name in ("prefill_utilisation", "memory_utilisation"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of a prompt that one step computes: `tokens` new ones after `context` that have their KV already."""

    tokens: int
    context: int


@dataclass(frozen=True, slots=True)
class CostModel:
    """The time that `shape` takes on `tensor_parallel` devices of `accelerator`."""

    shape: ModelShape
    accelerator: Accelerator
    tensor_parallel: int

    def step_s(self, chunks: Sequence[Chunk], decode_contexts: Sequence[int]) -> float:
        """Seconds of one step: its prefill chunks, and then one token for every context (in tokens)."""
        return self.prefill_s(chunks) + self.decode_s(decode_contexts)

    def prefill_s(self, chunks: Sequence[Chunk]) -> float:
        """Seconds of a step's chunks, which read the weights once; 0.0 for none.

        FLOP = 2 · active parameters per token, plus causal attention.
        """
        if not chunks:
            return 0.0
        tokens = sum(chunk.tokens for chunk in chunks)
        # A token attends to what precedes it and to itself: over a chunk, (tokens + 1) ÷ 2 on average beyond context.
        pairs = sum(chunk.tokens * (chunk.context + (chunk.tokens + 1) / 2) for chunk in chunks)
        flops = 2 * self.shape.parameters_active * tokens + _prefill_attention_flops(self.shape) * pairs
        return max(flops / self._flops_per_s, weight_bytes_touched(self.shape, tokens) / self._bytes_per_s)

    def decode_s(self, contexts: Sequence[int]) -> float:
        """Seconds in which each of the sequences, `contexts` tokens long, gets one more token; 0.0 for none."""
        if not contexts:
            return 0.0
        tokens = sum(contexts)
        kv_bytes = tokens * self.shape.kv_bytes_per_token * self.shape.replication(self.tensor_parallel)
        read_bytes = weight_bytes_touched(self.shape, len(contexts)) + kv_bytes
        flops = 2 * self.shape.parameters_active * len(contexts) + _decode_attention_flops(self.shape) * tokens
        return max(read_bytes / self._bytes_per_s, flops / self._flops_per_s)

    def kv_budget_bytes(self) -> int:
        """Bytes left for KV over all ranks: 0.9 of memory, as serving engines take it, less the weights."""
        weights = self.shape.parameters * self.shape.weight_bytes_per_parameter
        return int(self.accelerator.memory_bytes * self.tensor_parallel * 0.9 - weights)

    @property
    def _flops_per_s(self) -> float:
        in_fp8 = self.shape.weight_bytes_per_parameter <= 1 and self.accelerator.fp8_flops_per_s
        peak = in_fp8 or self.accelerator.bf16_flops_per_s
        return peak * self.accelerator.prefill_utilisation * self.tensor_parallel

    @property
    def _bytes_per_s(self) -> float:
        return self.accelerator.memory_bytes_per_s * self.accelerator.memory_utilisation * self.tensor_parallel


def weight_bytes_touched(shape: ModelShape, batch_tokens: int) -> float:
    """Bytes of weights that a step over `batch_tokens` reads: all of a dense model.

    Of a mixture, the shared ones and the experts that at least one token is routed to: with k of E experts a token,
    drawn evenly, the share 1 − (1 − k/E)^tokens.
    """
    touched = float(shape.parameters)
    if shape.experts:
        share = 1 - (1 - shape.experts_active / shape.experts) ** batch_tokens
        touched = shape.shared_parameters + (shape.parameters - shape.shared_parameters) * share
    return touched * shape.weight_bytes_per_parameter


def _prefill_attention_flops(shape: ModelShape) -> float:
    """FLOP of one token attending to one other: scores and values, 4 · layers · heads · head_dim.

    MLA computes prefill in its expanded form: scores over head_dim + qk_rope_head_dim, values over head_dim.
    """
    return 2 * shape.layers * shape.heads * (2 * shape.head_dim + shape.qk_rope_head_dim)


def _decode_attention_flops(shape: ModelShape) -> float:
    """As above; MLA decodes in its absorbed form: scores over the latent with its rope part, values over the latent."""
    if shape.is_mla:
        return 2 * shape.layers * shape.heads * (2 * shape.kv_lora_rank + shape.qk_rope_head_dim)
    return _prefill_attention_flops(shape)
