"""Make a small language model of random weights whose prefill is dear on a CPU: tiny_model.py FOLDER.

For `make gate-vllm`, where reading KV back has to compete with computing it. Run it with the engine's own Python;
nothing is downloaded. The answers are nonsense, but the same nonsense for the same KV, which is all that is asked.
KV takes 2 · 16 layers · 16 heads · 64 · 2 bytes = 65,536 bytes a token, and a page of 256 tokens 16 MiB.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 4096
RESERVED = {1: "<s>", 2: "</s>", 3: "<unk>"}  # not 0: that is what comes of logits that are no numbers
SHARPNESS = 3.0  # of attention: a random model looks at all tokens alike, and then what it reads hardly matters


def main(folder: Path) -> None:
    torch.manual_seed(0)
    _tokenizer().save_pretrained(folder)
    _model().save_pretrained(folder)


def _tokenizer() -> PreTrainedTokenizerFast:
    words = {RESERVED.get(number, f"w{number}"): number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )


def _model() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=16,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=64,
        max_position_embeddings=8192,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.mul_(SHARPNESS)
            layer.self_attn.k_proj.weight.mul_(SHARPNESS)
        model.lm_head.weight[list(RESERVED)] = 0  # never the likeliest: a reserved token has no text
    return model.to(torch.bfloat16)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
