"""Where an endpoint is, and when the kernel's stamp is to be believed."""

from __future__ import annotations

import struct

import pytest

from kvbench import clock
from kvbench.load.connection import KernelClock
from kvbench.load.endpoint import Endpoint

SO_TIMESTAMPNS = 35
SECOND = 1_000_000_000


def control(realtime_ns: int, kind: int = SO_TIMESTAMPNS) -> list[tuple[int, int, bytes]]:
    return [(1, kind, struct.pack("qq", *divmod(realtime_ns, SECOND)))]


@pytest.fixture
def kernel(monkeypatch) -> KernelClock:
    monkeypatch.setattr(clock, "realtime_offset_ns", lambda: 1_000 * SECOND)
    return KernelClock()


@pytest.mark.parametrize(
    ("stamp_s", "arrival_s"),
    [(1_005.0, 5.0), (1_003.0, 3.0), (1_009.0, 9.0), (1_002.9, None), (1_009.1, None)],
    ids=["between", "when sent", "when read", "before it was sent", "after it was read"],
)
def test_a_stamp_counts_only_between_sending_and_reading(kernel, stamp_s, arrival_s):
    arrival_ns = kernel.arrival_ns(control(round(stamp_s * SECOND)), 3 * SECOND, 9 * SECOND)
    assert arrival_ns == (None if arrival_s is None else arrival_s * SECOND)


@pytest.mark.parametrize("received", [[], control(1_005 * SECOND, kind=1)], ids=["nothing", "another message"])
def test_without_a_stamp_there_is_no_arrival(kernel, received):
    assert kernel.arrival_ns(received, 0, 9 * SECOND) is None


def test_wall_time_that_is_set_during_a_load_is_followed(kernel, monkeypatch):
    monkeypatch.setattr(clock, "realtime_offset_ns", lambda: 4_600 * SECOND)
    kernel.refresh()
    assert kernel.arrival_ns(control(4_605 * SECOND), 0, 9 * SECOND) == 5 * SECOND


def test_a_prefix_of_the_address_stands_before_every_path():
    head = Endpoint.of("http://host:81/llm/").head("/v1/completions", "r7", 12)
    assert head.startswith(b"POST /llm/v1/completions HTTP/1.1\r\nHost: host:81\r\n")
    assert b"X-Request-Id: r7\r\n" in head
    assert head.endswith(b"Content-Length: 12\r\n\r\n")


@pytest.mark.parametrize(("url", "port"), [("http://h", 80), ("https://h", 443), ("http://[::1]:8000", 8000)])
def test_the_port_is_the_schemes_unless_it_is_given(url, port):
    assert Endpoint.of(url).port == port
