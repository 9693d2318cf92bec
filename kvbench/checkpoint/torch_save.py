"""A checkpoint that torch.distributed.checkpoint saves, in a process a rank, where torch is installed.

Run as a program, this file is one rank. It stands by itself, since the Python that has torch need not have kvbench.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbench.checkpoint.shards import Moved
    from kvbench.probes.context import Context


def why_unavailable(python: str) -> str:
    """Why torch cannot write here; "" when it can."""
    from kvbench import process
    from kvbench.errors import StepError

    try:
        done = process.run([python or sys.executable, "-c", "import torch.distributed.checkpoint"], timeout_s=120.0)
    except StepError as error:
        return f"not available here: {error.message}"
    return "" if done.returncode == 0 else f"not available here: torch is not installed for {python or 'this Python'}"


def save(python: str, rank_bytes: int, ranks: int, context: Context) -> list[Moved]:
    """What every rank saved, all at once, into the first node's folder. Raises StepError with torch's last words."""
    from kvbench import process
    from kvbench.checkpoint.shards import Moved
    from kvbench.errors import StepError

    folder = context.data_dirs[0] / "checkpoint"
    said = [context.raw_dir / f"torch-{rank}.txt" for rank in range(ranks)]
    env = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        children = []
        for rank, file in enumerate(said):
            argv = [python or sys.executable, __file__, *map(str, (rank, ranks, rank_bytes, folder, context.raw_dir))]
            sink = stack.enter_context(file.open("wb"))
            started = process.start(argv, stdout=sink, stderr=subprocess.STDOUT, env=env, survivors=context.survivors)
            children.append(stack.enter_context(started))
        for rank, child in enumerate(children):
            try:
                child.wait(max(0.0, context.left_s))
            except subprocess.TimeoutExpired:
                raise StepError(f"rank {rank} of torch did not end in time") from None
    lines = [file.read_text(errors="replace").strip().splitlines()[-1:] for file in said]
    for rank, child in enumerate(children):
        if child.returncode:
            raise StepError(f"rank {rank} of torch ended with exit code {child.returncode}: {''.join(lines[rank])}")
    stamps = [json.loads(line) for (line,) in lines]
    return [Moved(rank_bytes, stamp["began_ns"], stamp["ended_ns"], 0) for stamp in stamps]


def _rank(rank: int, ranks: int, rank_bytes: int, folder: str, meeting: str) -> None:
    """One rank: save random bfloat16 tensors of 16 MiB, and print when the saving began and ended (monotonic)."""
    import time

    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    dist.init_process_group("gloo", init_method=f"file://{meeting}/meeting", rank=rank, world_size=ranks)
    generator = torch.Generator().manual_seed(rank)
    count, chunk = rank_bytes >> 24, 1 << 24
    bits = (torch.randint(-(2**63), 2**63 - 1, (chunk // 8,), generator=generator) for _ in range(count))
    state = {f"rank{rank}.{number}": bit.view(torch.bfloat16) for number, bit in enumerate(bits)}
    writer = dcp.FileSystemWriter(folder, single_file_per_rank=True, sync_files=True)
    dist.barrier()
    began_ns = time.monotonic_ns()
    dcp.save(state, storage_writer=writer)
    print(json.dumps({"began_ns": began_ns, "ended_ns": time.monotonic_ns()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
