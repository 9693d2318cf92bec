"""The array's settings: digested, without secrets, and told when there are none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvbench.host.machine import settings

PYTHON = sys.executable


def hook(text: str, status: int = 0) -> tuple[str, ...]:
    return (PYTHON, "-c", f"import sys; sys.stdout.write({text!r}); sys.exit({status})")


def test_the_same_settings_have_the_same_fingerprint_and_others_another() -> None:
    one, again, other = (settings.show(hook(text)) for text in ("cache: on\n", "cache: on\n", "cache: off\n"))
    assert one == again
    assert one.fingerprint != other.fingerprint
    assert float(one.fingerprint or 0) == one.fingerprint  # exact as a metric's value


@pytest.mark.parametrize(
    "line",
    [
        "admin_password: hunter2",
        "API-Key = hunter2",
        "  snmp community: hunter2",
        "auth.token=hunter2",
        '"secret": "hunter2"',
    ],
)
def test_no_secret_is_kept_and_a_new_one_changes_no_fingerprint(line: str, tmp_path: Path) -> None:
    shown = settings.show(hook(f"cache: on\n{line}\nqos: none\n"))
    settings.keep(shown, tmp_path)
    kept = (tmp_path / "settings.txt").read_text()
    assert "hunter2" not in kept
    assert kept.startswith("cache: on\n")
    assert kept.endswith("qos: none\n")
    assert shown == settings.show(hook(f"cache: on\n{line.replace('hunter2', 'swordfish')}\nqos: none\n"))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "the target has no hook show_settings"),
        (hook("", 0), "the hook show_settings printed nothing"),
        (hook("cache: on", 3), "the hook show_settings ended with exit status 3"),
    ],
)
def test_without_settings_there_is_a_reason_and_no_fingerprint(given: tuple[str, ...] | None, why: str) -> None:
    shown = settings.show(given)
    assert (shown.fingerprint, shown.why_none) == (None, why)


def test_the_declaration_has_one_digest_in_any_order() -> None:
    assert settings.declaration_digest({}) == ""
    one, other = {"cache": "64 GiB", "qos": "none"}, {"qos": "none", "cache": "64 GiB"}
    assert settings.declaration_digest(one) == settings.declaration_digest(other)
    assert settings.declaration_digest(one) != settings.declaration_digest({"cache": "32 GiB", "qos": "none"})
