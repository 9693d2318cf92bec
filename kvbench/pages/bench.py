"""The page driver's reads against fio's, in turn on the same folder: is it the storage that a page step measures?

A cell is a page size and a queue depth. A pair is one run of each, in an order drawn anew, plus a second one of fio:
what fio differs from itself is the noise. Every run reads the same number of bytes once, with direct I/O: ours whole
page files, fio (io_uring) blocks of that size in random order from one file. On a block device both read our pages.
Content is not checked meanwhile, as fio does not check any. Time is from the first I/O's begin to the last one's end;
processor time is of the reading alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any

from kvbench import clock, process, safety
from kvbench.errors import StepError
from kvbench.fio.parse import parse
from kvbench.fio.runner import require_fio
from kvbench.host.machine import rawdevice
from kvbench.pages.figures import Transfer
from kvbench.pages.loop import ClosedLoop
from kvbench.stats import paired_log_ratio
from kvbench.store import deviceindex
from kvbench.store.content import PageContent
from kvbench.store.keys import PageKey, chain
from kvbench.store.protocol import Io, Read, Write
from kvbench.store.real import RealNodes

PAGE_BYTES = (2 * 2**20, 16 * 2**20)
QUEUE_DEPTHS = (1, 8, 32)
LIMIT_RATIO = 0.97  # of bandwidths, ours ÷ fio's: geometric mean over all pairs
LIMIT_CPU_RATIO = 1.2  # of processor seconds per byte
_PATIENCE_S = 600.0
_JOB = """\
[read]
filename={file}
offset={offset}
rw=randread
bs={block_bytes}
size={size_bytes}
direct=1
ioengine=io_uring
iodepth={depth}
randseed={seed}
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One reading of all bytes."""

    bytes: int
    seconds: float
    cpu_s: float

    @property
    def bandwidth(self) -> float:
        return self.bytes / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.bytes / 1e9)


@dataclass(frozen=True, slots=True)
class Pair:
    page_bytes: int
    depth: int
    ours: Run
    fio: Run
    again: Run  # fio once more


# ---------------------------------------------------------------- what pairs say, pure


@dataclass(frozen=True, slots=True)
class Cell:
    """`ratio` is ours ÷ fio's bandwidth, geometric mean, with the two-sided 95 % interval of its pairs (None of one
    pair); `cpu_ratio` that of processor time per byte; `noise` the interval of fio ÷ fio."""

    page_bytes: int
    depth: int
    pairs: int
    ours_bytes_per_s: float
    fio_bytes_per_s: float
    ratio: float
    low: float | None
    high: float | None
    cpu_ratio: float
    ours_cpu_s_per_gb: float
    fio_cpu_s_per_gb: float
    noise: float
    noise_low: float | None
    noise_high: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Geometric means over all pairs, and the cells. `shortfalls` are empty when all limits hold."""

    ratio: float
    cpu_ratio: float
    cells: tuple[Cell, ...]

    @property
    def shortfalls(self) -> list[str]:
        said = []
        if self.ratio < LIMIT_RATIO:
            said.append(f"bandwidth is {self.ratio:.3f} of fio's, where at least {LIMIT_RATIO} is asked")
        if self.cpu_ratio > LIMIT_CPU_RATIO:
            said.append(f"processor time is {self.cpu_ratio:.2f} of fio's, where at most {LIMIT_CPU_RATIO} is asked")
        said += [
            f"{cell.page_bytes >> 20} MiB at queue depth {cell.depth}: the interval ends at {cell.high:.3f}"
            for cell in self.cells
            if cell.high is not None and cell.high < LIMIT_RATIO
        ]
        return said


def summarise(pairs: Sequence[Pair]) -> Summary:
    by_cell: dict[tuple[int, int], list[Pair]] = {}
    for pair in pairs:
        by_cell.setdefault((pair.page_bytes, pair.depth), []).append(pair)
    return Summary(
        ratio=geometric_mean(pair.ours.bandwidth / pair.fio.bandwidth for pair in pairs),
        cpu_ratio=geometric_mean(pair.ours.cpu_s_per_gb / pair.fio.cpu_s_per_gb for pair in pairs),
        cells=tuple(_cell(page_bytes, depth, found) for (page_bytes, depth), found in sorted(by_cell.items())),
    )


def _cell(page_bytes: int, depth: int, pairs: Sequence[Pair]) -> Cell:
    fio = [pair.fio.bandwidth for pair in pairs]
    ours = paired_log_ratio([pair.ours.bandwidth for pair in pairs], fio)
    noise = paired_log_ratio([pair.again.bandwidth for pair in pairs], fio)
    cpu = [(pair.ours.cpu_s_per_gb, pair.fio.cpu_s_per_gb) for pair in pairs]
    return Cell(
        page_bytes=page_bytes,
        depth=depth,
        pairs=len(pairs),
        ours_bytes_per_s=geometric_mean(pair.ours.bandwidth for pair in pairs),
        fio_bytes_per_s=geometric_mean(fio),
        ratio=ours.ratio,
        low=ours.low,
        high=ours.high,
        cpu_ratio=geometric_mean(of / against for of, against in cpu),
        ours_cpu_s_per_gb=geometric_mean(of for of, _ in cpu),
        fio_cpu_s_per_gb=geometric_mean(against for _, against in cpu),
        noise=noise.ratio,
        noise_low=noise.low,
        noise_high=noise.high,
    )


# ---------------------------------------------------------------- the runs


