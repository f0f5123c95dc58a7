"""An address that answers JSON with JSON, as servers of models do: asked again within bounds, its key never told.

Nothing is sent anywhere else: who points to another address is not followed.
"""

from __future__ import annotations

import email.utils
import ipaddress
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPMessage, IncompleteRead
from typing import IO, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from scotfree.rag.trouble import RagError

# How often one question is put, and how long at most to wait between two times.
TRIES_MAX: Final = 5
PAUSE_S_MAX: Final = 60.0
# Before the second time; then twice as long each.
_PAUSE_S: Final = 0.5
# Without a byte from there.
_TIMEOUT_S: Final = 120.0
_ANSWER_BYTES_MAX: Final = 64 << 20
# Letters of what a server says that are shown.
_SHOWN_MAX: Final = 300
# It may do better a little later: too slow, too much, a fault of its own.
_REQUEST_TIMEOUT, _TOO_MANY, _FAULTS = 408, 429, 500
_NOT_LET_IN: Final = (401, 403)
_NOT_FOUND: Final = 404
_MOVED: Final = (300, 400)


class _Busy(Exception):
    """Worth asking again; after how many seconds, if it said."""

    def __init__(self, why: str, pause_s: float | None = None) -> None:
        super().__init__(why)
        self.pause_s = pause_s


class Endpoint:
    """An address of http or https; safe to be used by several threads."""

    def __init__(self, url: str, key_name: str, *, wait: Callable[[float], None] = time.sleep) -> None:
        """`key_name` is the environment variable whose key is sent with each question, if there is one.

        `wait` is what passes the seconds between two tries. A `RagError` says what is wrong with address or key.
        """
        parts = _split(url)
        self.url = url.rstrip("/")
        self._key_name = key_name
        self._key = _key(key_name)
        self._wait = wait
        self._opener = _opener(is_loopback(url))
        if self._key and parts.scheme == "http" and not is_loopback(url):
            raise RagError(
                f"ask {self.url}: the key of {key_name} would be sent where others can read it",
                "name an address that begins with https",
            )

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """What it answers; a `RagError` says why it does not."""
        tried = 1
        while True:
            try:
                return self._answer(path, body)
            except _Busy as busy:
                pause = _PAUSE_S * 2 ** (tried - 1) if busy.pause_s is None else busy.pause_s
                if tried == TRIES_MAX or pause > PAUSE_S_MAX:
                    raise self._given_up(busy, tried) from None
                self._wait(pause)
            tried += 1

    def error(self, problem: str, advice: str) -> RagError:
        """A trouble with it, in whose words the key is not, whatever the server said."""
        said = problem.replace(self._key, "…") if self._key else problem
        return RagError(f"ask {self.url}: {said}", advice)

    def _answer(self, path: str, body: Mapping[str, Any]) -> Any:
        request = Request(f"{self.url}/{path}", json.dumps(body).encode(), self._headers())
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                data = response.read(_ANSWER_BYTES_MAX + 1)
        except HTTPError as error:
            with error:
                raise self._refused(error) from None
        except (OSError, HTTPException) as error:
            raise self._unreached(error) from None
        return self._parsed(data)

    def _headers(self) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        return {"Content-Type": "application/json", "User-Agent": "scotfree", **bearer}

    def _refused(self, error: HTTPError) -> Exception:
        what = f"it answered {error.code}: {_message(error)}"
        if error.code in (_REQUEST_TIMEOUT, _TOO_MANY) or error.code >= _FAULTS:
            return _Busy(what, _pause_s(error.headers.get("Retry-After")))
        if error.code in _NOT_LET_IN:
            return self.error(what, f"put the key that it wants into the environment variable {self._key_name}")
        if error.code == _NOT_FOUND:
            return self.error(what, "look whether address and model are named as its documentation names them")
        if error.code in range(*_MOVED):
            return self.error(f"{what}, {error.headers.get('Location')}", "name the address that it points to")
        return self.error(what, "ask for what it takes")

    def _unreached(self, error: Exception) -> Exception:
        """Whoever hung up or said nothing may do better; whoever is not there is not there."""
        reason = error.reason if isinstance(error, URLError) else error
        what = str(reason) or type(reason).__name__
        if isinstance(reason, TimeoutError | ConnectionResetError | BrokenPipeError | IncompleteRead):
            return _Busy(what)
        return self.error(what, "look whether the address is right and its server runs")

    def _given_up(self, busy: _Busy, tried: int) -> RagError:
        later = f", and asks to wait {busy.pause_s:.0f} s" if busy.pause_s else ""
        return self.error(
            f"{busy}{later} (asked {tried} {'time' if tried == 1 else 'times'})",
            "try again later; what was done before is kept",
        )

    def _parsed(self, data: bytes) -> Any:
        if len(data) > _ANSWER_BYTES_MAX:
            raise self.error(f"it answers more than {_ANSWER_BYTES_MAX >> 20} MiB", "name another address")
        try:
            return json.loads(data)
        except ValueError:
            raise self.error("what it answers is no JSON", "look whether the address is right") from None


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own."""
    host = _split(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(url: str) -> SplitResult:
    """Its parts; what would be written down or shown with the address is no secret."""
    advice = "name an address as https://host/v1, without user, query or blanks: keys are not part of it"
    try:
        parts = urlsplit(url)
        is_plain = url.isascii() and url.isprintable() and " " not in url
        # Also whether the port is a number.
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise RagError("use the address of an endpoint: it is none", advice) from None
    if not is_plain or not is_whole or "@" in parts.netloc or parts.query or parts.fragment:
        raise RagError("use the address of an endpoint: it has other parts than host, port and path", advice)
    return parts


def _key(name: str) -> str:
    key = os.environ.get(name, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise RagError(f"use the key of {name}: it has letters that no key has", "set it anew")
    return key


class _Staying(HTTPRedirectHandler):
    """The key and the texts go to whom they are meant for."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Follows nobody."""


def _opener(is_own: bool) -> OpenerDirector:
    """What is this machine's own is asked without a proxy."""
    return build_opener(_Staying, *([ProxyHandler({})] if is_own else []))


def _message(error: HTTPError) -> str:
    """What it says of itself: as OpenAI's protocol has it, or else as it stands."""
    try:
        data = error.read(_ANSWER_BYTES_MAX)
    except (OSError, HTTPException):
        return error.reason
    text = data.decode(errors="replace")
    with suppress(ValueError, KeyError, TypeError):
        text = json.loads(data)["error"]["message"]
    return " ".join(str(text).split())[:_SHOWN_MAX] or error.reason


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
