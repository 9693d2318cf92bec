"""A page's name follows from the tokens before it, and from nothing else."""

import subprocess
import sys
from hashlib import blake2b
from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from kvbench.store.keys import PageKey, chain

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=40)


def test_each_digest_chains_the_one_before_with_the_tokens_as_little_endian_u32():
    root = blake2b(b"model\x002\x004", digest_size=16).digest()
    first = blake2b(root + bytes([1, 0, 0, 0, 2, 1, 0, 0]), digest_size=16).digest()
    second = blake2b(first + bytes([3, 0, 0, 0, 4, 0, 0, 0]), digest_size=16).digest()
    assert chain("model", 2, 4, [1, 258, 3, 4, 5]) == (first, second)


@given(TOKENS, TOKENS, st.integers(1, 7))
def test_two_prompts_share_digests_exactly_as_far_as_they_share_full_pages(left, right, page_tokens):
    def shared(one, other):
        return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))

    digests = chain("m", page_tokens, 1, left), chain("m", page_tokens, 1, right)
    assert shared(*digests) == shared(left, right) // page_tokens


@given(TOKENS, st.integers(1, 7))
def test_there_is_one_digest_per_full_page(tokens, page_tokens):
    assert len(chain("m", page_tokens, 1, tokens)) == len(tokens) // page_tokens


def test_model_page_size_and_ranks_each_change_every_digest():
    variants = [
        chain("m", 4, 1, range(8)),
        chain("n", 4, 1, range(8)),
        chain("m", 2, 1, range(8)),
        chain("m", 4, 2, range(8)),
    ]
    digests = [digest for variant in variants for digest in variant]
    assert len(set(digests)) == len(digests)


def test_digests_are_the_same_in_another_process_with_another_hash_seed():
    program = "from kvbench.store.keys import chain; print(chain('m', 256, 8, range(1024))[-1].hex())"
    for seed in ("1", "2"):
        printed = subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert printed.stdout.strip() == chain("m", 256, 8, range(1024))[-1].hex()


@given(st.binary(min_size=16, max_size=16), st.integers(0, 9999))
def test_a_file_name_gives_its_key_back(digest, rank):
    assert PageKey.from_file_name(PageKey(digest, rank).file_name) == PageKey(digest, rank)


def test_other_files_are_no_pages():
    page = PageKey(bytes(16), 0).file_name
    for name in ("", "lost+found", page + ".7.part", page.upper(), page[1:], page[:-1], page + "\n", page[:-1] + "01"):
        assert PageKey.from_file_name(name) is None, name
