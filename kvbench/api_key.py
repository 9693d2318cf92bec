"""The key of an endpoint that asks for one: from an environment variable into a request's header, and nowhere else."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kvbench.errors import UsageError

VARIABLE = "KVBENCH_API_KEY"
_HIDDEN = "(the API key)"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key, or none. It does not show when it is printed, and is taken out of what a server echoes."""

    _secret: str = field(default="", repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What a request carries."""
        return {"Authorization": f"Bearer {self._secret}"} if self._secret else {}

    def hide(self, text: str) -> str:
        """The text without the key."""
        return text.replace(self._secret, _HIDDEN) if self._secret else text


NO_KEY = ApiKey()


def from_environment(variable: str = "") -> ApiKey:
    """The key in `variable`; with no name given, in KVBENCH_API_KEY where that is set.

    Raises UsageError for a variable that was named and is not set, and for a key that no header can carry.
    """
    secret = os.environ.get(variable or VARIABLE, "").strip()
    if variable and not secret:
        raise UsageError(f"api_key_env: the environment has no {variable}", f"export {variable}=…")
    if not (secret.isascii() and secret.isprintable()):
        raise UsageError(f"the key in {variable or VARIABLE} has characters that no HTTP header can carry")
    return ApiKey(secret)
