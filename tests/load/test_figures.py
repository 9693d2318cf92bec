"""Figures by the definitions of the method, on rows made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvbench.load import figures, rows
from kvbench.load.result import ClientSelf, LoadResult, RequestRow
from kvbench.probes.metrics import COLD_RECOVERY_METRICS

SECOND = 1_000_000_000
CLIENT = ClientSelf(cpu_s=0.1, tokens=8, tainted_tokens=0, in_flight_reached=2, in_flight_asked=2, connections=2)


def row(ttft_s: float = 1.0, *, tokens: int | None = 64, **other: object) -> RequestRow:
    first = 10 * SECOND + round(ttft_s * SECOND)
    made = RequestRow(
        request_id="r", url="http://127.0.0.1:1", due_ns=10 * SECOND, sent_ns=10 * SECOND + 1000, connect_ns=500,
        first_token_ns=first, last_token_ns=first + 63 * SECOND // 100, done_ns=first + SECOND, read_delay_ns=2000,
        prompt_tokens=512, completion_tokens=tokens, cached_tokens=256, expected_prompt_tokens=512,
        expected_completion_tokens=64, expected_cached_tokens=256, tokens_estimated=False, tainted=False, status=200,
        error_class="", error_text="", output_digest="d", finish_reason="length",
    )  # fmt: skip
    return replace(made, **other)


def failed(**other: object) -> RequestRow:
    nothing = {"first_token_ns": None, "last_token_ns": None, "completion_tokens": None, "cached_tokens": None}
    return replace(row(), error_class="stall", error_text="no event", **(nothing | other))


def wave(*members: RequestRow):
    return figures.wave_metrics(LoadResult(members, CLIENT, 10 * SECOND), "raw/x/requests.parquet")


def test_every_name_and_unit_is_one_that_the_probe_declares():
    for name, metric in wave(row()).items():
        assert COLD_RECOVERY_METRICS[name] == metric.unit
        assert metric.source == "raw/x/requests.parquet"


def test_ttft_counts_from_due_and_percentiles_are_nearest_rank():
    metrics = wave(row(4.0), row(1.0), row(2.0), row(3.0))
    assert metrics["ttft_p50_s"].value == 2.0
    assert metrics["ttft_p90_s"].value == metrics["ttft_max_s"].value == 4.0
    assert metrics["ttft_mean_s"].value == 2.5
    assert metrics["ttft_p50_s"].n == 4


def test_a_p99_of_fewer_than_a_hundred_is_called_their_maximum():
    assert wave(*[row()] * 99)["ttft_p99_s"].note == "max of 99"
    assert wave(*[row()] * 100)["ttft_p99_s"].note == ""


def test_tpot_divides_by_the_servers_tokens_less_one():
    assert wave(row(tokens=64))["tpot_p50_s"].value == pytest.approx(0.01)
    assert wave(row(tokens=22))["tpot_p50_s"].value == pytest.approx(0.03)


@pytest.mark.parametrize("tokens", [None, 0, 1])
def test_tpot_of_less_than_two_tokens_is_undefined(tokens):
    metric = wave(row(tokens=tokens))["tpot_p50_s"]
    assert (metric.value, metric.n, metric.note) == (None, 0, "no request gave two tokens")


def test_throughput_is_tokens_over_first_due_to_last_completion():
    metrics = wave(row(1.0, tokens=64), row(3.0, tokens=36, due_ns=9 * SECOND))
    assert metrics["output_tokens_per_s"].value == pytest.approx(100 / 5.0)


def test_throughput_of_counted_chunks_says_that_it_is_an_estimate():
    assert "chunks were counted" in wave(row(tokens_estimated=True))["output_tokens_per_s"].note


def test_failed_requests_are_counted_and_have_no_part_in_latency():
    metrics = wave(row(1.0), row(50.0, error_class="wrong_token_count"), failed())
    assert (metrics["requests_ok"].value, metrics["requests_failed"].value) == (1, 2)
    assert metrics["ttft_max_s"].value == 1.0
    assert metrics["ttft_p50_s"].note == "2 of 3 requests failed"


def test_a_wave_without_a_single_reply_has_no_figures_and_says_why():
    metrics = wave(failed(sent_ns=None, connect_ns=None), failed(sent_ns=None, connect_ns=None))
    for name in ("ttft_p50_s", "ttft_max_s", "tpot_p50_s", "output_tokens_per_s", "client_error_share"):
        assert metrics[name].value is None
        assert metrics[name].note
    assert metrics["dispatch_delay_max_s"].note.startswith("no request was sent")
    assert metrics["requests_failed"].value == 2


@pytest.mark.parametrize(
    ("tokens", "deviation"), [((64, 64), 0), ((64, 61), 3), ((70, 64), 6)], ids=["equal", "too few", "too many"]
)
def test_the_largest_deviation_of_the_token_counts_is_told(tokens, deviation):
    metrics = wave(*[row(tokens=count) for count in tokens])
    assert metrics["completion_tokens_deviation"].value == deviation


def test_a_deviation_that_nobody_could_count_is_absent():
    metrics = wave(row(tokens_estimated=True, prompt_tokens=None))
    assert metrics["completion_tokens_deviation"].value is None
    assert metrics["prompt_tokens_deviation"].value is None


def test_hits_are_held_against_what_each_request_should_have_had():
    metrics = wave(row(), row(cached_tokens=0), row(cached_tokens=512))
    assert metrics["external_hit_tokens"].value == 768
    assert metrics["hit_shortfall_requests"].value == 2


def test_a_request_that_does_not_tell_its_hits_is_a_shortfall_and_noted():
    metrics = wave(row(), row(cached_tokens=None))
    assert metrics["hit_shortfall_requests"].value == 1
    assert metrics["hit_shortfall_requests"].note == "usage of 1 of 2 requests has no cached_tokens"
    assert wave(row(cached_tokens=None))["external_hit_tokens"].value is None


def test_the_clients_error_is_dispatch_delay_where_the_kernel_stamped_single_tokens():
    metrics = wave(row(2.0, sent_ns=10 * SECOND + 3_000_000, read_delay_ns=900_000_000))
    assert metrics["client_error_s"].value == pytest.approx(0.003)
    assert metrics["client_error_share"].value == pytest.approx(0.0015)


def test_a_tainted_first_token_adds_the_time_it_lay_unread():
    metrics = wave(row(sent_ns=10 * SECOND, read_delay_ns=20_000_000, tainted=True))
    assert metrics["client_error_s"].value == pytest.approx(0.02)


def test_without_the_kernels_stamps_the_client_does_not_know_its_error():
    metric = wave(row(), row(read_delay_ns=None))["client_error_share"]
    assert metric.value is None
    assert "receive stamps" in metric.note


def test_goodput_counts_what_met_every_objective():
    members = (row(1.0), row(3.0), failed(), row(1.0, tokens=2))
    goodput = figures.goodput(LoadResult(members, CLIENT, 0), {"ttft": 2.0, "tpot": 0.1})
    assert (goodput.met, goodput.total) == (1, 4)
    assert goodput.per_s == pytest.approx(1 / 4.0)


def test_rows_come_back_from_parquet_as_they_were(tmp_path):
    members = [row(), failed(sent_ns=None), row(error_text="缓存", tainted=True)]
    rows.write(members, tmp_path / "requests.parquet")
    assert rows.read(tmp_path / "requests.parquet") == members
    assert list(tmp_path.iterdir()) == [tmp_path / "requests.parquet"]
