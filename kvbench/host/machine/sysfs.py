"""Small files of /sys and /proc, or "" where there is none: they differ between drivers and kernels."""

from __future__ import annotations

from pathlib import Path

from kvbench.host.machine.loose import text


def content(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def attribute(file: Path) -> str:
    """As one printable line."""
    return text(content(file))
