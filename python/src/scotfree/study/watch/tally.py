"""What came and what was refused: counted, and each kind of trouble said once."""

from __future__ import annotations

import sys
import threading
from collections import Counter

from scotfree.study.figures.words import counted
from scotfree.study.trouble import printable
from scotfree.study.watch.refusing import Refused, Why
from scotfree.study.watch.segments import Part


class Tally:
    """Numbers since the start, from all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.spans = 0
        self.rejected = 0
        self.bytes = 0
        self.requests = 0
        # Of what was kept: the oldest, by age and room, and what somebody else removed.
        self.dropped = Part()
        self.gone = Part()
        # Requests, by the name of the reason.
        self.refused: Counter[str] = Counter()
        # Of each reason how many had been taken when it was last met.
        self._taken_before: dict[str, int] = {}
        self._said: set[str] = set()

    def taken(self, spans: int, rejected: int, size: int) -> None:
        """A request whose spans are kept."""
        with self._lock:
            self.requests += 1
            self.spans += spans
            self.rejected += rejected
            self.bytes += size

    def drop(self, part: Part) -> None:
        """Of what was kept, the oldest no longer is."""
        with self._lock:
            self.dropped += part

    def lose(self, part: Part) -> None:
        """Of what was kept this was removed by others."""
        with self._lock:
            self.gone += part
        say(f"{_amount(part)} that were kept are gone: somebody removed their file; the rest goes on")

    def refuse(self, refused: Refused) -> None:
        """One that is not."""
        name = refused.why.name
        with self._lock:
            self.refused[name] += 1
            self._taken_before[name] = self.requests
        again = " (its sender is told to try again)" if refused.why.retry_after_s else ""
        self.say(name, f"a request is refused, {name}: {refused}{again}; others are only counted")

    def has_taken_since(self, why: Why) -> bool:
        """Whether a request was taken after the last that was refused for this."""
        with self._lock:
            return self.requests > self._taken_before.get(why.name, self.requests)

    def say(self, about: str, text: str) -> None:
        """Says it, if nothing was said about it, or since it was over."""
        with self._lock:
            is_new = about not in self._said
            self._said.add(about)
        if is_new:
            say(text)

    def over(self, about: str, text: str) -> None:
        """Says that what was said no longer holds."""
        with self._lock:
            was_said = about in self._said
            self._said.discard(about)
        if was_said:
            say(text)

    def text(self) -> str:
        """All of it in one line."""
        with self._lock:
            spans, requests = counted(self.spans, "span"), counted(self.requests, "request")
            parts = [f"{spans} received in {requests}, {self.bytes / 1e6:,.1f} MB"]
            if self.rejected:
                parts.append(f"{counted(self.rejected, 'span')} rejected")
            if self.dropped:
                parts.append(f"{_amount(self.dropped)} dropped as the oldest, by --keep or --max-bytes")
            if self.gone:
                parts.append(f"{_amount(self.gone)} gone")
            count = sum(self.refused.values())
            reasons = ", ".join(f"{times:,} {name}" for name, times in self.refused.most_common())
            parts.append(f"{counted(count, 'request')} refused ({reasons})" if count else "none refused")
            return "; ".join(parts)


def _amount(part: Part) -> str:
    return f"{counted(part.spans, 'span')} ({part.size / 1e6:,.1f} MB)"


def say(text: str) -> None:
    """A line of the log."""
    print(f"scot study watch: {printable(text)}", file=sys.stderr, flush=True)
