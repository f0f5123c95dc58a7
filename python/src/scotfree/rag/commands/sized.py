"""How much of files has been taken in, as a bar of bytes: so it goes on within a large file, too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from tqdm import tqdm

from scotfree.rag.documents import Document


class Sized:
    """The bar, on a terminal; nothing elsewhere, nor if it `is_quiet`."""

    def __init__(self, paths: Iterable[Path], *, is_quiet: bool) -> None:
        self._sizes = {str(path): _size(path) for path in paths}
        self._files, self._done = len(self._sizes), 0
        # Bytes of all of them that are taken in.
        self.counted = 0
        # Bytes that are counted of files that are not done.
        self._open: dict[str, int] = {}
        self.bar = tqdm(
            total=sum(self._sizes.values()),
            unit="B",
            unit_scale=True,
            disable=True if is_quiet else None,
            leave=False,
            postfix=f"0/{self._files:,} files",
        )

    def __enter__(self) -> Sized:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.bar.close()

    def part(self, document: Document, share: float) -> None:
        """So much of a document is taken in."""
        self._count(document.name, int(share * self._sizes.get(document.name, 0)))

    def done(self, document: Document) -> None:
        """All of it is."""
        self._end(document.name)

    def unread(self, path: Path) -> None:
        """It is no document."""
        self._end(str(path))

    def _count(self, name: str, size: int) -> None:
        before = self._open.get(name, 0)
        self._open[name] = max(size, before)
        self.counted += self._open[name] - before
        self.bar.update(self._open[name] - before)

    def _end(self, name: str) -> None:
        self._done += 1
        self.bar.set_postfix_str(f"{self._done:,}/{self._files:,} files", refresh=False)
        self._count(name, self._sizes.get(name, 0))
        del self._open[name]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
