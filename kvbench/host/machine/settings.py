"""The array's settings, as the target's hook `show_settings` prints them, with a digest that tells of a change."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench import process

_SECRET = re.compile(
    r"(?im)^(.*(?:passw(?:or)?d|passphrase|secret|token|credential|(?:api|private|access)[_ -]?key|community)"
    r"[^:=\n]*[:=][^\S\n]*).+$"
)
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What was shown, secrets taken out, and its SHA-256; `why_none` is "" when there is one."""

    text: str = ""
    digest: str = ""
    why_none: str = ""

    @property
    def fingerprint(self) -> int | None:
        """The first 48 bits of the digest, which a float holds exactly: equal figures are equal settings."""
        return int(self.digest[:12], 16) if self.digest else None


def show(hook: Sequence[str] | None) -> Settings:
    """Run the hook. Raises StepError when it cannot be started or hangs; a hook that fails is told, not raised."""
    if not hook:
        return Settings(why_none="the target has no hook show_settings")
    said = process.run(hook, _TIMEOUT_S)
    if said.returncode:
        return Settings(why_none=f"the hook show_settings ended with exit status {said.returncode}")
    if not said.stdout.strip():
        return Settings(why_none="the hook show_settings printed nothing")
    text = without_secrets(said.stdout)
    return Settings(text, digest(text))


def without_secrets(text: str) -> str:
    """Lines whose key speaks of a secret, with the value taken out. The digest is of what is left."""
    return _SECRET.sub(r"\1(removed)", text)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def declaration_digest(declared: Mapping[str, str]) -> str:
    """SHA-256 of the settings that the target declares, whatever their order; "" when it declares none."""
    return digest(json.dumps(dict(declared), sort_keys=True, ensure_ascii=False)) if declared else ""


def keep(settings: Settings, raw_dir: Path) -> None:
    """Write what was shown beside the other evidence."""
    if settings.text:
        (raw_dir / "settings.txt").write_text(settings.text)
