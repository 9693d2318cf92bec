"""Make a tokenizer of single characters in the folder that is given: for clients that insist on counting tokens."""

import string
import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

characters = string.ascii_letters + string.digits + string.punctuation + " "
vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {one: place for place, one in enumerate(characters, start=3)}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
).save_pretrained(sys.argv[1])
