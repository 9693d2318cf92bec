"""The HTML page as a PDF, by weasyprint. Its libraries are not Python's, so that they may be missing."""

from __future__ import annotations

import re

from kvbench.errors import KvbenchError, StepError
from kvbench.process import find_tool, run

LIBRARIES = "libpango-1.0-0 libpangoft2-1.0-0"
CJK_FONTS = "fonts-noto-cjk"
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")


def pdf(html: str) -> bytes:
    """The page as PDF. Raises KvbenchError that names the packages when weasyprint's libraries are missing."""
    try:
        from weasyprint import HTML
    except OSError:
        raise KvbenchError(
            "the PDF was not written: the Pango libraries that weasyprint needs are not installed",
            f"apt-get install {LIBRARIES}, then: kvbench report RUN --format pdf",
        ) from None
    content: bytes = HTML(string=html).write_pdf()
    return content


def font_warning(html: str) -> str:
    """A sentence when the page holds Chinese, Japanese or Korean text and no font here can print it; else ""."""
    if not _CJK.search(html) or has_cjk_font():
        return ""
    return f"the PDF shows boxes in place of Chinese text: no font here has the characters; apt-get install {CJK_FONTS}"


def has_cjk_font() -> bool:
    """Whether a font here has Chinese characters, as fontconfig knows them."""
    if find_tool("fc-list") is None:
        return False
    try:
        return bool(run(["fc-list", ":lang=zh", "family"]).stdout.strip())
    except StepError:
        return False
