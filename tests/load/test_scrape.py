"""What an engine says while a wave runs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kvbench.errors import StepError
from kvbench.load import scrape


def test_every_exposition_is_kept_with_its_moment_and_a_silent_engine_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "_INTERVAL_S", 0.001)
    asked = threading.Semaphore(0)
    answers = iter(["vllm:num_requests_running 1\n", StepError("it is busy"), "vllm:num_requests_running 2\n"])

    def metrics_text() -> str:
        asked.release()
        answer = next(answers, "")
        if isinstance(answer, StepError):
            raise answer
        return answer

    with scrape.scraping(metrics_text, tmp_path / "during.prom"):
        for _ in range(4):
            assert asked.acquire(timeout=10)
    lines = (tmp_path / "during.prom").read_text().splitlines()
    assert lines[0].startswith("# kvbench: monotonic_ns ")
    assert [line for line in lines if not line.startswith("# kvbench")][:3] == [
        "vllm:num_requests_running 1",
        "# not answered: it is busy",
        "vllm:num_requests_running 2",
    ]


def test_a_full_disk_is_said_where_the_wave_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "_INTERVAL_S", 0.001)
    asked = threading.Semaphore(0)

    def metrics_text() -> str:
        asked.release()
        return "vllm:num_requests_running 1\n" * 10_000  # more than is kept back

    with pytest.raises(OSError, match="No space left"), scrape.scraping(metrics_text, Path("/dev/full")):
        assert asked.acquire(timeout=10)
