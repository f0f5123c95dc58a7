"""Files in a ZIP, as Word's documents and books are: no more is unpacked than a file may have."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable
from typing import Final
from xml.parsers import expat

from scotfree.rag.formats.content import Unread

# Files in one: who wrote it has hundreds.
FILES_MAX: Final = 10_000
# An element that is open takes more memory than its letters.
DEPTH_MAX: Final = 5_000
# What the list of them begins each with.
_ENTRY: Final = b"PK\x01\x02"


class Packed:
    """The files of one, read one by one; `Unread` says what is wrong."""

    def __init__(self, data: bytes, bytes_max: int) -> None:
        """Of all that is read of it `bytes_max` at most are unpacked."""
        if data.count(_ENTRY) > FILES_MAX:
            raise Unread(f"more than {FILES_MAX:,} files are packed in it")
        self._left = self._bytes_max = bytes_max
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            self._names = set(self._zip.namelist())
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise Unread(f"it cannot be unpacked: {error}") from None

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def read(self, name: str) -> bytes:
        """One of its files, whole."""
        if name not in self._names:
            raise Unread(f"there is no {name} in it")
        try:
            with self._zip.open(name) as file:
                data = file.read(self._left + 1)
        # As it is encrypted, or packed in a way that is unknown.
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError) as error:
            raise Unread(f"{name} in it cannot be unpacked: {error}") from None
        self._left -= len(data)
        if self._left < 0:
            raise Unread(f"it is larger than {self._bytes_max >> 20} MiB when unpacked")
        return data


Begin = Callable[[str, dict[str, str]], None]


def parse(
    name: str, data: bytes, begin: Begin, end: Callable[[str], None], letters: Callable[[str], None]
) -> None:
    """Tells of XML as it comes, names without their prefixes; nothing of it is kept, and no entity is believed."""
    depth = 0

    def began(tag: str, said: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEPTH_MAX:
            raise Unread(f"the elements of {name} in it lie more than {DEPTH_MAX:,} deep in each other")
        begin(_bare(tag), {_bare(key): value for key, value in said.items()})

    def ended(tag: str) -> None:
        nonlocal depth
        depth -= 1
        end(_bare(tag))

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = began, ended
    parser.CharacterDataHandler = letters
    parser.EntityDeclHandler = lambda *_: _refused(name)
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise Unread(f"{name} in it is no XML: {error}") from None


def _bare(name: str) -> str:
    return name.rpartition(":")[2]


def _refused(name: str) -> None:
    # A few of them are enough to become gigabytes.
    raise Unread(f"{name} in it declares entities")
