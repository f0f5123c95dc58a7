"""A process that lives for one command: what Python does for those that live long it need not pay for.

Of a report of twenty traces that was a sixth of the processor time: looking for cycles among the modules that it
imports, again and again, and taking all of them apart at the end.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from contextlib import suppress
from typing import Final, NoReturn

# New objects between two looks for cycles; Python's own 700 looks a thousand times while libraries are imported.
_NEW_OBJECTS: Final = 50_000


def begin() -> None:
    """Before anything is imported that takes long."""
    gc.set_threshold(_NEW_OBJECTS)


def leave(code: int) -> NoReturn:
    """Ends the process with this code once its threads have ended and what was to be done at the end is done.

    What libraries hold is not taken apart: the system frees it.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # Whoever does not read was told so where it was written; a program may have no streams.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
