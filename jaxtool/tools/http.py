"""One JSON request to a search service: deadline, bounded retries, clean errors.  Host code.

A body comes in, the parsed answer comes out, or a ToolError whose words name neither host nor key.
"""

import json
import random
import threading
import time
from typing import Any

import requests

from jaxtool.shown import harmless
from jaxtool.tools.base import ToolError, ToolTimeout

MAX_TRIES = 4
MAX_BYTES = 4 * 2**20  # of an answer; top-k passages are some kilobytes
FIRST_WAIT_S = 0.25  # doubles with every try

_local = threading.local()  # a Session is not safe to share between threads; its connections are kept alive


def post_json(url: str, body: dict[str, Any], timeout_s: float, headers: dict[str, str] | None = None) -> Any:
    """Posts `body` and returns the parsed answer of a response with status 200.

    Status 429, 5xx and broken connections are tried again, at most MAX_TRIES times in all, after waits
    that double (with jitter, so that many rollouts do not come back at once) or that the server asks for
    by Retry-After; a wait that would pass the deadline is not begun.  Redirects are not followed: they
    would carry the headers, and so a key, to another host.

    Args:
        timeout_s: seconds for everything, waits included.
        headers: their values are kept out of every message.

    Raises:
        ToolTimeout: the time was over before an answer came.
        ToolError: the service cannot be reached, refuses, or its answer is no JSON.
    """
    headers = headers or {}
    deadline = time.monotonic() + timeout_s
    wait = FIRST_WAIT_S
    for last in [False] * (MAX_TRIES - 1) + [True]:
        asked = 0.0
        try:
            status, asked, text = _try(url, body, headers, deadline)
        except requests.Timeout:
            raise ToolTimeout(f"no answer within {timeout_s:g} s") from None
        except requests.ConnectionError as error:
            if time.monotonic() >= deadline:  # a body that stalls is reported as this error too
                raise ToolTimeout(f"no answer within {timeout_s:g} s") from None
            failure = ToolError("the service cannot be reached", type(error).__name__)
        except requests.exceptions.ChunkedEncodingError:
            failure = ToolError("the connection broke")
        except requests.RequestException as error:
            raise ToolError("the request failed", type(error).__name__) from None
        else:
            if status == 200:
                return _parse(text)
            failure = ToolError(f"HTTP status {status}", _without(headers, text))
            if status != 429 and status < 500:
                raise failure
        pause = max(asked, wait * random.uniform(0.5, 1.0))
        if last or time.monotonic() + pause >= deadline:
            raise failure
        time.sleep(pause)
        wait *= 2


def _try(url: str, body: dict, headers: dict[str, str], deadline: float) -> tuple[int, float, bytes]:
    """One request: (status, seconds of Retry-After or 0, body)."""
    if not hasattr(_local, "session"):
        _local.session = requests.Session()
    left = max(deadline - time.monotonic(), 1e-3)
    with _local.session.post(
        url, json=body, headers=headers, timeout=left, stream=True, allow_redirects=False
    ) as response:
        chunks, size = [], 0
        # The timeout above is for one read; small chunks let us look at the clock while a server dribbles.
        for chunk in response.iter_content(512):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BYTES:
                raise ToolError("the answer is too long", f"more than {MAX_BYTES} bytes")
            if time.monotonic() > deadline:
                raise requests.Timeout
        retry_after = response.headers.get("Retry-After", "")
        return response.status_code, float(retry_after) if retry_after.isdecimal() else 0.0, b"".join(chunks)


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, no Unicode, or nested beyond reason
        raise ToolError("the answer is not JSON", f"{len(text)} bytes") from None


def _without(headers: dict[str, str], text: bytes) -> str:
    """The beginning of a server's message, for the log, without the values of our headers."""
    message = text.decode("utf-8", "replace")
    for value in headers.values():
        message = message.replace(value, "***")
    return harmless(" ".join(message.split())[:200])
