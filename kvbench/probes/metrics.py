"""The metrics of each probe with their units: a promise, to which `plan.py` holds the checks of a gate file. Pure."""

from __future__ import annotations

from collections.abc import Mapping

COLD_RECOVERY_METRICS: Mapping[str, str] = {
    "ttft_p50_s": "s",
    "ttft_p90_s": "s",
    "ttft_p99_s": "s",
    "ttft_mean_s": "s",
    "ttft_max_s": "s",
    "tpot_p50_s": "s",
    "output_tokens_per_s": "tok/s",
    "dispatch_delay_max_s": "s",
    "connect_max_s": "s",
    "requests_ok": "count",
    "requests_failed": "count",
    "completion_tokens_deviation": "count",  # largest |completion tokens − asked| of a request
    "prompt_tokens_deviation": "count",
    "client_error_s": "s",
    "client_error_share": "share",  # of the wave's own TTFT p50
    "external_hit_tokens": "count",  # as the requests' usage says
    "external_hit_ratio": "ratio",  # the engine's counter ÷ what the requests should have hit
    "hit_shortfall_requests": "count",  # requests whose cached tokens are not exactly what they should be
    "content_mismatches": "count",
    "output_divergence_share": "share",  # of sessions, those answered otherwise from stored KV than from computed KV
    "preemptions": "count",
    "host_tier_hits": "count",
    "allocation_failures": "count",
    "stored_bytes": "B",
    "stored_ratio": "ratio",  # bytes stored ÷ bytes that the sessions' full pages should take
    "device_read_bytes": "B",
    "expected_read_bytes": "B",
    "ledger_ratio": "ratio",  # the first ÷ the second
    "idle_read_share": "share",
    "residency_before_share": "share",
    "residency_after_share": "share",
    "array_cache_evicted_ratio": "ratio",  # bytes of other data that were read before ÷ the array's declared cache
    "wave_bandwidth_bytes_per_s": "B/s",
    "peak_bandwidth_bytes_per_s": "B/s",
    "link_use_share": "share",  # peak ÷ what link and medium can give
    "cpu_pressure_share": "share",
    "medium_proven": "count",  # 1: a physical medium; 0: tmpfs, loop or a virtual disk
}

SCALING_METRICS: Mapping[str, str] = {
    **{  # of the wave in which the nodes change, where nothing else is said
        name: COLD_RECOVERY_METRICS[name]
        for name in (
            "ttft_p50_s",
            "ttft_p90_s",
            "ttft_p99_s",
            "ttft_mean_s",
            "ttft_max_s",
            "tpot_p50_s",
            "output_tokens_per_s",
            "dispatch_delay_max_s",
            "connect_max_s",
            "requests_ok",
            "requests_failed",  # of all three waves
            "completion_tokens_deviation",
            "prompt_tokens_deviation",
            "client_error_s",
            "client_error_share",
            "external_hit_tokens",
            "hit_shortfall_requests",
            "content_mismatches",  # of all three waves
            "preemptions",
            "residency_before_share",
            "array_cache_evicted_ratio",
            "cpu_pressure_share",
            "medium_proven",
        )
    },
    "ttft_before_p50_s": "s",
    "ttft_after_p50_s": "s",
    "change_at_share": "share",  # when the change began, of the wave up to its last first token
    "changed_pages": "count",  # that moved to the node that came, or lay on the one that failed
    "moved_bytes": "B",
    "rebalance_s": "s",  # from the change to the last page that moved
    "missed_tokens": "count",  # of full pages, no hits and computed again, in the wave of the change and after
    "unexplained_misses": "count",  # requests with fewer hits than the pages that have not gone, of all three waves
}

FIO_METRICS: Mapping[str, str] = {
    "read_bandwidth_bytes_per_s": "B/s",
    "write_bandwidth_bytes_per_s": "B/s",
    "read_iops": "1/s",
    "write_iops": "1/s",
    "read_latency_p50_s": "s",
    "read_latency_p99_s": "s",
    "write_latency_p50_s": "s",
    "write_latency_p99_s": "s",
    "read_bytes": "B",
    "written_bytes": "B",
    "runtime_s": "s",
}

STEADY_METRICS: Mapping[str, str] = {
    "steady_bandwidth_bytes_per_s": "B/s",  # mean of the steady window; None where none was reached
    "rounds_run": "count",
    "range_share": "share",  # max − min of the window ÷ its mean
    "slope_share": "share",  # movement of the fitted line over the window ÷ its mean
    "preconditioned_bytes": "B",
}

