"""Front matter at the very beginning of a Markdown file: YAML between lines `---`, or TOML between lines `+++`.

It says something of a note. Values are what JSON has: numbers, true and false as YAML 1.2 or TOML writes them,
everything else as the text that it is, dates, too. Keys below a key are joined to it by dots. What is malformed,
or more than anybody writes by hand, is not believed in part: it stays text, with the reason.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any, Final

from scotfree.rag.trouble import needed
from scotfree.trouble import is_unicode

# Who writes by hand has some hundred bytes, and lists in lists at most.
BYTES_MAX: Final = 64 << 10
DEPTH_MAX: Final = 16
_BEGIN: Final = re.compile(r"(---|\+\+\+)[ \t]*\r?\n")
# Pandoc ends YAML with dots, too.
_ENDS: Final = {
    "---": re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\r?\n|\r?\Z)", re.MULTILINE),
    "+++": re.compile(r"^\+\+\+[ \t]*(?:\r?\n|\r?\Z)", re.MULTILINE),
}
# A line above a text is front matter if this follows, and else a line.
_KEYS: Final = {
    "---": re.compile(r"[\w.-]+:(?:\s|\Z)"),
    "+++": re.compile(r"""["']?[\w.-]+["']?[ \t]*=|\[+[ \t]*["']?[\w.-]+["']?[ \t]*\]"""),
}
# Keys below keys in TOML, of which the time to read grows with the square or worse.
_DEEP: Final = re.compile(rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{DEPTH_MAX}}}""")
# A number with a zero before it is no amount; of 18 digits every number is one to SQLite.
_WHOLE: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_WHOLE_MAX: Final = 10**18
# Of why TOML is none.
_SAID_LETTERS: Final = 80
_FRACTION: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True)
class Front:
    """Of a text."""

    # The letter at which the text below it begins; 0: it has no end.
    end: int
    metadata: dict[str, Any] = field(default_factory=dict)
    # Why it is text; then there are no metadata.
    doubt: str = ""


class _Refused(Exception):
    """Why it is no front matter."""


def read(text: str) -> Front | None:
    """What stands before a text; nothing, where nothing is meant to."""
    begin = _BEGIN.match(text)
    if not begin:
        return None
    mark = begin[1]
    inside = text[begin.end() : begin.end() + BYTES_MAX + 1]
    found = _ENDS[mark].search(inside)
    if not found or len(inside[: found.start()].encode()) > BYTES_MAX:
        is_meant = _KEYS[mark].match(inside)
        return Front(0, doubt=f"it has no end within {BYTES_MAX >> 10} KiB") if is_meant else None
    end = begin.end() + found.end()
    try:
        metadata = _READERS[mark](inside[: found.start()])
    except _Refused as error:
        return Front(end, doubt=str(error))
    return None if metadata is None else Front(end, metadata)


def _yaml(text: str) -> dict[str, Any] | None:
    """Nothing: it is a text between two lines."""
    value = _Yaml(text).value()
    if value is None or isinstance(value, dict):
        return _flat(value or {})
    if isinstance(value, list):
        raise _Refused("it is a list, not keys with their values")
    return None


def _toml(text: str) -> dict[str, Any] | None:
    """Nothing: it is a text between two lines."""
    if _DEEP.search(text):
        raise _too_deep()
    try:
        return _flat(_given(tomllib.loads(text.replace("\r\n", "\n"), parse_float=_fraction), 1))
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        if not _KEYS["+++"].search(text):
            return None
        raise _Refused(f"it is no TOML: {str(error).splitlines()[0][:_SAID_LETTERS]}") from None


_READERS: Final[dict[str, Callable[[str], dict[str, Any] | None]]] = {"---": _yaml, "+++": _toml}


def _flat(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    _flatten("", value, found, is_list=False)
    return found


def _too_deep() -> _Refused:
    return _Refused(f"its values lie more than {DEPTH_MAX} deep in each other")


def _given(value: Any, depth: int) -> Any:
    """What TOML says, as `_flatten` takes it."""
    if depth > DEPTH_MAX:
        raise _too_deep()
    if isinstance(value, dict):
        return {key: _given(below, depth + 1) for key, below in value.items()}
    if isinstance(value, list):
        return [_given(each, depth + 1) for each in value]
    return _Given(value)


def _fraction(text: str) -> str | float:
    number = float(text.replace("_", ""))
    return number if math.isfinite(number) else text


@dataclass(frozen=True)
class _Given:
    said: Any

    def value(self) -> str | int | float | bool:
        """A date or a time is text, and so is a number that SQLite has not."""
        said: Any = self.said
        if isinstance(said, date | datetime | time):
            return said.isoformat()
        is_huge = isinstance(said, int) and abs(said) >= _WHOLE_MAX
        return str(said) if is_huge else said


class _Yaml:
    """A text as values; `_Refused` says why not. Nothing is made of it but texts, numbers, lists and dicts."""

    def __init__(self, text: str) -> None:
        self._yaml = needed("yaml", "rag")
        # libyaml, where the package has it: a tenth of the time.
        loader = getattr(self._yaml, "CSafeLoader", self._yaml.SafeLoader)
        self._events = self._yaml.parse(text, Loader=loader)

    def value(self) -> Any:
        """Of the only document that there is; none, if it is empty."""
        yaml = self._yaml
        value = None
        try:
            for event in self._events:
                if isinstance(event, yaml.NodeEvent):
                    if value is not None:
                        raise _Refused("it is several, one after another")
                    value = self._node(event, 1)
        except yaml.YAMLError as error:
            raise _Refused(f"it is no YAML: {getattr(error, 'problem', None) or 'it has odd letters'}") from None
        return value

    def _node(self, event: Any, depth: int) -> Any:
        # A few letters could become anything by them.
        if isinstance(event, self._yaml.AliasEvent) or event.anchor or event.tag:
            raise _Refused("it has anchors, aliases or tags")
        if depth > DEPTH_MAX:
            raise _too_deep()
        if isinstance(event, self._yaml.ScalarEvent):
            return _Scalar(event.value, not event.style)
        values = [self._node(each, depth + 1) for each in self._inside()]
        if isinstance(event, self._yaml.SequenceStartEvent):
            return values
        keys = values[::2]
        if not all(isinstance(key, _Scalar) for key in keys):
            raise _Refused("a key in it is a list")
        return dict(zip((key.text for key in keys), values[1::2], strict=True))

    def _inside(self) -> Iterator[Any]:
        """The events of a list, or of keys and values by turns, to their end; each is to be read to its own."""
        for event in self._events:
            if isinstance(event, self._yaml.CollectionEndEvent):
                return
            yield event


@dataclass(frozen=True)
class _Scalar:
    text: str
    is_plain: bool

    def value(self) -> str | int | float | bool | None:
        """What is quoted is text."""
        text = self.text
        if not is_unicode(text):
            raise _Refused("it has halves of letters")
        if not self.is_plain:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _WHOLE.fullmatch(text):
            return int(text)
        if _FRACTION.fullmatch(text) and math.isfinite(number := float(text)):
            return number
        return text


def _flatten(key: str, value: Any, found: dict[str, Any], *, is_list: bool) -> None:
    """Adds the values below a key, by the keys that lead to them; what comes under one key again is a list."""
    if isinstance(value, dict):
        for name, below in value.items():
            _flatten(f"{key}.{name}" if key else name, below, found, is_list=is_list)
    elif isinstance(value, list):
        for each in value:
            _flatten(key, each, found, is_list=True)
    elif (said := value.value()) is not None:
        if key not in found:
            found[key] = [said] if is_list else said
        elif isinstance(found[key], list):
            found[key].append(said)
        else:
            found[key] = [found[key], said]
