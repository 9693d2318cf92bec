"""A wave of cold sessions: what an engine does that loads within its step, and what host memory keeps for the next."""

from dataclasses import replace

import pytest

from kvbench.engine.protocol import EngineConfig
from kvbench.sim.device import NodeModel
from kvbench.sim.roofline import cost
from kvbench.sim.waves import Rig, Sessions

SESSIONS = Sessions(pages=8, prompt_tokens=2049, output_tokens=4)
CONFIG = EngineConfig(cost("test", "llama-3.1-8b", "L4", 1))
SESSION_BYTES = 8 * CONFIG.page_bytes
DEVICE = NodeModel(read_rate=SESSION_BYTES, write_rate=SESSION_BYTES)  # one session a second


def rig(instances=1, device=DEVICE, sessions=SESSIONS, **options):
    return Rig(replace(CONFIG, **options), device, sessions, instances=instances, most=8, seed=1)


def test_an_engine_that_loads_within_its_step_gives_the_first_tokens_together():
    (ttft_s,) = rig(blocking_loads=True).wave(8).ttft_s
    assert ttft_s[0] == pytest.approx(1.0, rel=0.1), "the first to come is alone in its step"
    assert ttft_s[1] == pytest.approx(8.0, rel=0.1)
    assert ttft_s[-1] == pytest.approx(ttft_s[1], rel=0.01)


def test_another_one_gives_them_as_the_sessions_arrive():
    (ttft_s,) = rig().wave(8).ttft_s
    assert ttft_s == pytest.approx(range(1, 9), rel=0.1)


def test_instances_share_the_device_by_turns():
    long = Sessions(pages=64, prompt_tokens=64 * 256 + 1, output_tokens=4)
    first, second = rig(instances=2, sessions=long, blocking_loads=True).wave(8).ttft_s
    assert len(first) == len(second) == 4
    assert first[-1] == pytest.approx(second[-1], rel=0.1)


def test_what_host_memory_kept_is_not_read_again():
    kept = rig(host_memory_bytes=100 * SESSION_BYTES)
    assert [kept.wave(4).bytes_read / SESSION_BYTES for _ in range(2)] == [4, 0]
    assert kept.wave(8).bytes_read / SESSION_BYTES == 4


def test_without_a_device_everything_is_computed():
    wave = rig(device=None).wave(4)
    assert wave.bytes_read == 0
    assert wave.wall_s > max(wave.ttft_s[0])