PAGE_METRICS: Mapping[str, str] = {
    "read_bandwidth_bytes_per_s": "B/s",
    "read_latency_p50_s": "s",
    "read_latency_p99_s": "s",
    "write_bandwidth_bytes_per_s": "B/s",
    "write_latency_p50_s": "s",
    "write_latency_p99_s": "s",
    "drain_s": "s",  # from the last write acknowledged to the device idle
    "p99_inflation": "ratio",  # read p99 beside writes ÷ alone
    "bandwidth_loss_share": "share",  # of the read bandwidth, beside writes
    "serial_bandwidth_bytes_per_s": "B/s",
    "parallel_bandwidth_bytes_per_s": "B/s",
    "merged_bandwidth_bytes_per_s": "B/s",
    "parallel_gain": "ratio",  # parallel ÷ serial
    "merged_gain": "ratio",
    "content_mismatches": "count",  # pages read that were not byte for byte what was written
    "io_errors": "count",
    "ledger_ratio": "ratio",  # bytes that the device moved ÷ bytes of the pages
    "idle_read_share": "share",
    "residency_before_share": "share",
    "residency_after_share": "share",
    "array_cache_evicted_ratio": "ratio",
    "link_use_share": "share",
    "cpu_pressure_share": "share",
    "medium_proven": "count",
}

CHECKPOINT_METRICS: Mapping[str, str] = {
    "moved_bytes": "B",
    "save_s": "s",  # of the slowest rank, from opening its file to the fsync of its directory
    "save_bandwidth_bytes_per_s": "B/s",  # all bytes ÷ that
    "load_s": "s",  # of the slowest model, all at once
    "load_bandwidth_bytes_per_s": "B/s",
    "rank_bandwidth_min_bytes_per_s": "B/s",  # of the slowest rank or model
    "switch_s": "s",  # of one model, mean
    "effective_utilisation_share": "share",  # of an hour, what the stated number of switches leaves to computing
    "starved_share": "share",  # of a rank's time, waiting for bytes to be made or checked; the worst rank
    "wrong_chunks": "count",  # of 16 MiB, that were not byte for byte what was written
    "ledger_ratio": "ratio",  # bytes that the devices moved ÷ bytes of the files
    "idle_read_share": "share",
    "residency_before_share": "share",
    "array_cache_evicted_ratio": "ratio",
    "cpu_pressure_share": "share",
    "medium_proven": "count",
}

INVENTORY_METRICS: Mapping[str, str] = {
    "expectations": "count",  # keys of the target's storage.expect
    "devices": "count",
    "pcie_degraded_devices": "count",  # links below what both of their ends can do
    "medium_proven": "count",
}

HEALTH_METRICS: Mapping[str, str] = {
    "critical_warning": "count",  # NVMe's bit mask; every figure is the worst of the arm's drives
    "media_errors_total": "count",  # since the drive was made
    "spare_margin_share": "share",  # available spare − its threshold
    "wear_share": "share",
    "wear_margin_share": "share",  # the target's wear_limit_share − wear
    "error_log_entries": "count",
    "temperature_max_c": "°C",
    "lifetime_written_bytes": "B",  # of all drives together
    "settings_declared": "count",  # settings that the target declares
    "settings_fingerprint": "",  # of what the hook show_settings printed; equal figures are equal settings
}

VERIFY_METRICS: Mapping[str, str] = {
    "verify_errors": "count",  # blocks that came back wrong
    "verified_bytes": "B",
    "verified_share": "share",  # of the capacity of the arm's file systems
}

CHURN_METRICS: Mapping[str, str] = {
    "read_bandwidth_bytes_per_s": "B/s",  # while pages come and go, without the first writing of the working set
    "write_bandwidth_bytes_per_s": "B/s",
    "read_latency_p50_s": "s",  # of a whole page
    "read_latency_p99_s": "s",
    "bytes_read": "B",
    "bytes_written": "B",  # with the first writing of the working set
    "content_mismatches": "count",  # pages that came back wrong, or not at all
    "io_errors": "count",
    "duty_share": "share",  # time with an I/O under way, or held back by the stated rate alone ÷ the slice
    "longest_stall_s": "s",
    "unavailable_s": "s",  # stalls above 60 s, added up
    "ledger_ratio": "ratio",  # bytes that the devices read ÷ bytes of the pages that were read
    "residency_share": "share",  # of the pages, in the page cache at the end
    "cpu_pressure_share": "share",
    "medium_proven": "count",
    "media_errors": "count",  # new ones in this slice, of all drives together
    "media_errors_total": "count",  # the drives' own counters at its end
    "temperature_max_c": "°C",
    "wear_share": "share",
    "lifetime_written_bytes": "B",
    "fault_outage_s": "s",
    "fault_recovery_s": "s",
}
