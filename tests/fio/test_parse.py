"""fio's output, in every shape that has been seen, read to the right figures or to a reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.fio.parse import parse, version_of
from kvbench.fio.result import FioResult
from kvbench.fio.total import totals

FIXTURES = Path(__file__).parents[1] / "fixtures" / "fio"
CASES = Path(__file__).parents[3] / "shared" / "cases" / "files"


def figures(result: FioResult) -> dict[str, Any]:
    """What a reader would look up: the totals by direction, and the text."""
    found: dict[str, Any] = {"ok": result.ok, "reason": result.reason, "warnings": result.warnings}
    for part in totals(result.jobs):
        latency = {percentile: part.latency_ns.get(percentile) for percentile in (50, 99)}
        found[part.direction] = (part.jobs, part.bytes, part.runtime_s, part.ios, latency[50], latency[99])
    return found


# file → what it must be read as; a direction is (jobs, bytes, runtime in s, I/Os, p50 in ns, p99 in ns)
SOUND = (1, 1048576, 1.0, 256, 1000, 5000)
ODDITIES: dict[str, dict[str, Any]] = {
    "F01-error-line-before-document.txt": {"ok": False, "reason": "a: error 5, Input/output error", "read": SOUND},
    "F01-error-line-only-there.txt": {"ok": False, "reason": "fio reported error 5, Input/output error"},
    "F03-cut-off.json": {"ok": False, "reason": "its last JSON document is cut off"},
    "F05-cumulative-documents.txt": {
        "ok": True,
        "read": (1, 1462272, 2.0, 357, 1000, 5000),
        "warnings": ("2 documents, each cumulative: the last one counts",),
    },
    "F05-last-document-cut-off.txt": {"ok": False, "reason": "its last JSON document is cut off"},
    "F07-not-numbers-and-sentinels.json": {"ok": True, "read": (1, 1048576, 1.0, 256, None, None)},
    "F09-direction-without-samples.json": {"ok": True, "read": SOUND, "write": (1, 4096, 1.0, 1, None, None)},
    "F11-kib-and-microseconds-of-2.x.json": {"ok": True, "read": (1, 1048576, 0.004, 1, 3_900_000, 3_900_000)},
    "F11-3.1-without-bw_bytes.json": {"ok": True, "read": (1, 1048576, 0.004, 1, 3_900_000, 3_900_000)},
    "F15-sampled-means-of-one-job.json": {"ok": True, "read": (1, 103788544, 1.0, 25339, 1000, 5000)},
    "F17-mixed-jobs-without-grouping.json": {
        "ok": True,
        "read": (4, 350 * 4096, 1.0, 350, None, None),
        "write": (4, 150 * 4096, 1.0, 150, None, None),
    },
    "F19-clients-and-their-sum.json": {"ok": True, "read": (2, 200, 1.0, 2, None, None)},
    "F21-options-only-global.json": {"ok": True, "read": SOUND},
    "F21-no-options-no-io.json": {"ok": False, "reason": "no I/O was done"},
    "F24-longer-than-asked.json": {
        "ok": True,
        "read": (1, 103596949, 79.037, 25292, 1000, 5000),
        "warnings": ("a read: ran 79.04 s where 60 s were asked for",),
    },
    "F24-shorter-than-asked.json": {"ok": False, "reason": "a read: ended after 1 s of 60 s"},
    "F26-aborted-with-log.json": {
        "ok": False,
        "reason": f"a: error 62, {os.strerror(62)}",
        "warnings": ("a: series not available, the job was aborted",),
    },
    "F28-cache-not-dropped.txt": {
        "ok": True,
        "read": SOUND,
        "warnings": ("a read: reads are not trusted: fio could not drop the page cache, and direct=1 was not set",),
    },
    "F28-cache-not-dropped-direct.txt": {"ok": True, "read": SOUND, "warnings": ()},
    "F30-runtime-0.json": {
        "ok": False,
        "reason": "a read: runtime is 0, so that it has neither bandwidth nor IOPS",
        "read": (1, 0, None, 1, None, None),
    },
    "F31-bins-in-nanoseconds.json": {"ok": True, "read": (1, 1048576, 1.0, 535, 104960, 104960)},
    "F31-bins-of-two-jobs.json": {"ok": True, "read": (2, 2097152, 1.0, 400, 900, 900)},  # means of the parts: 500
    "F31-bins-incomplete.json": {
        "ok": True,
        "read": (1, 1048576, 1.0, 535, 104960, None),
        "warnings": ("a read: histogram not used: it holds 501 of 535 I/Os",),
    },
    "F31-bins-are-bucket-numbers.json": {
        "ok": True,
        "read": (1, 1048576, 1.0, 535, 104960, None),
        "warnings": ("a read: histogram not used: before fio 2.99 its keys are bucket numbers",),
    },
    "F31-beyond-the-histogram.json": {
        "ok": True,
        "read": (1, 1048576, 1.0, 100, 104960, 17112760320),
        "warnings": ("a read: from p99 on, latencies are capped: the histogram ends at 17.1 s",),
    },
    "contradicting-bandwidth.json": {
        "ok": False,
        "reason": "a read: 1048576 bytes in 1000 ms contradict the stated 9999999 B/s",
    },
    "interrupted.txt": {"ok": False, "reason": "fio was interrupted by signal 2"},
    "no-latency.json": {"ok": True, "read": (1, 1048576, 1.0, 256, None, None)},
    "only-lat-percentiles.json": {"ok": True, "read": (1, 1048576, 1.0, 256, 7, 8)},
    "other-json.json": {"ok": False, "reason": "it holds no JSON result of fio"},
    "unknown-option.txt": {"ok": False, "reason": "fio: unrecognized option '--nosuchopt=1'"},
}
# Captured from real runs of many versions; they are not part of this repository.
CAPTURED: dict[str, dict[str, Any]] = {
    "own-fio/badopt.stderr": {"ok": False, "reason": "fio: unrecognized option '--nosuchopt=1'"},
    "own-fio/client-server.stdout": {"ok": True, "read": (2, 2097152, 0.001, 512, None, None)},
    "own-fio/continue-on-error.stdout": {"ok": False, "write": (1, 0, None, 1, None, None)},
    "own-fio/continue.stderr": {"ok": False},
    "own-fio/error-devfull.stdout": {"ok": False, "write": (1, 0, None, 1, None, None)},
    "own-fio/eta-always.stdout": {"ok": True, "read": (1, 222629888, 2.001, 54353, 394, 3888)},
    "own-fio/fsync.json": {"ok": True, "write": (1, 4194304, 2.283, 1024, 2192, 173056)},
    "own-fio/group4.json": {"ok": True, "read": (1, 10338304, 1.003, 2524, 1630208, 4014080)},
    "own-fio/gtod-reduce.json": {"ok": True, "read": (1, 4194304, 0.01, 1024, None, None)},
    "own-fio/jsonplus.json": {
        "ok": True,
        "read": (1, 3391488, 1.004, 828, 913408, 5341184),
        "write": (1, 3600384, 1.004, 879, 3216, 146432),
    },
    "own-fio/nogroup4.json": {"ok": True, "read": (4, 35368960, 1.007, 8635, None, None)},
    "own-fio/one-io.json": {"ok": True, "read": (1, 4096, 0.006, 1, 5931008, 5931008)},
    "own-fio/percentile-list.json": {"ok": True, "read": (1, 4194304, 0.011, 1024, 684, None)},
    "own-fio/sigint.stdout": {"ok": False, "reason": "fio was interrupted by signal 2"},
    "own-fio/status-interval.stdout": {"ok": True, "read": (1, 2378174464, 3.001, 580609, 330, 8512)},
    "fio/arau-out-rand-50rw32k.fio-0": {
        "ok": True,
        "read": (1, 2153283584, 290.902, 65713, 2113536, 624951296),
        "write": (1, 2141683712, 290.902, 65359, 9895936, 666894336),
    },
    "fio/arau-reads-100-0": {"ok": True, "read": (1, 4294967296, 2278.568, 1048576, 978944, 759169024)},
    "fio/fiosynth-sample_1_run1.json": {"ok": True, "read": (1, 4685824, 30.112, 284, 12910592, 110624768)},
    "fio/gcsfuse-bad_format.json": {"ok": True, "read": (1, 6040846336, 60.476, 5761, 387973120, 893386752)},
    "fio/gcsfuse-good_out_job.json": {"ok": True, "read": (1, 6040846336, 60.476, 5761, 387973120, 893386752)},
    "fio/gcsfuse-multiple_jobs_global_options.json": {
        "ok": True,
        "read": (2, 11152654336, 150.31, 9255, None, None),  # the second job began 89.7 s after the first
        "warnings": (
            "1_thread read: from p30 on, latencies are capped: the histogram ends at 17.1 s",
            "2_thread read: from p90 on, latencies are capped: the histogram ends at 17.1 s",
        ),
    },
    "fio/ocs-ci-fio.output": {"ok": True, "write": (1, 90280222720, 295.076, 22041071, 588, 988)},
    "fio/pbench-perf-fio-0-result.txt": {"ok": True, "read": (8, 78995775488, 86400.338, 19285828, None, None)},
    "fio/pkb-hist-fio.json": {
        "ok": True,
        "read": (1, 1294256 * 1024, 10.003, 80891, 96_000, 1_352_000),
        "write": (1, 393280 * 1024, 10.004, 24580, 548_000, 2_384_000),
    },
}


@pytest.mark.parametrize("name", ODDITIES)
def test_every_oddity_is_read_to_its_figures_or_its_reason(name: str) -> None:
    found = figures(parse((FIXTURES / name).read_bytes()))
    assert {key: found.get(key) for key in ODDITIES[name]} == ODDITIES[name]


def test_every_fixture_is_in_the_table() -> None:
    assert {path.name for path in FIXTURES.iterdir()} == set(ODDITIES)


@pytest.mark.skipif(not CASES.exists(), reason="the captured files are not beside this checkout")
@pytest.mark.parametrize("name", CAPTURED)
def test_captured_files_are_read_to_their_figures(name: str) -> None:
    found = figures(parse((CASES / name).read_bytes()))
    assert {key: found.get(key) for key in CAPTURED[name]} == CAPTURED[name]


def test_a_direction_that_was_not_driven_is_absent() -> None:
    assert [job.direction for job in parse((FIXTURES / "F24-longer-than-asked.json").read_bytes()).jobs] == ["read"]


def test_a_jobs_own_options_win_over_the_global_ones() -> None:
    (job,) = parse((FIXTURES / "F21-options-only-global.json").read_bytes()).jobs
    assert job.options == {"rw": "read", "iodepth": "32", "bs": "8k"}


def test_each_client_has_its_host() -> None:
    jobs = parse((FIXTURES / "F19-clients-and-their-sum.json").read_bytes()).jobs
    assert [job.host for job in jobs] == ["a:8765", "b:8765"]


def test_bandwidth_and_iops_come_from_bytes_and_runtime() -> None:
    (job,) = parse((FIXTURES / "F15-sampled-means-of-one-job.json").read_bytes()).jobs
    assert (job.bandwidth_bytes_per_s, job.iops) == (103788544.0, 25339.0)


def test_reads_that_may_be_cached_are_not_trusted_unless_they_are_direct() -> None:
    trusted = {
        name: parse((FIXTURES / name).read_bytes()).jobs[0].trusted
        for name in ("F28-cache-not-dropped.txt", "F28-cache-not-dropped-direct.txt")
    }
    assert list(trusted.values()) == [False, True]


@pytest.mark.parametrize(
    ("returncode", "stderr", "reason"),
    [
        (None, "", ""),
        (0, "", ""),
        (1, "", "fio ended with exit code 1"),
        (-9, "", "fio was killed by signal 9"),
        (128, "fio: terminating on signal 15", "fio was interrupted by signal 15"),
    ],
)
def test_a_whole_document_is_not_enough_when_fio_did_not_end_well(
    returncode: int | None, stderr: str, reason: str
) -> None:
    result = parse((FIXTURES / "only-lat-percentiles.json").read_bytes(), stderr, returncode)
    assert (result.ok, result.reason) == (not reason, reason)


def test_an_empty_output_says_so() -> None:
    assert parse(b"").reason == "the output is empty"


def test_lines_beside_the_document_are_kept() -> None:
    result = parse((FIXTURES / "F28-cache-not-dropped.txt").read_bytes(), "fio: a word more\n")
    assert result.diagnostics == (
        "fio: cache invalidation of /dev/x failed: Permission denied",
        "fio: a word more",
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [("fio-3.33", (3, 33)), ("fio-2.1.3-dirty", (2, 1)), ("fio 3", None), (None, None), ("", None)],
)
def test_versions(text: object, version: tuple[int, int] | None) -> None:
    assert version_of(text) == version


PIECES = [path.read_bytes() for path in sorted(FIXTURES.iterdir())]
TOKENS = [
    b"null",
    b"-nan",
    b"[]",
    b"{}",
    b'""',
    b"-1",
    b"1e999",
    b"9" * 5000,
    b"18446744073709551615",
    b"true",
    b'"\\ud800"',
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A fixture of which a piece is replaced by another value, by bytes, by a piece of another one, or by nothing."""
    text = draw(st.sampled_from(PIECES))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = draw(st.integers(begin, min(len(text), begin + 40)))
        other = draw(st.sampled_from(PIECES))
        text = (
            text[:begin]
            + draw(st.sampled_from(TOKENS) | st.binary(max_size=8) | st.just(other[begin:end]))
            + text[end:]
        )
    return text


@st.composite
def revalued(draw: st.DrawFn) -> bytes:
    """A fixture in which values are replaced whole, so that it stays JSON and every field meets every type."""
    text = draw(st.sampled_from(PIECES))
    for _ in range(draw(st.integers(1, 3))):
        fields = text.split(b": ")
        at = draw(st.integers(0, len(fields) - 1))
        tail = fields[at].lstrip(b"-0123456789.")
        fields[at] = draw(st.sampled_from(TOKENS)) + tail if tail != fields[at] else fields[at]
        text = b": ".join(fields)
    return text


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(mutated() | revalued() | st.binary(max_size=200), st.sampled_from([None, 0, 1, -9]))
def test_any_bytes_end_in_a_result_with_a_reason_unless_it_is_sound(content: bytes, returncode: int | None) -> None:
    result = parse(content, returncode=returncode)
    assert result.ok == (not result.reason)
    assert all(part.bytes is None or part.bytes >= 0 for part in totals(result.jobs))
    repr(result).encode()
