"""Short questions to an engine over HTTP, and clear answers when it does not give one. Never through a proxy."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

from kvbench.api_key import NO_KEY, ApiKey
from kvbench.errors import StepError

_TIMEOUT_S = 10.0
_SHOWN_CHARACTERS = 120  # of an answer that is quoted in an error
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def base_url(url: str) -> str:
    """An endpoint as people write it, without the path of the API. Raises StepError unless it is HTTP."""
    if not url.startswith(("http://", "https://")):
        raise StepError(f"{url!r} is not the address of an engine", "write it like http://host:8000")
    return url.rstrip("/").removesuffix("/v1")


def get(url: str, key: ApiKey = NO_KEY) -> str:
    """The body that is served there. Raises StepError when there is none."""
    return _ask(url, key)


def post(url: str, key: ApiKey = NO_KEY, document: Mapping[str, Any] | None = None) -> str:
    """The answer to a POST of JSON, or an empty one. Raises StepError when there is none."""
    data = b"" if document is None else json.dumps(document).encode()
    return _ask(url, key, data)


def answers(url: str) -> bool:
    """Whether something is served there with success."""
    try:
        get(url)
    except StepError:
        return False
    return True


def model_names(url: str, key: ApiKey = NO_KEY) -> list[str]:
    """The models that an endpoint serves. Raises StepError when it refuses, or does not speak OpenAI's API."""
    body = get(f"{url}/v1/models", key)
    try:
        return [str(model["id"]) for model in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StepError(
            f"{url}/v1/models does not answer as OpenAI's API does: {body[:_SHOWN_CHARACTERS]!r}",
            "is this the address of an inference engine?",
        ) from None


def _ask(url: str, key: ApiKey, posted: bytes | None = None) -> str:
    try:
        request = urllib.request.Request(url, posted)
        for name, value in key.headers.items():
            request.add_unredirected_header(name, value)  # another host is not told
        with _OPENER.open(request, timeout=_TIMEOUT_S) as response:
            return key.hide(response.read().decode(errors="replace"))  # what is kept as evidence, too
    except urllib.error.HTTPError as error:
        raise StepError(f"{url} answered with HTTP {error.code}: {key.hide(error.reason)}") from None
    except urllib.error.URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise StepError(f"{url} cannot be reached: {reason}", "is the engine running there?") from None
    except (HTTPException, ValueError) as error:
        raise StepError(f"{url} does not answer in HTTP: {type(error).__name__}: {error}") from None
    except OSError as error:
        raise StepError(f"{url} broke off: {error.strerror or error}") from None
