import pytest

from kvbench.units import (
    format_bytes,
    format_rate,
    format_seconds,
    format_value,
    parse_bytes,
    parse_rate,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("8 GiB", 8 * 2**30), ("1.5GB", 1_500_000_000), ("0", None), (4096, 4096), ("256 KiB", 262_144), ("7 B", 7)],
)
def test_a_size_is_bytes_or_a_number_with_a_unit(text: object, size_bytes: int | None) -> None:
    if size_bytes is None:
        with pytest.raises(ValueError, match="not a size"):
            parse_bytes(text)
    else:
        assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("wrong", ["8 gib", "-1 GiB", "1.5 B", "GiB", "", None, True, [], "1e999 GB", -1])
def test_a_wrong_size_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"is not a"):
        parse_bytes(wrong)


def test_a_rate_says_per_second() -> None:
    assert parse_rate("2.5 GB/s") == 2_500_000_000
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate("2.5 GB")


@pytest.mark.parametrize(
    ("text", "seconds"), [("10m", 600.0), ("1.5 h", 5400.0), (2, 2.0), ("250 ms", 0.25), ("3 d", 259_200.0)]
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("wrong", ["ten", "5 parsecs", None, True, "-3 s", float("nan"), float("inf")])
def test_a_wrong_duration_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_seconds(wrong)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (7.6714e9, "7.67 GB"), (15.2e9, "15.2 GB"), (1e15, "1000 TB")],
)
def test_bytes_are_printed_in_decimal_units(size_bytes: float, text: str) -> None:
    assert format_bytes(size_bytes) == text
    assert format_rate(size_bytes) == f"{text}/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1.4217, "1.42 s"),
        (0.83, "830 ms"),
        (0.0000054, "5.4 µs"),
        (250, "4 min 10 s"),
        (256_320, "71 h 12 min"),
    ],
)
def test_durations_keep_three_figures_below_a_minute(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0005, "share", "0.05 %"),
        (12345, "count", "12,345"),
        (1.00123, "ratio", "1.001"),
        (98.765, "tok/s", "98.77 tok/s"),
    ],
)
def test_a_value_is_printed_in_its_unit(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text
