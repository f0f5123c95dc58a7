"""Files of folders as documents, and what is told of those that are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from scotfree.rag.choosing import Choice, Wanted
from scotfree.rag.documents import Document, Unread, files, read


class Reader:
    """Reads the files below some roots, and knows those that are no documents."""

    def __init__(self, roots: Iterable[Path], index: Path, wanted: Wanted) -> None:
        """Roots are folders, or files; an index is not its own document."""
        self.roots = list(roots)
        # Of each reason how many there are, and the first.
        self.unread: Counter[str] = Counter()
        self.first: dict[str, Path] = {}
        # In the same way why their front matter is left as text, and links to folders.
        self.doubts: Counter[str] = Counter()
        self.linked: Counter[str] = Counter()
        self._index = index.resolve()
        self._choices = {root: Choice(root, wanted) for root in self.roots}
        self._read: set[Path] = set()
        # What could not be looked at: files, and folders with all that is below.
        self._unseen: set[Path] = set()

    def files(self) -> list[Path]:
        """What is to be read."""
        return sorted({path for root in self.roots for path in self._below(root, self._choices[root])})

    def _below(self, at: Path, choice: Choice) -> Iterator[Path]:
        def unseen(folder: Path, error: OSError) -> None:
            self._unseen.add(folder)
            self._note(self.unread, folder, f"folder: {error.strerror or error}")

        # A file that is named is meant.
        found = (
            [at]
            if at.is_file()
            else files(at, unseen, choice.takes, partial(self._note, self.linked, reason="name what they lead to"))
        )
        yield from (path for path in found if not path.is_relative_to(self._index))

    def changed(self, path: Path) -> list[Path]:
        """What is to be read of a file or folder that was changed or came."""
        for root, choice in self._choices.items():
            if path == root:
                return list(self._below(root, choice))
            if path.is_relative_to(root) and self._reaches(choice, path):
                return list(self._below(path, choice))
        return []

    def _reaches(self, choice: Choice, path: Path) -> bool:
        try:
            return choice.reaches(path, is_folder=path.is_dir())
        except OSError:
            return False

    def documents(
        self, paths: Iterable[Path], unread: Callable[[Path], object] = lambda _: None
    ) -> Iterator[Document]:
        """Those that can be read; `unread` is told of the others."""
        for path in paths:
            try:
                document = read(path, partial(self._note, self.doubts, path))
            except Unread as error:
                self._note(self.unread, path, str(error))
                if error.is_unseen:
                    self._unseen.add(path)
                unread(path)
            else:
                self._read.add(path)
                yield document

    def is_gone(self, path: Path) -> bool:
        """Whether it was seen that there is no such document any more."""
        return path not in self._read and self._unseen.isdisjoint((path, *path.parents))

    def is_moved(self, name: str) -> bool:
        """Whether a document was of a file below these roots that is not there any more."""
        path = Path(name)
        return self.is_below(path) and is_absent(path)

    def is_below(self, path: Path) -> bool:
        """Whether it is one of the roots or below one."""
        return any(path.is_relative_to(root) for root in self.roots)

    def _note(self, among: Counter[str], path: Path, reason: str) -> None:
        among[reason] += 1
        self.first.setdefault(reason, path)


def is_absent(path: Path) -> bool:
    """Whether it is known that there is nothing."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
