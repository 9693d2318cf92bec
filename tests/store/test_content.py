"""A page's content: nothing to compress or deduplicate, and every kind of wrong page told from the right one."""

import zlib

import numpy as np
import pytest

from kvbench.store.content import BLOCK_BYTES, Fault, FaultKind, PageContent
from kvbench.store.keys import PageKey, chain

PAGE_BYTES = 3 * 2**20 // 2 + 100  # more than one chunk of the comparison, and not whole blocks
KEYS = [PageKey(digest, rank) for digest in chain("m", 1, 2, range(8)) for rank in range(2)]
KEY, OTHER = KEYS[0], KEYS[1]


def page(key: PageKey = KEY, salt: bytes = b"run 1", page_bytes: int = PAGE_BYTES) -> bytearray:
    content = PageContent(page_bytes, salt)
    buffer = bytearray(content.file_bytes)
    content.fill(memoryview(buffer), key)
    return buffer


def verify(buffer: bytearray, key: PageKey = KEY, salt: bytes = b"run 1") -> Fault | None:
    return PageContent(PAGE_BYTES, salt).verify(memoryview(buffer), key)


@pytest.mark.parametrize(("page_bytes", "size"), [(1, 8192), (4096, 8192), (4097, 12288), (8_126_464, 8_130_560)])
def test_a_file_is_a_header_block_and_whole_blocks(page_bytes, size):
    assert PageContent(page_bytes).file_bytes == size


def test_a_page_verifies_as_it_was_filled():
    assert verify(page()) is None


def test_a_page_does_not_compress():
    buffer = page()
    assert len(zlib.compress(buffer, 9)) / len(buffer) > 0.99


def test_no_two_blocks_of_many_pages_are_alike():
    blocks = [
        bytes(buffer[at : at + BLOCK_BYTES])
        for buffer in [page(key, salt) for key in KEYS for salt in (b"run 1", b"run 2")]
        for at in range(0, len(buffer), BLOCK_BYTES)
    ]
    assert len(set(blocks)) == len(blocks)


def test_two_salts_share_no_block_of_a_page():
    one, two = (np.frombuffer(page(salt=salt), dtype=np.uint8).reshape(-1, BLOCK_BYTES) for salt in (b"1", b"2"))
    assert (one != two).any(axis=1).all()


def test_the_same_key_and_salt_give_the_same_bytes():
    assert page() == page()


@pytest.mark.parametrize("offset", [64, 4095, 4096, 2**20 - 1, 2**20, 2**20 + 4097, PAGE_BYTES + 4095])
def test_one_wrong_bit_anywhere_is_found_where_it_is(offset):
    buffer = page()
    right = buffer[offset]
    buffer[offset] ^= 0x10
    assert verify(buffer) == Fault(FaultKind.CORRUPTED, offset, f"0x{right ^ 0x10:02x} where 0x{right:02x} was written")


@pytest.mark.parametrize("offset", range(64))
def test_a_wrong_bit_in_the_header_is_a_torn_page(offset):
    buffer = page()
    buffer[offset] ^= 1
    assert verify(buffer) == Fault(FaultKind.TORN, 0, "the file begins with a damaged header")


def test_the_first_of_several_wrong_bytes_is_named():
    buffer = page()
    for offset in (2**20 + 9, 5000, 70_000):
        buffer[offset] ^= 0xFF
    fault = verify(buffer)
    assert fault is not None and fault.offset == 5000


def test_blocks_that_were_never_written_are_a_torn_page():
    buffer = page()
    buffer[2**20 + BLOCK_BYTES :] = bytes(len(buffer) - 2**20 - BLOCK_BYTES)
    fault = verify(buffer)
    assert fault is not None and fault.kind is FaultKind.TORN
    assert 0 <= fault.offset - (2**20 + BLOCK_BYTES) < 8  # a right byte may be zero, too


@pytest.mark.parametrize(
    ("wrong", "kind", "detail"),
    [
        (bytearray(len(page())), FaultKind.TORN, "the file begins with zeros"),
        (page(page_bytes=2 * PAGE_BYTES), FaultKind.TORN, f"a page of {2 * PAGE_BYTES} bytes where {PAGE_BYTES} are"),
        (page(OTHER), FaultKind.FOREIGN, f"this is page {OTHER.file_name}; it is intact"),
        (page(salt=b"run 0"), FaultKind.STALE, "this page was written by another run or attempt; it is intact"),
    ],
    ids=["zeros", "another length", "another page", "another attempt"],
)
def test_a_wrong_page_is_told_by_its_header(wrong, kind, detail):
    fault = verify(wrong[: len(page())])
    assert fault is not None and (fault.kind, fault.offset) == (kind, 0)
    assert fault.detail.startswith(detail)


def test_another_page_that_is_damaged_as_well_is_said_to_be():
    buffer = page(OTHER)
    buffer[9000] ^= 1
    assert verify(buffer) == Fault(FaultKind.FOREIGN, 0, f"this is page {OTHER.file_name}; it is damaged")


def test_a_payload_under_the_header_of_another_page_is_found():
    buffer = page()
    buffer[BLOCK_BYTES:] = page(OTHER)[BLOCK_BYTES:]
    fault = verify(buffer)
    assert fault is not None and fault.kind is FaultKind.CORRUPTED and fault.offset - BLOCK_BYTES < 8


def test_a_spoiled_buffer_is_wrong_in_every_block():
    spoiled = page()
    PageContent(PAGE_BYTES).spoil(memoryview(spoiled))
    rows = [np.frombuffer(buffer, dtype=np.uint8).reshape(-1, BLOCK_BYTES) for buffer in (spoiled, page())]
    assert (rows[0] != rows[1]).any(axis=1).all()


@pytest.mark.parametrize("share", [0.15, 0.5, 0.9])
def test_a_page_compresses_by_the_stated_share_and_every_block_still_differs(share):
    content = PageContent(PAGE_BYTES, b"run 1", share)
    buffer = bytearray(content.file_bytes)
    content.fill(memoryview(buffer), KEY)
    assert len(zlib.compress(buffer)) / len(buffer) == pytest.approx(1 - share, abs=0.02)
    assert len({bytes(buffer[at : at + BLOCK_BYTES]) for at in range(0, len(buffer), BLOCK_BYTES)}) == (
        content.file_bytes // BLOCK_BYTES
    )
    assert content.verify(memoryview(buffer), KEY) is None
    for offset in (BLOCK_BYTES, 2 * BLOCK_BYTES - 1):  # where bytes are random, and where they are zeros
        buffer[offset] ^= 1
        assert content.verify(memoryview(buffer), KEY).offset == offset
        buffer[offset] ^= 1
