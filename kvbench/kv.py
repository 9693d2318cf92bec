"""How large KV is: model shapes, bytes per token, pages per rank. Pure.

MHA and GQA keep keys and values of every KV head: 2 · layers · kv_heads · head_dim · bytes per element.
MLA keeps one latent per token (DeepSeek-V2, arXiv:2405.04434, 2.1): layers · (kv_lora_rank + qk_rope_head_dim) ·
bytes per element, without the factor 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from kvbench.model import Engine

PAGE_TOKENS = 256  # tokens of one page (chunk), the default of the engines that store KV


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model as far as KV and a roofline need it. `head_dim` is a field of its own: hidden ÷ heads may differ.

    `parameters_active` are the parameters that one token passes (all of them in a dense model).
    `experts` and `experts_active` are per layer; 0 in a dense model.
    `shared_parameters` are those of a mixture that every token passes (attention, embeddings, shared experts).
    """

    id: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    parameters: int
    parameters_active: int
    weight_bytes_per_parameter: float
    source: str
    kv_bytes_per_element: int = 2
    kv_lora_rank: int = 0
    qk_rope_head_dim: int = 0
    experts: int = 0
    experts_active: int = 0
    shared_parameters: int = 0
    vocabulary: int = 128_256

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    @property
    def is_mla(self) -> bool:
        return self.kv_lora_rank > 0

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV that one token adds, over all layers and ranks, each value counted once."""
        per_layer = self.kv_lora_rank + self.qk_rope_head_dim if self.is_mla else 2 * self.kv_heads * self.head_dim
        return self.layers * per_layer * self.kv_bytes_per_element

    def replication(self, tensor_parallel: int) -> int:
        """How often each value is stored: MLA's latent on every rank; GQA when ranks outnumber the KV heads."""
        return tensor_parallel if self.is_mla else max(1, tensor_parallel // self.kv_heads)

    def page_bytes(self, tensor_parallel: int, page_tokens: int = PAGE_TOKENS) -> int:
        """Bytes of one page of one rank: what a storage node sees as one file or one extent."""
        total = self.kv_bytes_per_token * page_tokens * self.replication(tensor_parallel)
        return total // tensor_parallel


def full_pages(prompt_tokens: int, page_tokens: int = PAGE_TOKENS) -> int:
    """Pages of a prompt that can be a hit: the last token is always computed, so that there is something to sample."""
    return max(0, prompt_tokens - 1) // page_tokens


_ELEMENT_BYTES = {
    **{"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2},
    **{"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1},
}
_AS_THE_MODEL = "auto"
_LEAST_VOCABULARY = 30_000


def stored_shape(engine: Engine, shapes: Mapping[str, ModelShape]) -> ModelShape | None:
    """The shape of an engine's model, its KV of the type that the engine is told; None when either is not known.

    An engine is told by `--kv-cache-dtype`, else by `--dtype`, in its command or as a parameter of its recipe; the
    embedded one is told nothing.
    """
    shape = shapes.get(engine.model)
    if engine.kind == "emulated":
        return shape
    words = (*engine.command, *engine.extra_args)
    told = _flag(words, "--kv-cache-dtype") or _flag(words, "--dtype") or engine.parameters.get("dtype", "")
    if shape is None or told in ("", _AS_THE_MODEL):
        return shape
    return replace(shape, kv_bytes_per_element=_ELEMENT_BYTES[told]) if told in _ELEMENT_BYTES else None


def vocabulary(model: str, shapes: Mapping[str, ModelShape]) -> int:
    """How many token ids a model has; of one that nothing is known of, as many as every current one has."""
    shape = shapes.get(model)
    return shape.vocabulary if shape else _LEAST_VOCABULARY


def _flag(words: Sequence[str], name: str) -> str:
    """What a command line gives a flag, in either spelling; "" for nothing and for `auto`."""
    value = ""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        flag, equals, attached = word.partition("=")
        if flag == name:
            value = attached if equals else following
    return "" if value == _AS_THE_MODEL else value


def shape_of_config(config: Mapping[str, Any], name: str) -> ModelShape:
    """The shape that a model's config.json states, as far as KV needs it: the fields of a roofline are 0.

    KV is taken to have the type of the weights, as engines do unless they are told otherwise.
    Raises ValueError that names the field which is missing or not known, or says what is wrong.
    """
    try:
        own = config.get("text_config", config)  # of a model that also sees
        heads = int(own["num_attention_heads"])
        dtype = str(own.get("dtype") or own["torch_dtype"])
        return ModelShape(
            id=name,
            layers=int(own["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(own.get("num_key_value_heads") or heads),
            head_dim=int(own.get("head_dim") or int(own["hidden_size"]) // heads),
            parameters=0,
            parameters_active=0,
            weight_bytes_per_parameter=0,
            source=f"{name}/config.json",
            kv_bytes_per_element=_ELEMENT_BYTES[dtype],
            kv_lora_rank=int(own.get("kv_lora_rank") or 0),
            qk_rope_head_dim=int(own.get("qk_rope_head_dim") or 0),
            vocabulary=int(own["vocab_size"]),
        )
    except KeyError as error:
        raise ValueError(f"{error} is missing or not known, so the size of its KV is not") from None
    except (AttributeError, TypeError, ArithmeticError) as error:
        raise ValueError(f"not a model's: {error}") from None
