"""The words of the emulated model."""

import pytest

from kvbench.engine import text


@pytest.mark.parametrize(
    ("given", "ids"), [("", []), ("a", [0x61]), ("abcd", [0x64636261]), ("abcde", [0x64636261, 0x65]), ("é", [0xA9C3])]
)
def test_text_is_its_bytes_in_fours(given: str, ids: list[int]) -> None:
    assert text.tokenise(given) == ids


def test_words_depend_on_pages_rest_and_position() -> None:
    digests = {text.prompt_digest(pages, rest) for pages in ([], [b"1"], [b"2"]) for rest in ([], [1], [1, 2])}
    assert len(digests) == 9
    words = [text.word(digest, position) for digest in sorted(digests) for position in range(20)]
    assert len(set(words)) == len(words)
    assert all(word.startswith(" ") and word[1:].isalpha() for word in words)