def run(
    folder: Path,
    pairs: int,
    run_bytes: int,
    seed: int,
    *,
    cells: Sequence[tuple[int, int]] = tuple(product(PAGE_BYTES, QUEUE_DEPTHS)),
    destroy_data: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
) -> list[Pair]:
    """Alternate ours and fio over all cells. What is written to `folder` is removed; nothing else may read there.

    It may be a block device whose serial number is in `destroy_data`.
    Raises StepError when an I/O fails or fio is not sound, KvbenchError when the folder cannot be used.
    """
    rng, fio = random.Random(seed), require_fio()
    with _claimed(folder, destroy_data) as claimed:
        return [
            pair
            for page_bytes in dict.fromkeys(page_bytes for page_bytes, _ in cells)
            for pair in _of_size(
                _Files(claimed, page_bytes, max(1, run_bytes // page_bytes), fio),
                [depth for size, depth in cells if size == page_bytes],
                pairs,
                rng,
                say,
            )
        ]


@contextmanager
def _claimed(place: Path, destroy_data: Sequence[str]) -> Iterator[Path]:
    """Our folder there; or the device, which nobody else may take meanwhile."""
    rawdevice.refuse((place,), destroy_data)
    with safety.alone_on((place,)):
        claimed = safety.claim(place, "bench")
        try:
            with rawdevice.taken((claimed,)):
                yield claimed
        finally:
            safety.release(claimed)


def _of_size(
    files: _Files, depths: Sequence[int], pairs: int, rng: random.Random, say: Callable[[str], None]
) -> Iterator[Pair]:
    """Pairs go round the depths, so that what drifts meets all of them."""
    say(f"writing {files.count} pages of {files.page_bytes >> 20} MiB, twice")
    files.write()
    for number in range(pairs):
        for depth in depths:
            order = ["ours", "fio", "again"]
            rng.shuffle(order)
            done = {name: files.ours(depth) if name == "ours" else files.fio(depth, rng) for name in order}
            say(
                f"pair {number + 1} of {pairs}, {files.page_bytes >> 20} MiB at queue depth {depth}: "
                f"{done['ours'].bandwidth / done['fio'].bandwidth:.3f}"
            )
            yield Pair(files.page_bytes, depth, **done)
    files.remove()


@dataclass(frozen=True, slots=True)
class _Files:
    """The pages of one size, as ours and as one file for fio; on a device fio has ours, which lie side by side."""

    folder: Path
    page_bytes: int
    count: int
    fio_path: str

    @property
    def keys(self) -> list[PageKey]:
        return [PageKey(digest, 0) for digest in chain(f"bench/{self.page_bytes}", 1, 1, range(self.count))]

    @property
    def block_bytes(self) -> int:
        return PageContent(self.page_bytes).file_bytes

    @property
    def is_device(self) -> bool:
        return not self.folder.is_dir()

    def write(self) -> None:
        if self.is_device:
            deviceindex.prepare(self.folder, f"bench/{self.page_bytes}")
        self._carry_out((Write(io, 0, key) for io, key in enumerate(self.keys)), depth=4)
        if self.is_device:
            return
        with (self.folder / "pages.fio").open("wb") as joined:
            for key in self.keys:
                joined.write((self.folder / "pages" / key.file_name).read_bytes())
        process.run(["sync", str(self.folder / "pages.fio")], timeout_s=_PATIENCE_S)

    def remove(self) -> None:
        if self.is_device:
            deviceindex.forget(self.folder)
        else:
            safety.empty(self.folder)

    def ours(self, depth: int) -> Run:
        return self._carry_out((Read(io, 0, key) for io, key in enumerate(self.keys)), depth)

    def _carry_out(self, commands: Iterator[Io], depth: int) -> Run:
        loop = ClosedLoop(commands, depth)
        with RealNodes(
            [self.folder if self.is_device else self.folder / "pages"],
            self.page_bytes,
            on_done=loop.on_done,
            on_io=loop.on_io,
            workers_per_node=depth,
            verify=False,
        ) as nodes:
            cpu_ns = clock.cpu_ns()
            loop.start(nodes)
            loop.wait(_PATIENCE_S)
            cpu_ns = clock.cpu_ns() - cpu_ns
        moved = Transfer(self.block_bytes, tuple(loop.ended))
        if len(moved.good) < self.count:
            raise StepError(f"{self.count - len(moved.good)} pages could not be read or written in {self.folder}")
        first_ns, last_ns = moved.span_ns
        return Run(moved.bytes, (last_ns - first_ns) / 1e9, cpu_ns / 1e9)

    def fio(self, depth: int, rng: random.Random) -> Run:
        job = _JOB.format(
            file=self.folder if self.is_device else self.folder / "pages.fio",
            offset=deviceindex.first_page_at(self.folder) if self.is_device else 0,
            block_bytes=self.block_bytes,
            size_bytes=self.count * self.block_bytes,
            depth=depth,
            seed=rng.randrange(1, 2**31),
        )
        with TemporaryDirectory() as folder:
            (Path(folder) / "job.fio").write_text(job)
            argv = [self.fio_path, "--output-format=json+", str(Path(folder) / "job.fio")]
            done = process.run(argv, timeout_s=_PATIENCE_S)
        result = parse(done.stdout, done.stderr, done.returncode)
        if not result.ok or not result.jobs[0].runtime_s or result.jobs[0].cpu_s is None:
            raise StepError(f"fio: {result.reason or 'no runtime'}", "give it more bytes to read, or see what it said")
        found = result.jobs[0]
        return Run(found.bytes or 0, found.runtime_s or 0.0, found.cpu_s or 0.0)


def as_plain(summary: Summary) -> dict[str, Any]:
    return {**asdict(summary), "shortfalls": summary.shortfalls}
