"""A language model behind an address: OpenAI's chat completions, streamed, which most servers of models speak.

Invariant: the key is sent to the configured address and nowhere else: redirects are not followed, and no error
has it.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx2

from scotfree.rag import address
from scotfree.rag.generate.model import HangUp, Piece
from scotfree.rag.trouble import RagError

# The only place that a key is read from, unless another name is said.
KEY: Final = "SCOTFREE_LLM_KEY"
_DONE: Final = "[DONE]"
# Of what a server says when it refuses.
_REFUSAL_BYTES_MAX: Final = 1 << 16
# What newer models of OpenAI's take in place of a setting that older ones want; nothing, where they have none.
_INSTEAD: Final = {"max_tokens": "max_completion_tokens", "temperature": None}
_UNKNOWN_MODEL: Final = re.compile(
    r"(invalid|unknown|no such) model|model.*\b(not|no|unknown|invalid)\b", re.DOTALL
)
_ADDRESS: Final = "name the address of an OpenAI-compatible endpoint, as http://127.0.0.1:8080/v1"


@dataclass(frozen=True)
class Limits:
    """How long a server may take, in seconds: to take a connection, between two words, for all of an answer."""

    connect_s: float = 10.0
    # Before the first word it reads the whole prompt, which takes a small machine minutes.
    read_s: float = 300.0
    answer_s: float = 1800.0


@dataclass(frozen=True)
class _Refusal:
    """What a server says when it does not answer."""

    status: int
    said: str
    # The setting that it does not know.
    setting: str


class Endpoint:
    """A model of a server; safe to be used by several threads."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        key_name: str = KEY,
        limits: Limits | None = None,
        place: str = "",
    ) -> None:
        """`url` is what comes before /chat/completions.

        The key is that of the environment, where it is called `key_name`, unless it is given.
        """
        split = address.checked(url, "the language model", key_name, _ADDRESS)
        key = address.key_of(key_name) if key is None else address.checked_key(key, key_name)
        self.name = model
        self.place = place or url
        self._address = f"{url.rstrip('/')}/chat/completions"
        self._key = key
        self._key_name = key_name
        self._limits = limits or Limits()
        self._client = httpx2.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(self._limits.read_s, connect=self._limits.connect_s),
            # One connection for each answer, since hanging up ends it.
            limits=httpx2.Limits(max_keepalive_connections=0),
            # What stays on this machine goes through nobody's proxy.
            trust_env=not address.is_here(split.hostname or ""),
        )

    def close(self) -> None:
        """Ends its connections."""
        self._client.close()

    def stream(self, prompt: str, tokens_max: int, hang_up: HangUp | None = None) -> Generator[Piece, None, None]:
        """What the model writes, as it comes; a `RagError` says why there is no more."""
        asked = {
            "model": self.name,
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            "temperature": 0,
            "max_tokens": tokens_max,
        }
        hang_up = hang_up or HangUp()
        # A server may say time and again that it is there, and nothing else: no wait for its next word is long.
        late = threading.Timer(self._limits.answer_s, hang_up)
        late.daemon = True
        # Before the timer begins: what it ends has taken too long by this clock, too.
        began = time.monotonic()
        late.start()
        try:
            with self._told(), self._opened(asked, hang_up) as response:
                yield from self._pieces(response, began)
        except RagError:
            # What was ended from here broke off in some way or other.
            self._check_time(began)
            raise
        finally:
            late.cancel()

    @contextmanager
    def _opened(self, asked: dict[str, Any], hang_up: HangUp) -> Iterator[httpx2.Response]:
        """A response that streams; what the server does not know is left out when asking again."""
        watched = {"trace": _connected(hang_up)}
        for _ in range(1 + len(_INSTEAD)):
            with self._client.stream("POST", self._address, json=asked, extensions=watched) as response:
                if response.status_code == HTTPStatus.OK:
                    yield response
                    return
                refusal = self._refusal(response)
            if refusal.status != HTTPStatus.BAD_REQUEST or refusal.setting not in asked.keys() & _INSTEAD.keys():
                break
            value, instead = asked.pop(refusal.setting), _INSTEAD[refusal.setting]
            asked |= {instead: value} if instead else {}
        raise self._refused(refusal)

    def _pieces(self, response: httpx2.Response, began: float) -> Iterator[Piece]:
        ended, letters = "", 0
        try:
            for event in httpx2.EventSource(response):
                if event.data == _DONE:
                    ended = ended or "stop"
                    break
                self._check_time(began)
                chosen = self._choice(event.data)
                ended = chosen.get("finish_reason") or ended
                if (text := _text(chosen)) is not None:
                    letters += len(text)
                    yield Piece(text)
        except (httpx2.NetworkError, httpx2.RemoteProtocolError):
            # Whoever has said that it is done may go.
            pass
        if not ended:
            raise self._error(f"its answer broke off after {letters:,} letters", "ask again")
        yield Piece("", str(ended))

    def _check_time(self, began: float) -> None:
        if time.monotonic() - began > self._limits.answer_s:
            raise self._error(f"it was not done after {self._limits.answer_s:g} s", "ask for less")

    def _choice(self, data: str) -> dict[str, Any]:
        """The one answer of those that an event may have; empty, if the event says something else."""
        try:
            said = json.loads(data)
            if error := said.get("error"):
                raise self._error(f"it broke off: {self._shown(address.said(error))}", "ask again")
            first = (said["choices"] or [{}])[0]
            return {**first, "delta": dict(first.get("delta") or {})}
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self._error("what it streams is no chat completion", _ADDRESS) from None

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Says of what the library raises what it is about."""
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise self._error(f"nothing answers there: {error}", "start it, or name another") from None
        except httpx2.TimeoutException:
            raise self._error(
                f"it said nothing for {self._limits.read_s:g} s",
                "wait longer with --patience, or ask a faster one",
            ) from None
        except httpx2.SSEError as error:
            raise self._error(f"it does not stream chat completions: {error}", _ADDRESS) from None
        except httpx2.HTTPError as error:
            raise self._error(f"the connection failed: {self._shown(str(error))}", _ADDRESS) from None

    def _refusal(self, response: httpx2.Response) -> _Refusal:
        data = b""
        for part in response.iter_bytes():
            data += part
            if len(data) > _REFUSAL_BYTES_MAX:
                break
        try:
            said = json.loads(data)
            error = said.get("error", said)
            setting = error.get("param") if isinstance(error, dict) else None
            return _Refusal(response.status_code, self._shown(address.said(error)), str(setting))
        except (ValueError, AttributeError):
            return _Refusal(response.status_code, "", "")

    def _refused(self, refusal: _Refusal) -> RagError:
        status, said = refusal.status, refusal.said.lower()
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            # What it says may have part of the key.
            what = "it refuses the key" if self._key else "it wants a key"
            return self._error(what, f"put its key into {self._key_name}")
        if "context" in said:
            return self._error(refusal.said, "show it less: --letters")
        if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND) and _UNKNOWN_MODEL.search(said):
            return self._error(f"it has no model {self.name}: {refusal.said}", "name one that it has")
        if status == HTTPStatus.NOT_FOUND or status < HTTPStatus.BAD_REQUEST:
            return self._error(f"it has no chat completions there (HTTP {status})", _ADDRESS)
        return self._error(
            f"it answers HTTP {status}: {refusal.said or 'no reason'}", "ask again later, or another"
        )

    def _error(self, problem: str, advice: str) -> RagError:
        return RagError(f"ask the language model at {self.place}: {problem}", advice)

    def _shown(self, text: str) -> str:
        """Something that a server said, on one line, without the key."""
        return address.shown(text, self._key)


def _connected(hang_up: HangUp) -> Callable[[str, dict[str, Any]], None]:
    """Arranges that hanging up ends a connection as soon as it is there: before an answer has begun, too."""

    def trace(event: str, details: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            connection = details["return_value"].get_extra_info("socket")
            hang_up.arrange(lambda: _shut(connection))

    return trace


def _shut(connection: socket.socket) -> None:
    """Ends a connection that another thread reads, which finds its end."""
    with suppress(OSError):
        # Not its own method: that of TLS would take from under the reader what it reads with.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _text(choice: dict[str, Any]) -> str | None:
    """The letters of an event; none, if it is a thought that is not for the reader; nothing, if it is no token."""
    delta = choice["delta"]
    if content := delta.get("content"):
        return str(content)
    return "" if delta.get("reasoning_content") or delta.get("reasoning") else None
