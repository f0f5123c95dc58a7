"""Questions to a server that embeds: JSON there and back, asked again within bounds.

Invariant: texts and key are sent to the configured address and nowhere else: redirects are not followed, and no
error has the key.
"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

import httpx2

from scotfree.rag import address
from scotfree.rag.trouble import RagError

# The only place that a key is read from.
KEY: Final = "SCOTFREE_EMBED_KEY"
# How often one question is put, and how long at most to wait between two times, in seconds.
TRIES_MAX: Final = 5
PAUSE_S_MAX: Final = 60.0
# Before the second time; then twice as long each.
_PAUSE_S: Final = 0.5
# To take a connection; without a byte from there.
_CONNECT_S: Final = 10.0
_READ_S: Final = 120.0
_ANSWER_BYTES_MAX: Final = 64 << 20
_ADDRESS: Final = "name the address of an OpenAI-compatible endpoint, as http://127.0.0.1:11434/v1"
_WHOSE: Final = "the embedder's endpoint"


def is_here(url: str) -> bool:
    """Whether an address is this machine's; a `RagError`, if it is none."""
    return address.is_here(address.checked(url, _WHOSE, KEY, _ADDRESS).hostname or "")


class _Busy(Exception):
    """Worth asking again; after how many seconds, if it said."""

    def __init__(self, why: str, pause_s: float | None = None) -> None:
        super().__init__(why)
        self.pause_s = pause_s


class Asking:
    """A server, by its address; safe to be used by several threads."""

    def __init__(self, url: str, wait: Callable[[float], None]) -> None:
        """`wait` passes the seconds between two tries. A `RagError` says what is wrong with address or key."""
        is_private = is_here(url)
        self.url = url.rstrip("/")
        self._key, self._wait = address.key_of(KEY), wait
        if self._key and not is_private and not url.startswith("https:"):
            raise self.error(f"the key of {KEY} would be sent where others can read it", "name it with https")
        self._client = httpx2.Client(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx2.Timeout(_READ_S, connect=_CONNECT_S),
            # What stays on this machine goes through nobody's proxy.
            trust_env=not is_private,
        )

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """What it answers; a `RagError` says why it does not."""
        tried = 1
        while True:
            try:
                return self._parsed(self._answer(path, body))
            except _Busy as busy:
                pause = _PAUSE_S * 2 ** (tried - 1) if busy.pause_s is None else busy.pause_s
                if tried == TRIES_MAX or pause > PAUSE_S_MAX:
                    raise self._given_up(busy, tried) from None
                self._wait(pause)
            tried += 1

    def error(self, problem: str, advice: str) -> RagError:
        """A trouble with it."""
        return RagError(f"ask {_WHOSE} at {self.url}: {problem}", advice)

    def _answer(self, path: str, body: Mapping[str, Any]) -> bytes:
        try:
            with self._client.stream("POST", f"{self.url}/{path}", json=body) as response:
                data = self._read(response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise self.error(f"nothing answers there: {error}", "start it, or name another") from None
        except (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
            # Whoever hung up or said nothing may do better.
            raise _Busy(self._shown(str(error) or type(error).__name__)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self.error(f"the connection failed: {self._shown(str(error))}", _ADDRESS) from None
        if response.status_code != HTTPStatus.OK:
            raise self._refused(response, data)
        return data

    def _read(self, response: httpx2.Response) -> bytes:
        data = bytearray()
        for part in response.iter_bytes():
            data += part
            if len(data) > _ANSWER_BYTES_MAX:
                raise self.error(f"it answers more than {_ANSWER_BYTES_MAX:,} bytes", "name another")
        return bytes(data)

    def _refused(self, response: httpx2.Response, data: bytes) -> Exception:
        status, what = response.status_code, self._told(response, data)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            # What it says may have part of the key.
            return self.error("it refuses the key" if self._key else "it wants a key", f"put its key into {KEY}")
        if status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS) or status >= 500:
            return _Busy(what, _pause_s(response.headers.get("Retry-After")))
        if status < HTTPStatus.BAD_REQUEST:
            return self.error(f"{what}, {self._shown(response.headers.get('Location', ''))}", "name what it names")
        return self.error(what, "look whether address and model are named as its documentation has them")

    def _told(self, response: httpx2.Response, data: bytes) -> str:
        """What it says of itself, as OpenAI's protocol has it, or else as it stands."""
        text = data.decode(errors="replace")
        with suppress(ValueError, AttributeError):
            answer = json.loads(data)
            text = address.said(answer.get("error", answer))
        return f"it answers HTTP {response.status_code}: {self._shown(text) or response.reason_phrase}"

    def _given_up(self, busy: _Busy, tried: int) -> RagError:
        later = f", and asks to wait {busy.pause_s:.0f} s" if busy.pause_s else ""
        times = "once" if tried == 1 else f"{tried} times"
        return self.error(f"{busy}{later} (asked {times})", "try again later; what was done before is kept")

    def _parsed(self, data: bytes) -> Any:
        try:
            return json.loads(data)
        except ValueError:
            raise self.error("what it answers is no JSON", _ADDRESS) from None

    def _shown(self, text: str) -> str:
        return address.shown(text, self._key)


def _pause_s(said: str | None) -> float | None:
    """Of Retry-After: seconds, or a date."""
    if said is None:
        return None
    if said.strip().isdecimal():
        return float(said)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    except ValueError:
        return None
