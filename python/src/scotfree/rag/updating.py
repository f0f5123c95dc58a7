"""Documents put into an index in place of those of their names: only what was not there is embedded, and once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from scotfree.rag.documents import Document
from scotfree.rag.embed.batches import BATCH_PASSAGES
from scotfree.rag.embed.embedder import Embedder, Vectors
from scotfree.rag.known_texts import KnownTexts
from scotfree.rag.outline import NONE
from scotfree.rag.passages import Change, Passages, joined
from scotfree.rag.placement.stored import Stored
from scotfree.rag.splitting import Cut, Splitter
from scotfree.rag.trouble import RagError

# Documents that are given other names in one transaction, at most.
_MOVED_MAX: Final = 500
# Of the time that a document takes, what cutting it into passages does.
_CUT_SHARE: Final = 0.05


@dataclass(frozen=True)
class Changes:
    """What an update did."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    same: int = 0
    # Under another name now, and otherwise as they were.
    moved: int = 0
    # Passages that were embedded: those whose text was not there.
    embedded: int = 0


class Update:
    """Puts documents into the passages of an index, whose embedder embeds what was not there."""

    def __init__(self, passages: Passages, embedder: Embedder, cut: Cut, stored: Callable[[], Stored]) -> None:
        self._passages = passages
        self._embedder = embedder
        self._splitter = Splitter(embedder, cut)
        self._known = KnownTexts(passages, embedder, stored)
        # Documents whose names are others now, which is not written yet, with what is told of each.
        self._moved: dict[str, Document] = {}

    def put(
        self,
        documents: Iterable[Document],
        progress: Callable[[Document], None],
        is_gone: Callable[[str], bool] = lambda _: False,
        part: Callable[[Document, float], None] = lambda *_: None,
    ) -> Changes:
        """Puts documents in, some at a time, each group in one transaction; `progress` is told of each then.

        `part` is told now and then how much of a document is cut and embedded, as a share of one.
        What is the same as a document of which `is_gone` says so takes its passages over.
        """
        counts = dict.fromkeys(("added", "changed", "moved", "same", "embedded"), 0)
        self._moved.clear()
        for group in self._groups(self._changed(documents, counts, progress, is_gone), part):
            new = [text for change in group for text in change.texts]
            at_hand: dict[str, Vectors] = {}
            for change in group:
                pairs = ((text, one.text) for text, one in zip(change.texts, change.new, strict=True))
                at_hand |= self._known.copied(pair for pair in pairs if pair[0] not in at_hand)
            vectors, embedded = self._known.embedded(new, at_hand)
            # All of them before the transaction, which others wait for.
            for change in group:
                _embed(change, vectors, part)
            self._write(group, progress)
            counts["embedded"] += embedded
        return Changes(**counts)

    def _write(self, group: Sequence[Change], progress: Callable[[Document], None]) -> None:
        moved = {name: document.name for name, document in self._moved.items()}
        self._known.add(self._passages.put(group, moved))
        for document in (*self._moved.values(), *(change.document for change in group)):
            progress(document)
        self._moved.clear()

    def _changed(
        self,
        documents: Iterable[Document],
        counts: dict[str, int],
        progress: Callable[[Document], None],
        is_gone: Callable[[str], bool],
    ) -> Iterator[tuple[Document, bytes]]:
        """Those that are not as they were, with their digests."""
        digests = self._passages.documents()
        alike: dict[bytes, list[str]] | None = None
        for document in documents:
            check(document)
            digest = _digest(document)
            if digests.get(document.name) == digest:
                counts["same"] += 1
                progress(document)
                continue
            before = None
            if not (is_known := document.name in digests):
                alike = _alike(digests) if alike is None else alike
                before = next((name for name in alike.get(digest, ()) if is_gone(name)), None)
            if alike and before is not None:
                counts["moved"] += 1
                alike[digest].remove(before)
                del digests[before]
                self._moved[before] = document
                if len(self._moved) >= _MOVED_MAX:
                    self._write([], progress)
            else:
                counts["changed" if is_known else "added"] += 1
                yield document, digest
            digests[document.name] = digest

    def _groups(
        self, changed: Iterable[tuple[Document, bytes]], part: Callable[[Document, float], None]
    ) -> Iterator[list[Change]]:
        """As many as are embedded at once; each group is written before the next one is made."""
        group: dict[str, Change] = {}
        passages = 0
        for document, digest in changed:
            if passages >= BATCH_PASSAGES:
                yield list(group.values())
                group, passages = {}, 0
            change = self._compared(document, digest, part)
            # In place of what an earlier one of that name would have changed.
            group[document.name] = change
            passages += max(1, len(change.new))
        yield list(group.values())

    def _compared(self, document: Document, digest: bytes, part: Callable[[Document, float], None]) -> Change:
        """A document beside what is written of it."""
        before = self._passages.texts_of(document.name)
        change = Change(document, digest)
        for passage in self._splitter.split(document, lambda share: part(document, _CUT_SHARE * share)):
            text = joined(document.outline.above(passage.start, self._passages.above_letters), passage.text)
            if numbers := before.get((passage.text, text)):
                change.kept[numbers.pop()] = passage
            else:
                change.new.append(passage)
                change.texts.append(text)
        return change


def _embed(change: Change, vectors: Iterator[Vectors], part: Callable[[Document, float], None]) -> None:
    count = len(change.new)
    for done, vector in enumerate(islice(vectors, count), 1):
        change.embeddings.append(vector)
        if not done % BATCH_PASSAGES:
            part(change.document, _CUT_SHARE + (1 - _CUT_SHARE) * done / count)


def _alike(digests: dict[str, bytes]) -> dict[bytes, list[str]]:
    """Names of documents that are the same, by their digests."""
    found: dict[bytes, list[str]] = {}
    for name, digest in digests.items():
        found.setdefault(digest, []).append(name)
    return found


def check(document: Document) -> None:
    """Refuses what could not be written, or not be found again, by a `RagError` that says why."""
    if not isinstance(document, Document) or not isinstance(document.metadata, dict):
        raise RagError(f"put in {str(document)[:80]!r}", "say a Document of name, text and a dict of metadata")
    try:
        document.name.encode()
        document.text.encode()
        # A number that is none would be no JSON to SQLite, which then answers no filter at all.
        json.dumps(document.metadata, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
        json.dumps(document.outline.digested(), ensure_ascii=False).encode()
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise RagError(
            f"put in the document {document.name!r}: {error}",
            "name and text are texts that UTF-8 can write, metadata what JSON can",
        ) from None


def _digest(document: Document) -> bytes:
    said: list[Any] = [document.text, document.metadata, document.is_markdown, document.is_whole]
    if document.outline != NONE:
        said.append(document.outline.digested())
    if document.begin:
        said.append({"begin": document.begin})
    return hashlib.blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=16).digest()
