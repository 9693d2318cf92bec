"""The clients of load.py: how each is told what to send, and where it leaves the TTFT of every request."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TOKENS = 64
PEERS = Path(__file__).parent / "peers"
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Job:
    """So many requests in all, so many of them in flight; `folder` takes what the client writes."""

    url: str
    streams: int
    requests: int
    folder: Path


def _nothing(program: Path, job: Job) -> None:
    pass


def _no_environment(job: Job) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class Client:
    """`ttfts_s` gives seconds by the request's id: that of X-Request-Id, else the reply's."""

    name: str
    program: str
    argv: Callable[[Path, Job], list[str]]
    ttfts_s: Callable[[Job], dict[str, float]]
    for_llms: bool = False
    prepare: Callable[[Path, Job], None] = _nothing
    env: Callable[[Job], Mapping[str, str]] = field(default=_no_environment)

    def find(self, peers: Sequence[Path]) -> Path | None:
        """Its program: beside our own Python, else in one of the others' environments."""
        for folder in (Path(sys.executable).parent, *(venv / "bin" for venv in peers)):
            if (program := (folder / self.program).absolute()).is_file():
                return program
        return None


# ---------------------------------------------------------------- kvbench


def _kvbench_argv(program: Path, job: Job) -> list[str]:
    return [
        str(program), "load", "--url", f"{job.url}{CHAT}", "--model", "mock", "--prompt-tokens", "16",
        "--output-tokens", str(TOKENS), "--concurrency", str(job.streams), "--requests", str(job.requests),
        "--rows", "rows.parquet",
    ]  # fmt: skip


def _kvbench_ttfts_s(job: Job) -> dict[str, float]:
    from kvbench.load import rows

    return {
        row.request_id: (row.first_token_ns - row.sent_ns) / 1e9
        for row in rows.read(job.folder / "rows.parquet")
        if row.ok and row.first_token_ns is not None and row.sent_ns is not None
    }


# ---------------------------------------------------------------- vllm bench serve


def _make_tokenizer(program: Path, job: Job) -> None:
    """Those that count tokens themselves need a tokenizer: one of single characters, made where they are installed."""
    python = program.parent / "python"
    subprocess.run([python, PEERS / "tokenizer.py", job.folder / "tokenizer"], check=True, capture_output=True)


def _vllm_argv(program: Path, job: Job) -> list[str]:
    return [
        str(program), "bench", "serve", "--backend", "openai-chat", "--base-url", job.url, "--endpoint", CHAT,
        "--model", "mock", "--tokenizer", "tokenizer", "--dataset-name", "random", "--random-input-len", "16",
        "--random-output-len", str(TOKENS), "--ignore-eos", "--num-prompts", str(job.requests),
        "--max-concurrency", str(job.streams), "--request-id-prefix", "v", "--disable-tqdm", "--percentile-metrics",
        "ttft", "--save-result", "--save-detailed", "--result-filename", "vllm.json",
    ]  # fmt: skip


def _vllm_ttfts_s(job: Job) -> dict[str, float]:
    ttfts_s = json.loads((job.folder / "vllm.json").read_text())["ttfts"]
    return {f"v{number}": ttft_s for number, ttft_s in enumerate(ttfts_s) if ttft_s > 0}


# ---------------------------------------------------------------- AIPerf


def _aiperf_argv(program: Path, job: Job) -> list[str]:
    return [
        str(program), "profile", "--model", "mock", "--url", job.url, "--endpoint-type", "chat", "--streaming",
        "--tokenizer", "tokenizer", "--concurrency", str(job.streams), "--request-count", str(job.requests),
        "--synthetic-input-tokens-mean", "16", "--output-tokens-mean", str(TOKENS), "--ui", "none",
        "--artifact-dir", "aiperf",
    ]  # fmt: skip


def _aiperf_ttfts_s(job: Job) -> dict[str, float]:
    found = {}
    for file in (job.folder / "aiperf").rglob("profile_export.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            if "time_to_first_token" in row.get("metrics", {}):
                found[row["metadata"]["x_request_id"]] = row["metrics"]["time_to_first_token"]["value"] / 1000
    return found


# ---------------------------------------------------------------- locust, and threads with urllib


def _own_table(job: Job) -> dict[str, float]:
    """What our own scripts for the two write: request id and seconds."""
    with (job.folder / "ttft.csv").open() as lines:
        return {name: float(ttft_s) for name, ttft_s in csv.reader(lines)}


def _own_environment(job: Job) -> Mapping[str, str]:
    return {"URL": f"{job.url}{CHAT}", "STREAMS": str(job.streams), "REQUESTS": str(job.requests)}


def _locust_argv(program: Path, job: Job) -> list[str]:
    return [
        str(program), "--locustfile", str(PEERS / "locustfile.py"), "--headless", "--only-summary", "--users",
        str(job.streams), "--spawn-rate", str(job.streams), "--host", job.url,
    ]  # fmt: skip


def _threads_argv(program: Path, job: Job) -> list[str]:
    return [str(program), str(PEERS / "threads.py")]


CLIENTS = (
    Client("kvbench", "kvbench", _kvbench_argv, _kvbench_ttfts_s, for_llms=True),
    Client("vllm bench serve", "vllm", _vllm_argv, _vllm_ttfts_s, for_llms=True, prepare=_make_tokenizer),
    Client("aiperf", "aiperf", _aiperf_argv, _aiperf_ttfts_s, for_llms=True, prepare=_make_tokenizer),
    Client("locust", "locust", _locust_argv, _own_table, env=_own_environment),
    Client("threads, urllib", "python", _threads_argv, _own_table, env=_own_environment),
)
