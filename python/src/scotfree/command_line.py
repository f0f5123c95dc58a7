"""What `scot-study`, `scot-plan` and `scot-rag` have in common: commands as modules, and what errors come to.

Exit codes: 0 it did what it was asked; 1 a verdict (a budget exceeded); 2 what the user must change; 70 a fault of
the program's own, told with its traceback; 130 interrupted; 143 ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stderr, suppress
from dataclasses import dataclass
from typing import Final, Protocol, TextIO, TypeVar, cast

from scotfree import signals
from scotfree.signals import Came
from scotfree.trouble import UserError, printable

FAULT: Final = 70


class Command(Protocol):
    """A module of a program's `commands`."""

    HELP: str
    EXAMPLES: str

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Says the flags."""

    def run(self, flags: argparse.Namespace) -> int:
        """Does it; the exit code."""


@dataclass(frozen=True)
class Commands:
    """The commands of a program: modules of a package, of which only that one is imported which the words name.

    What they stand on takes seconds to import, and `--help` is not to wait for it: see `later`.
    """

    package: str
    # In the order of the help: the name of each, and what its module says as `HELP`.
    helps: Mapping[str, str]

    def load(self, name: str) -> Command:
        """The module of one."""
        return cast(Command, importlib.import_module(f"{self.package}.{name}"))

    def named(self, words: Sequence[str]) -> str | None:
        """Which one the words name, if they do."""
        first = next((word for word in words if not word.startswith("-")), None)
        return first if first in self.helps else None


def later(module: str) -> Callable[[argparse.Namespace], int]:
    """The `run` of a module that is imported when it runs: who only asks for its flags does not wait for it."""

    def run(flags: argparse.Namespace) -> int:
        return cast(int, importlib.import_module(module).run(flags))

    return run


# Says of an error of the system or of a library what the user can do; nothing, if it is a fault of ours.
Told = Callable[[Exception], UserError | None]


class Unheard:
    """Standard error, which a reader may close, such as `head`: what is said there is no result."""

    def __init__(self, stream: TextIO) -> None:
        """Around a stream that goes on to be used by nobody else."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Says it, if somebody reads."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            # What is left would be tried again at the end, with a code of Python's own.
            _silence(self._stream)
            return len(text)

    def flush(self) -> None:
        """As of any stream."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            _silence(self._stream)

    def __getattr__(self, name: str) -> object:
        """All else is the stream's."""
        return getattr(self._stream, name)


def _silence(stream: TextIO) -> None:
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run(program: str, description: str, commands: Commands, words: Sequence[str], told: Told) -> int:
    """Runs the command that the words name; returns the exit code."""
    heard = nullcontext() if sys.stderr is None else redirect_stderr(cast(TextIO, Unheard(sys.stderr)))
    with heard, signals.heeded() as came:
        return _run(program, description, commands, words, told, came)


def _run(program: str, description: str, commands: Commands, words: Sequence[str], told: Told, came: Came) -> int:
    named = commands.named(words)
    try:
        loaded = {} if named is None else {named: commands.load(named)}
    except KeyboardInterrupt:
        return interrupted(program)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names are the user's, and not every terminal has all letters.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        flags = parser_of(program, description, commands, loaded).parse_args(words)
    except SystemExit as ended:
        raise SystemExit(_flushed(program, ended.code, told)) from None
    # The parser takes no other word for a command than the one that was loaded.
    return _flushed(program, _code(program, loaded[flags.command], flags, told, came), told)


def _code(program: str, command: Command, flags: argparse.Namespace, told: Told, came: Came) -> int:
    try:
        code = command.run(flags)
        return _stopped(program, came) if came.is_dropped else code
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return interrupted(program)
    except Exception as error:
        if came.code is not None:
            # Whatever a library has made of it.
            return _stopped(program, came)
        if refused := error if isinstance(error, UserError) else told(error):
            return _refuse(program, refused)
        traceback.print_exc()
        print(
            f"{program}: a fault of its own: {printable(str(error))}; please report the lines above",
            file=sys.stderr,
        )
        return FAULT


def _stopped(program: str, came: Came) -> int:
    return interrupted(program) if came.code == signals.INTERRUPTED else signals.TERMINATED


def interrupted(program: str) -> int:
    """Says so; the exit code."""
    print(
        f"{program}: interrupted; the same command goes on with the store or index that this one was writing",
        file=sys.stderr,
    )
    return signals.INTERRUPTED


def in_help(text: object) -> str:
    """As argparse's help shows it as it stands: there `%` says that something is put in its place."""
    return str(text).replace("%", "%%")


Code = TypeVar("Code", int, int | str | None)


def _flushed(program: str, code: Code, told: Told) -> Code | int:
    """The code, if what was printed arrives; whoever does not want to read it changes nothing."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # As above.
        _silence(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return code
        return _refuse(program, told(error) or UserError(str(error), "write to another place"))
    return code


def _refuse(program: str, error: UserError) -> int:
    print(f"{program}: {printable(str(error))}", file=sys.stderr)
    return 2


def parser_of(
    program: str, description: str, commands: Commands, loaded: Mapping[str, Command]
) -> argparse.ArgumentParser:
    """What reads the words; it knows the flags of those commands that are loaded."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    names = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in commands.helps.items():
        command = loaded.get(name)
        added = names.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"Examples:\n{command.EXAMPLES}" if command else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command:
            command.add(added)
    return parser
