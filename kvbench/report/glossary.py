"""What the words and figures of a report mean, for a reader who has nothing else at hand. Pure."""

from __future__ import annotations

DEFINITIONS: tuple[tuple[str, str], ...] = (
    ("Arm", "One side of the comparison: dut is the storage under test; the baseline is what it has to beat."),
    ("Cell", "One point at which the arms are compared: a workload at a concurrency, written c8 for eight sessions."),
    ("Round", "One repeat of a cell on one arm. The round, and not the request, is the independent unit: n of every "
     "interval counts rounds."),
    ("Wave", "The sessions of a round, all due at the same moment, each read from storage exactly once."),
    ("Page", "The fixed unit of KV that is stored, read and hit: a chunk of tokens, 256 unless stated."),
    ("TTFT", "Time to first token: from the moment the request was due until the first token with text arrived. "
     "A late dispatch is therefore part of it, and is printed apart as well."),
    ("TPOT", "Time per output token after the first: (last token − first token) ÷ (completion tokens − 1), with the "
     "tokens as the engine's usage counts them."),
    ("Output throughput", "Completion tokens of a wave ÷ time from the first due moment to the last completion."),
    ("Percentile", "Nearest rank (inverted empirical distribution) of all samples together; percentiles are never "
     "averaged. A p99 of fewer than 100 samples is the largest of them and is printed as “max of n”."),
    ("n", "How many samples are behind a figure: requests for a figure of a round, rounds for a figure of a cell."),
    ("Ratio and interval", "Rounds of the two arms are paired; the mean of the logarithms of their ratios, with "
     "Student's t at 95 % two-sided, gives ratio and interval. The whole interval must lie on the passing side for "
     "PASS, on the other for FAIL; otherwise the check is INCONCLUSIVE."),
    ("Byte ledger", "Bytes that the device read during the wave ÷ bytes that the hits account for. Near 1 the wave was "
     "read from the device and nothing else was; below, a cache answered; above, somebody else read too."),
    ("Idle reads", "Bytes read in the quiet window before the wave, as a share of the wave's."),
    ("Residency", "Share of the KV files that lay in the operating system's page cache, before and after the wave."),
    ("Wave bandwidth", "Ledger bytes ÷ time from the first due moment to the last first token. Peak: the highest "
     "sample of one second."),
    ("Ceiling", "What fio reads from the same storage in pages of the same size on the same day."),
    ("Measured, emulated, simulated", "Measured: clocks and counters of real hardware doing the real work. Emulated: "
     "real time and real storage I/O, computing replaced by a model of it. Simulated: arithmetic in virtual time."),
    ("PASS, FAIL, INCONCLUSIVE", "FAIL is worse than INCONCLUSIVE, which is worse than PASS; the worst finding is the "
     "verdict. What is missing or contradictory makes a finding INCONCLUSIVE, never PASS."),
    ("Units", "GB is 1,000,000,000 bytes and GiB 1,073,741,824; neither is printed for the other."),
)  # fmt: skip
