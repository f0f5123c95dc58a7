"""Documents and their passages in one SQLite file; what changed since the last snapshot, too.

A change is one transaction that is on the disk when it returns: whoever is killed after it finds it again. The
codes are made from here and can be made anew.

Invariants: a passage's number is never given twice, so that a snapshot's rows say for ever which text they are of.
A document says which passages are its own, in runs, of which most have one: an index of them would take 11 bytes a
passage.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from scotfree import _native
from scotfree.rag import damage, decoding, filters, outline
from scotfree.rag.documents import Document
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.filters import EVERYTHING, Term
from scotfree.rag.outline import NONE, Outline
from scotfree.rag.reader import Reader
from scotfree.rag.splitting import Passage
from scotfree.rag.trouble import RagError

_VERSION: Final = 3
# Of a file without outlines and places, which are added to it: then it is read and written as the others are.
_UNPLACED: Final = 2
# Of SQLite's files that are ours.
_APPLICATION: Final = 0x53434F54
# For how long a change of another process is waited for.
_PATIENCE_S: Final = 10
# Of an index, beside the file: what is searched.
SNAPSHOTS: Final = "codes-*"
# Of what is damaged so much is named.
_DAMAGES_MAX: Final = 5
# Of the file's pages so much is kept in memory for searches: twice what SQLite keeps unasked.
_PAGES_KIB: Final = 4096
# Filters of which the answer is kept: of each an eighth of a byte a passage.
_FILTERS_MAX: Final = 16
# A word that so many passages have is a name of something, or nearly; of a question so many words are looked at.
_RARE_MAX: Final = 3
_WORDS_MAX: Final = 64
# Numbers in one statement: SQLite's own limit is far above.
_MANY: Final = 500

_SCHEMA: Final = """
create table if not exists document (
    id integer primary key, name text unique not null, digest blob not null, metadata text not null,
    passages text not null default '[]', outline text not null default ''
);
create table if not exists passage (
    id integer primary key autoincrement, document integer not null, start integer not null, text text not null,
    place integer
);
create virtual table if not exists words using fts5 (text, content = 'passage', content_rowid = 'id');
create trigger if not exists words_added after insert on passage begin
    insert into words (rowid, text) values (new.id, new.text);
end;
create trigger if not exists words_gone after delete on passage begin
    insert into words (words, rowid, text) values ('delete', old.id, old.text);
end;
create table if not exists pending (
    passage integer primary key references passage on delete cascade, embedding blob not null
);
create table if not exists gone (passage integer primary key);
create table if not exists setting (name text primary key, value blob not null);
"""


# What a file of before has not.
_PLACED: Final = (
    ("document", "outline", "text not null default ''"),
    ("passage", "place", "integer"),
)
# Of every table the columns that are read.
_SHAPES: Final = (
    "select id, name, digest, metadata, passages, outline from document limit 0",
    "select id, document, start, text, place from passage limit 0",
    "select rowid, text from words limit 0",
    "select passage, embedding from pending limit 0",
    "select passage from gone limit 0",
    "select name, value from setting limit 0",
    "select name, seq from sqlite_sequence limit 0",
)
# The greatest number that a passage was ever given.
_LAST: Final = "select seq from sqlite_sequence where name = 'passage'"
# What no program of ours writes: passages without a document or a text.
_LOST: Final = (
    "select count(*) from passage where typeof(text) != 'text' or typeof(start) != 'integer'"
    " or typeof(place) not in ('integer', 'null') or document not in (select id from document)"
)
# No number of an embedding of length one is greater; what is no number is not less either.
_VALUE_MAX: Final = 1.01
# Of passages, whose numbers are one value, as JSON.
_AMONG: Final = "passage.id in (select value from json_each(?))"
_THESE: Final = "passage in (select value from json_each(?))"
# By a document's name.
_RUNS: Final = "select passages from document where name = ?"
# Documents by their numbers, which are one value, as JSON.
_CHOSEN: Final = "document.id in (select value from json_each(:chosen))"
# Documents in whose metadata there is a zero letter, at which SQLite cuts texts.
_CUT: Final = r"metadata like '%\u0000%'"
# By which the same text is looked for.
_BEGIN_LETTERS: Final = 200
# What SQLite writes of a row of a numbered text beside the text: the header's length, its columns' kinds.
_ROW_BYTES: Final = 4


# Of documents: what their metadata are to be (see `filters`); or a function of name and metadata.
Function = Callable[[str, dict[str, Any]], bool]
Where = Mapping[str, Any] | Function
# The same, read.
Wanted = Term | Function
Known = TypeVar("Known")


class Text(NamedTuple):
    """A passage with its document."""

    number: int
    document: str
    start: int
    text: str
    metadata: dict[str, Any]
    # Which line, page or cell it begins in, if its document has such, and what its document says of that.
    place: int | None = None
    outline: Outline = NONE
    # How many letters of what stands above it are embedded with it.
    above_letters: int = 0

    @property
    def location(self) -> str:
        """Where it begins, as `line 12` or `page 3`; nothing, where that is not known."""
        return f"{self.outline.unit} {self.place}" if self.outline.unit and self.place else ""

    @property
    def section(self) -> str:
        """The headings that it stands under."""
        return self.outline.section(self.start, self.start + len(self.text))

    @property
    def embedded(self) -> str:
        """What is embedded of it: its text, with what stands above it."""
        above = self.outline.above(self.start, self.above_letters) if self.above_letters else ""
        return joined(above, self.text)


def joined(above: str, text: str) -> str:
    """A text with what stands above it in front."""
    return f"{above}: {text}" if above else text


@dataclass(frozen=True)
class Sizes:
    """What the file's bytes are."""

    # Texts, with what a table of nothing but numbered texts would add to them.
    texts_bytes: int
    # The index of words.
    words_bytes: int
    # Pages that hold nothing.
    free_bytes: int
    # Documents' names, digests and metadata, where passages stand, and the file's own.
    others_bytes: int


