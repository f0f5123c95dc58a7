"""Documents put into an index in place of those of their names: only what was not there is embedded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from scotfree.rag.documents import Document
from scotfree.rag.embed.batches import BATCH_PASSAGES, embed_each
from scotfree.rag.embed.embedder import Embedder
from scotfree.rag.passages import Change, Passages
from scotfree.rag.splitting import Splitter
from scotfree.rag.trouble import RagError


@dataclass(frozen=True)
class Changes:
    """What an update did."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    same: int = 0
    # Passages that were embedded: those whose text was not there.
    embedded: int = 0


class Update:
    """Puts documents into the passages of an index, whose embedder embeds what was not there."""

    def __init__(self, passages: Passages, embedder: Embedder) -> None:
        self._passages = passages
        self._embedder = embedder
        self._splitter = Splitter(embedder)

    def put(self, documents: Iterable[Document], progress: Callable[[Document], None]) -> Changes:
        """Puts documents in, some at a time, each group in one transaction; `progress` is told of each then."""
        counts = dict.fromkeys(("added", "changed", "same", "embedded"), 0)
        for group in self._groups(self._changed(documents, counts, progress)):
            new = [passage.text for change in group for passage in change.new]
            vectors = embed_each(self._embedder, new)
            # All of them before the transaction, which others wait for.
            for change in group:
                change.embeddings.extend(islice(vectors, len(change.new)))
            self._passages.put(group)
            counts["embedded"] += len(new)
            for change in group:
                progress(change.document)
        return Changes(**counts)

    def _changed(
        self, documents: Iterable[Document], counts: dict[str, int], progress: Callable[[Document], None]
    ) -> Iterator[tuple[Document, bytes]]:
        """Those that are not as they were, with their digests."""
        digests = self._passages.documents()
        for document in documents:
            check(document)
            digest = _digest(document)
            if digests.get(document.name) == digest:
                counts["same"] += 1
                progress(document)
            else:
                counts["changed" if document.name in digests else "added"] += 1
                digests[document.name] = digest
                yield document, digest

    def _groups(self, changed: Iterable[tuple[Document, bytes]]) -> Iterator[list[Change]]:
        """As many as are embedded at once; each group is written before the next one is made."""
        group: dict[str, Change] = {}
        passages = 0
        for document, digest in changed:
            if passages >= BATCH_PASSAGES:
                yield list(group.values())
                group, passages = {}, 0
            change = self._compared(document, digest)
            # In place of what an earlier one of that name would have changed.
            group[document.name] = change
            passages += max(1, len(change.new))
        yield list(group.values())

    def _compared(self, document: Document, digest: bytes) -> Change:
        """A document beside what is written of it."""
        before = self._passages.texts_of(document.name)
        change = Change(document, digest)
        for passage in self._splitter.split(document):
            if numbers := before.get(passage.text):
                change.kept[numbers.pop()] = passage.start
            else:
                change.new.append(passage)
        return change


def check(document: Document) -> None:
    """Refuses what could not be written, or not be found again, by a `RagError` that says why."""
    if not isinstance(document, Document) or not isinstance(document.metadata, dict):
        raise RagError(f"put in {str(document)[:80]!r}", "say a Document of name, text and a dict of metadata")
    try:
        document.name.encode()
        document.text.encode()
        # A number that is none would be no JSON to SQLite, which then answers no filter at all.
        json.dumps(document.metadata, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise RagError(
            f"put in the document {document.name!r}: {error}",
            "name and text are texts that UTF-8 can write, metadata what JSON can",
        ) from None


def _digest(document: Document) -> bytes:
    said = json.dumps([document.text, document.metadata, document.is_markdown, document.is_whole], sort_keys=True)
    return hashlib.blake2b(said.encode(), digest_size=16).digest()
