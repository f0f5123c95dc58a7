"""Ctrl-C and SIGTERM: what is under way is taken down in order, and that one of them came is not lost.

An exception of a handler can be: DuckDB puts an error of its own in its place, and Python drops it in finalizers.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

INTERRUPTED: Final = 130
TERMINATED: Final = 143
# Until a signal that was dropped is given again: by then the finalizer is over.
_AGAIN_S: Final = 0.05


@dataclass
class Came:
    """Which signal came, if one did."""

    # The exit code that it asks for.
    code: int | None = None
    # That no exception tells of it.
    is_dropped: bool = False


@contextmanager
def heeded() -> Iterator[Came]:
    """Within, SIGINT raises `KeyboardInterrupt` as ever and SIGTERM `SystemExit`, unless somebody ignores them."""
    came = Came()
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    own = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: kept for number, plain in own.items() if (kept := signal.getsignal(number)) == plain}
    hook = sys.unraisablehook
    for number in before:
        signal.signal(number, _handler(came))
    sys.unraisablehook = _hook(came, hook)
    try:
        yield came
    finally:
        came.is_dropped = False
        sys.unraisablehook = hook
        for number, kept in before.items():
            signal.signal(number, kept)


def _handler(came: Came) -> Any:
    def handle(number: int, _frame: object) -> None:
        came.is_dropped = False
        if number == signal.SIGINT:
            came.code = INTERRUPTED
            raise KeyboardInterrupt
        came.code = TERMINATED
        raise SystemExit(TERMINATED)

    return handle


def _hook(came: Came, before: Any) -> Any:
    def drop(args: UnraisableHookArgs) -> None:
        if came.code is None or not issubclass(args.exc_type, KeyboardInterrupt | SystemExit):
            before(args)
            return
        came.is_dropped = True
        number = signal.SIGINT if came.code == INTERRUPTED else signal.SIGTERM
        threading.Timer(_AGAIN_S, _again, (came, number)).start()

    return drop


def _again(came: Came, number: int) -> None:
    """To the main thread, unless the program has ended by itself or another signal came."""
    if came.is_dropped and (main := threading.main_thread().ident) is not None:
        signal.pthread_kill(main, number)