@dataclass(frozen=True)
class Change:
    """A document that is not as it was."""

    document: Document
    digest: bytes
    # Passages that stay, by number, with where they stand.
    kept: dict[int, Passage] = field(default_factory=dict)
    # Those that were not there, what is embedded of each, and a row for each.
    new: list[Passage] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    embeddings: list[Vectors] = field(default_factory=list)


class Passages:
    """The file, open."""

    def __init__(self, path: Path) -> None:
        """Opens it, or makes it; a `RagError` says why it is none of ours."""
        self._path = path
        # How many letters of what stands above a passage are embedded with it.
        self.above_letters = 0
        # Of filters, with the version of the file that it is of; replaced whole, since searches share it.
        self._kept_outside: dict[Term, tuple[int, _native.PassageSet]] = {}
        try:
            # Changes have a connection of their own: nobody reads what is not committed yet.
            self._changes = sqlite3.connect(path, timeout=_PATIENCE_S, check_same_thread=False)
            with damage.stated(path):
                self._prepare()
                self._changes.execute("pragma foreign_keys = on")
                # A change that has returned survives the loss of power.
                self._changes.execute("pragma synchronous = full")
                # Also of what is read much later it is known now that it is there.
                for statement in _SHAPES:
                    self._changes.execute(statement).fetchall()
            reading = sqlite3.connect(path, timeout=_PATIENCE_S, check_same_thread=False)
            reading.execute(f"pragma cache_size = -{_PAGES_KIB}")
            self._reader = Reader(reading, path)
            self._inode = _inode(path)
        except sqlite3.Error as error:
            raise RagError(
                f"open {path}: {error}",
                "name an index, or a folder in which to make one, that can be written and has room",
            ) from None

    @property
    def path(self) -> Path:
        """Of its file."""
        return self._path

    @property
    def is_in_place(self) -> bool:
        """Whether the file is at its place."""
        return _inode(self._path) == self._inode

    def check_place(self) -> None:
        """A `RagError` says that the file is not at its place any more, that another is, or that it is closed."""
        if self._reader.is_closed:
            raise RagError(f"change the index {self._path.parent}: it is closed", "open it again")
        if not self.is_in_place:
            tried = f"change the index {self._path.parent}"
            raise RagError(f"{tried}: it was moved or another put in its place", "open it again, where it is now")

    def _prepare(self) -> None:
        path = self._path
        application, version, tables = (
            self._changes.execute(f"select * from {of}").fetchone()[0]
            for of in ("pragma_application_id", "pragma_user_version", "(select count(*) from sqlite_master)")
        )
        if tables and (application, version) not in ((_APPLICATION, _VERSION), (_APPLICATION, _UNPLACED)):
            raise RagError(f"open {path}: it is no file of passages of version {_VERSION}", "name another folder")
        if not tables:
            if any(path.parent.glob(SNAPSHOTS)):
                raise RagError(
                    f"open {path}: it is empty, though codes lie beside it",
                    "put back what it was, or name another",
                )
            # Before anything is written: what `settle` forgets, the file system gets back.
            self._changes.execute("pragma auto_vacuum = incremental")
        self._changes.execute("pragma journal_mode = wal")
        if not tables:
            marks = f"pragma application_id = {_APPLICATION}; pragma user_version = {_VERSION};"
            # Another process may be making it, too.
            self._changes.executescript(f"begin immediate; {_SCHEMA} {marks} commit;")
        elif version == _UNPLACED:
            self._add_places()

    def _add_places(self) -> None:
        """What was written before says nothing of its places, and programs of then go on with the file."""
        with self._writing():
            self._changes.execute("begin immediate")
            for table, column, kind in _PLACED:
                found = self._changes.execute("select name from pragma_table_info(?)", [table]).fetchall()
                if (column,) not in found:
                    self._changes.execute(f"alter table {table} add column {column} {kind}")

    def close(self) -> None:
        """Ends it."""
        self._reader.close()
        self._changes.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction."""
        with damage.stated(self._path), self._changes:
            yield

    def setting(self, name: str) -> bytes | None:
        """What is known of the index by that name."""
        rows = self._reader.rows("select value from setting where name = ?", [name])
        if rows and not isinstance(rows[0][0], bytes):
            raise self._damaged(f"what it says of its {name}")
        return rows[0][0] if rows else None

    def known(self, name: str, read: Callable[[bytes], Known]) -> Known | None:
        """The same as `read` reads it; a `RagError` says that it is damaged, if that cannot."""
        said = self.setting(name)
        if said is None:
            return None
        with damage.reading(self._path, f"what it says of its {name}"):
            return read(said)

    def make_known(self, name: str, value: bytes) -> None:
        """Makes it known."""
        with self._writing():
            self._changes.execute("insert or replace into setting values (?, ?)", [name, value])

    def version(self) -> int:
        """Another one, when something has changed."""
        return int(self._reader.value("pragma data_version"))

    def metadata(self, keys_max: int, values_max: int) -> dict[str, list[Any]]:
        """The keys that documents have, and of each its values; of both the most frequent first.

        Not those that begin with `_` or `$`: a library's own tell nobody anything, and no filter has the others.
        """
        rows = self._reader.rows(
            "select key, atom, sum(count(*)) over (partition by key) as many from document, json_each(metadata)"
            " where atom is not null and instr(key, '\"') = 0 and substr(key, 1, 1) not in ('_', '$')"
            " group by key, atom order by many desc, key, count(*) desc, atom"
        )
        found: dict[str, list[Any]] = {}
        for key, value, _ in rows:
            values = found.setdefault(key, []) if key in found or len(found) < keys_max else []
            if len(values) < values_max:
                values.append(value)
        return found

    def documents(self) -> dict[str, bytes]:
        """The digest of every document."""
        rows = self._reader.rows("select name, digest from document")
        # One whose digest is damaged is not as any file is, and so read again.
        return {self._name(name): said if isinstance(said, bytes) else b"" for name, said in rows}

    def texts_of(self, name: str) -> dict[tuple[str, str], list[int]]:
        """The numbers of a document's passages, by their text, which may stand twice, and what is embedded."""
        found: dict[tuple[str, str], list[int]] = {}
        for text in self._texts(_AMONG, [json.dumps(self._numbers(name))]):
            found.setdefault((text.text, text.embedded), []).append(text.number)
        return found

    def _numbers(self, name: str) -> list[int]:
        """Of a document's passages."""
        rows = self._reader.rows(_RUNS, [name])
        return self._spread(rows, self._reader.value(_LAST))

    def _numbers_changed(self, name: str) -> list[int]:
        """As a change sees them that is not committed yet."""
        rows = self._changes.execute(_RUNS, [name]).fetchall()
        last = self._changes.execute(_LAST).fetchone()
        return self._spread(rows, last[0] if last else None)

    def _spread(self, rows: Sequence[Any], last: Any) -> list[int]:
        """The numbers in documents' runs, of which none is beyond the last that was given."""
        numbers: list[int] = []
        with damage.reading(self._path, "which passages a document has"):
            for first, count in (run for row in rows for run in json.loads(row[0])):
                # Before so many are made.
                damage.number(first + count - 1)
                if not 0 < count <= last - damage.number(first) + 1:
                    raise ValueError
                numbers += range(first, first + count)
        return numbers

    def _metadata(self, text: Any) -> dict[str, Any]:
        with damage.reading(self._path, "what it says of a document"):
            return decoding.metadata(text)

    def _name(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self._damaged("the name of a document")
        return value

    def _checked(self, rows: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """The passages' numbers that rows begin with."""
        with damage.reading(self._path, "the number of a passage"):
            return np.fromiter((damage.number(row[0]) for row in rows), np.uint32, len(rows))

    def _damaged(self, what: str) -> RagError:
        return damage.damaged(self._path, what)

    def put(self, changes: Iterable[Change], moved: Mapping[str, str] = MappingProxyType({})) -> dict[str, int]:
        """Writes documents as they are now: all of them or, if it is killed, none.

        `moved` are documents that have other names now. Returns the numbers of passages that were not there by
        what was embedded of them.
        """
        numbers: dict[str, int] = {}
        with self._writing():
            self._changes.executemany(
                "update document set name = ?2 where name = ?1", [[name, new] for name, new in moved.items()]
            )
            self._check_room()
            for change in changes:
                numbers |= self._put(change)
        return numbers

    def _check_room(self) -> None:
        """A passage of a number that nobody gave would leave none for those that follow."""
        last = self._changes.execute(f"select max(id) from passage union all {_LAST}").fetchall()
        with damage.reading(self._path, "the number of a passage"):
            for (value,) in last:
                damage.number(1 if value is None else value + 1)

    def _put(self, change: Change) -> dict[str, int]:
        before = self._numbers_changed(change.document.name)
        document = self._document(change.document, change.digest)
        self._changes.executemany(
            "update passage set start = ?, place = ? where id = ?",
            [[passage.start, passage.place, number] for number, passage in change.kept.items()],
        )
        self._drop(number for number in before if number not in change.kept)
        new = [self._add(document, *one) for one in zip(change.new, change.embeddings, strict=True)]
        self._changes.execute(
            "update document set passages = ? where id = ?",
            [json.dumps(_runs(sorted([*change.kept, *new])), separators=(",", ":")), document],
        )
        return dict(zip(change.texts, new, strict=True))

    def _document(self, document: Document, digest: bytes) -> int:
        said = json.dumps(document.metadata, ensure_ascii=False, sort_keys=True)
        row = self._changes.execute(
            "insert into document (name, digest, metadata, outline) values (?1, ?2, ?3, ?4)"
            " on conflict (name) do update set digest = ?2, metadata = ?3, outline = ?4 returning id",
            [document.name, digest, said, document.outline.written()],
        ).fetchone()
        return int(row[0])

    def _add(self, document: int, passage: Passage, embedding: Vectors) -> int:
        row = self._changes.execute(
            "insert into passage (document, start, text, place) values (?, ?, ?, ?) returning id",
            [document, passage.start, passage.text, passage.place],
        ).fetchone()
        self._changes.execute(
            "insert into pending values (?, ?)", [row[0], np.asarray(embedding, np.float32).tobytes()]
        )
        return int(row[0])

    def unsettled(self) -> list[int]:
        """The numbers of passages that no snapshot has."""
        numbers: list[int] = self.pending().tolist()
        return numbers

    def embedding(self, number: int) -> Vectors | None:
        """That of a passage which no snapshot has."""
        rows = self._reader.rows("select embedding from pending where passage = ?", [number])
        with damage.reading(self._path, "an embedding in it"):
            return np.frombuffer(rows[0][0], np.float32) if rows else None

    def remove(self, names: Sequence[str]) -> int:
        """Forgets documents, all of them or, if it is killed, none; returns how many there were."""
        with self._writing():
            return sum(self._remove(name) for name in names)

    def _remove(self, name: str) -> int:
        self._drop(self._numbers_changed(name))
        return self._changes.execute("delete from document where name = ?", [name]).rowcount

    def _drop(self, passages: Iterable[int]) -> None:
        rows = [[passage] for passage in passages]
        self._changes.executemany("insert or ignore into gone values (?)", rows)
        self._changes.executemany("delete from passage where id = ?", rows)

    def places(self) -> Iterator[tuple[int, str, int]]:
        """Of every passage its number, its document and the letter at which it begins."""
        for number, name, start in self._reader.each(
            "select passage.id, name, start from passage join document on document.id = document"
            " where passage.id > ? order by passage.id"
        ):
            if type(start) is not int:
                raise self._damaged("where a passage begins")
            yield number, self._name(name), start

    def sizes(self) -> Sizes:
        """What the file's bytes are; a `RagError` says that SQLite was built without what tells it."""
        try:
            rows = self._reader.rows("select name, sum(pgsize), sum(payload) from dbstat group by name")
        except (RagError, sqlite3.Error) as error:
            raise RagError(f"say what an index takes: {error}", "take a Python whose SQLite has dbstat") from None
        letters, pages, free, page_bytes = (
            self._reader.value(f"select * from {of}")
            for of in (
                "(select coalesce(sum(length(cast(text as blob))), 0) from passage)",
                "pragma_page_count",
                "pragma_freelist_count",
                "pragma_page_size",
            )
        )
        sizes = {name: (whole, payload) for name, whole, payload in rows}
        whole, payload = sizes["passage"]
        # Of a row its document and where it begins.
        places = max(0, payload - letters - _ROW_BYTES * self.count())
        words = sum(whole for name, (whole, _) in sizes.items() if name.startswith("words"))
        texts, free_bytes = whole - places, free * page_bytes
        return Sizes(texts, words, free_bytes, pages * page_bytes - free_bytes - texts - words)

    def damages(self, *, with_words: bool) -> list[str]:
        """What of the file is not as it was written, in SQLite's words; none: it is whole.

        `with_words`: the index of words is compared with the texts, for which nobody else may write meanwhile.
        """
        found: list[str] = []
        # One of its own: nothing that others change is undone.
        connection = sqlite3.connect(self._path, timeout=_PATIENCE_S)
        try:
            found = [str(row[0]) for row in connection.execute(f"pragma integrity_check({_DAMAGES_MAX})")]
            if with_words:
                connection.execute("insert into words (words, rank) values ('integrity-check', 1)")
        except sqlite3.DatabaseError as error:
            found.append(str(error))
        finally:
            connection.rollback()
            connection.close()
        found = [*(one for one in found if one != "ok"), *self._wrong(is_alone=with_words)]
        advice = "remove the index's folder and index again: your files are as they were"
        return [f"{self._path.name}: {one}; {advice}" for one in found]

    def _wrong(self, *, is_alone: bool) -> list[str]:
        """What SQLite takes for whole, and no program of ours writes."""
        try:
            if lost := self._reader.value(_LOST):
                return [f"{lost:,} passages have no text, no place or no document"]
            runs = []
            for _, *row, passages in self._reader.each(
                "select id, name, metadata, outline, passages from document where id > ? order by id"
            ):
                # Read as a search reads them.
                self._read([(1, row[0], 0, "", row[1], None, row[2])])
                runs.append((passages,))
            owned = sorted(self._spread(runs, self._reader.value(_LAST)))
            if is_alone and owned != self.numbers().tolist():
                return ["which passages a document has is not what there is"]
            self.gone()
        except RagError as error:
            return [error.problem]
        return []

    def numbers(self) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Of all passages, in their order."""
        return self._checked(self._reader.rows("select id from passage order by id"))

    def count(self) -> int:
        """How many passages there are."""
        return int(self._reader.value("select count(*) from passage"))

    def is_empty(self) -> bool:
        """Whether there are no documents."""
        return self._reader.value("select 1 from document limit 1") is None

    def gone(self) -> set[int]:
        """Passages that a snapshot may still have."""
        return set(self._checked(self._reader.rows("select passage from gone")).tolist())

    def pending(self) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Passages that no snapshot has, in their order."""
        return self._checked(self._reader.rows("select passage from pending order by passage"))

    def pending_embeddings(self, dimensions: int) -> tuple[np.ndarray[Any, np.dtype[np.uint32]], Vectors]:
        """The same with a row for each."""
        rows = self._reader.rows("select passage, embedding from pending order by passage")
        numbers = self._checked(rows)
        return numbers, self._vectors([row[1] for row in rows], dimensions)

    def embeddings(self, numbers: Sequence[int], dimensions: int) -> Vectors:
        """The embeddings of passages that no snapshot has, in the order of these; of others none."""
        found: dict[int, bytes] = {}
        for at in range(0, len(numbers), _MANY):
            part = json.dumps(numbers[at : at + _MANY])
            found.update(self._reader.rows(f"select passage, embedding from pending where {_THESE}", [part]))
        return self._vectors([found[number] for number in numbers if number in found], dimensions)

    def _vectors(self, blobs: Sequence[Any], dimensions: int) -> Vectors:
        if any(not isinstance(blob, bytes) or len(blob) != 4 * dimensions for blob in blobs):
            raise self._damaged("an embedding in it")
        vectors = np.frombuffer(b"".join(blobs), np.float32).reshape(-1, dimensions)
        if not (np.abs(vectors) <= _VALUE_MAX).all():
            raise self._damaged("an embedding in it")
        return vectors

    def with_words(self, question: str, count: int) -> list[int]:
        """Passages that have words of a question, the rarest and most frequent in them first (BM25)."""
        words = re.findall(r"\w+", question)
        if not words:
            return []
        # Quoted: a question has no operators.
        asked = " OR ".join(f'"{word}"' for word in dict.fromkeys(words))
        rows = self._reader.rows(
            "select rowid from words where words match ? order by bm25(words), rowid limit ?", [asked, count]
        )
        found: list[int] = self._checked(rows).tolist()
        return found

    def with_names(self, question: str) -> set[int]:
        """Passages that have a name of a question: a word with a digit or `_` that few passages have."""
        found: set[int] = set()
        for word in list(dict.fromkeys(re.findall(r"\w*[\d_]\w*", question)))[:_WORDS_MAX]:
            asked = [f'"{word}"', _RARE_MAX + 1]
            rows = self._reader.rows("select rowid from words where words match ? limit ?", asked)
            if len(rows) <= _RARE_MAX:
                found |= {row[0] for row in rows}
        return found

    def with_text(self, text: str) -> list[int]:
        """Passages that are this text, as far as it has words: those of which the first words find it."""
        # No word is cut in two, and what ends a question for SQLite is not in it.
        begin = text[:_BEGIN_LETTERS].rpartition(" ")[0] if len(text) > _BEGIN_LETTERS else text
        words = (begin or text).partition("\0")[0]
        if not re.search(r"\w", words):
            return []
        asked = '"' + words.replace('"', '""') + '"'
        rows = self._reader.rows(
            "select id from passage where id in (select rowid from words where words match ?) and text = ?",
            [asked, text],
        )
        return [row[0] for row in rows]

    def names(self, wanted: Wanted) -> list[str]:
        """Documents whose metadata are as is wanted."""
        condition, values = self._condition(wanted)
        rows = self._reader.rows(f"select name from document where {condition}", values)
        return [self._name(row[0]) for row in rows]

    def outside(self, wanted: Wanted) -> _native.PassageSet:
        """Passages of documents whose metadata are not as is wanted.

        Of some filters the answer is kept until something changes: who asks with one mostly asks with it again.
        """
        if wanted == EVERYTHING:
            return _native.PassageSet()
        if callable(wanted):
            return self._outside(wanted)
        # First: what is changed while the file is asked is seen the next time.
        version = self.version()
        of, found = self._kept_outside.get(wanted, (None, _native.PassageSet()))
        if of != version:
            found = self._outside(wanted)
            others = {filter: kept for filter, kept in self._kept_outside.items() if kept[0] == version}
            others.pop(wanted, None)
            self._kept_outside = dict(list(others.items())[1 - _FILTERS_MAX :]) | {wanted: (version, found)}
        return found

    def _outside(self, wanted: Wanted) -> _native.PassageSet:
        condition, values = self._condition(wanted)
        # By documents: asked of each of its passages a condition takes many times as long.
        said = self._reader.value(
            f"select group_concat(passages) from document where ({condition}) is not true", values
        )
        last = self._reader.value(_LAST)
        with damage.reading(self._path, "which passages a document has"):
            found = _native.PassageSet.of_runs(str(said or ""), 0 if last is None else damage.number(last))
            if found is None:
                raise ValueError
        return found

    def _condition(self, wanted: Wanted) -> tuple[str, dict[str, Any]]:
        """Of documents, in SQL, with its values."""
        if callable(wanted) or not filters.is_for_sql(wanted):
            return _CHOSEN, {"chosen": self._chosen("true", wanted)}
        condition, values = filters.in_sql(wanted)
        if not self._reader.rows(f"select 1 from document where {_CUT} limit 1"):
            return condition, values
        values["chosen"] = self._chosen(_CUT, wanted)
        return f"case when {_CUT} then {_CHOSEN} else {condition} end", values

    def _chosen(self, among: str, wanted: Wanted) -> str:
        """Of some documents the numbers of those that pass, as JSON."""
        rows = self._reader.each(f"select id, name, metadata from document where {among} and id > ? order by id")
        return json.dumps(
            [number for number, name, said in rows if passes(wanted, self._name(name), self._metadata(said))]
        )

    def settle(
        self, snapshot: str, passages: Sequence[int], gone: Iterable[int], more: Mapping[str, bytes]
    ) -> None:
        """A snapshot with these passages, without those that are gone, is what counts from now on.

        With it `more` is known of the index.
        """
        with self._writing():
            self._changes.executemany("delete from pending where passage = ?", [[one] for one in passages])
            self._changes.executemany("delete from gone where passage = ?", [[one] for one in gone])
            known = {"snapshot": snapshot.encode()} | dict(more)
            self._changes.executemany("insert or replace into setting values (?, ?)", list(known.items()))
        # What counts is written. On a full disk, say, the file stays as large as it is until the next time.
        with suppress(sqlite3.OperationalError):
            self._shrink()

    def _shrink(self) -> None:
        """Gives back what nothing stands in: embeddings that are settled are most of the file."""
        # As a script: a step of it moves a page, and a statement without columns is stepped once.
        self._changes.executescript("pragma incremental_vacuum")
        # While another process reads, the log stays until the next time: that is not waited for.
        self._changes.execute("pragma busy_timeout = 0")
        try:
            self._changes.execute("pragma wal_checkpoint(truncate)").fetchall()
        finally:
            self._changes.execute(f"pragma busy_timeout = {_PATIENCE_S * 1000}")

    def texts(self, numbers: Sequence[int]) -> dict[int, Text]:
        """Passages by their numbers."""
        found: dict[int, Text] = {}
        for at in range(0, len(numbers), _MANY):
            part = numbers[at : at + _MANY]
            texts = self._texts(f"passage.id in ({', '.join('?' * len(part))})", part)
            found |= {text.number: text for text in texts}
        return found

    def of_document(self, name: str) -> list[Text]:
        """The passages of a document in their order."""
        return self._texts(f"{_AMONG} order by start, passage.id", [json.dumps(self._numbers(name))])

    def _texts(self, condition: str, values: Sequence[int | str]) -> list[Text]:
        rows = self._reader.rows(
            "select passage.id, name, start, text, metadata, place, outline"
            f" from passage join document on document.id = document where {condition}",
            values,
        )
        return self._read(rows)

    def _read(self, rows: Sequence[Sequence[Any]]) -> list[Text]:
        try:
            return [self._text(row) for row in rows]
        except damage.WRONG:
            raise self._damaged("what it says of a document") from None

    def _text(self, row: Sequence[Any]) -> Text:
        """Of one row; one of `damage.WRONG` says that it is damaged."""
        number, document, start, text, metadata, place, written = row
        is_text = type(text) is str and type(start) is int and (place is None or type(place) is int)
        if not is_text or number >= 1 << 32:
            raise self._damaged("a passage in it")
        return Text(
            number,
            self._name(document),
            start,
            text,
            decoding.metadata(metadata),
            place,
            outline.read(written),
            self.above_letters,
        )


def read(where: Where) -> Wanted:
    """What is wanted of documents; a `RagError` says what of it is no filter."""
    return where if callable(where) else filters.read(where)


def passes(wanted: Wanted, name: str, metadata: Mapping[str, Any]) -> bool:
    """Whether a document of that name and metadata is as is wanted."""
    if callable(wanted):
        return wanted(name, deepcopy(dict(metadata)))
    return filters.passes(wanted, metadata)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        details = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return details.st_dev, details.st_ino


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Of growing numbers those that follow one another: the first, and how many."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == sum(found[-1]):
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found
