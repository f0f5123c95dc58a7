"""Which files below a folder are read: by their names, and by what `.gitignore` files leave out, if wanted.

Patterns are those of `.gitignore` files, and count from the folder that is read: `*.md` is one anywhere below it,
`/drafts/` a folder in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scotfree.rag.trouble import RagError, needed

_IGNORE: Final = ".gitignore"
# Such a file has some lines; a larger one is something else.
_IGNORE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True)
class Wanted:
    """What somebody wants to be read."""

    # Of files one of these fits, if there are any; of files and folders none of those.
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    # What `.gitignore` files leave out is left out.
    with_gitignore: bool = False


class Choice:
    """Of a folder: what below it is read. Hidden files and folders are not."""

    def __init__(self, root: Path, wanted: Wanted) -> None:
        """A `RagError` says which pattern is none."""
        self._root = root
        self._include, self._exclude = _patterns(wanted.include), _patterns(wanted.exclude)
        # Of folders what their own files say, none where there is nothing; or nothing at all is asked.
        self._ignored: dict[Path, Any] | None = {} if wanted.with_gitignore else None
        self._outermost = _outermost(root) if wanted.with_gitignore else root

    def takes(self, path: Path, *, is_folder: bool = False) -> bool:
        """Whether it is read, if all folders above it are entered; `OSError`: a `.gitignore` cannot be."""
        if path.name.startswith("."):
            return False
        name = _relative(path, self._root, is_folder)
        if self._exclude is not None and self._exclude.match_file(name):
            return False
        if self._include is not None and not is_folder and not self._include.match_file(name):
            return False
        return self._ignored is None or not self._is_ignored(path, is_folder)

    def reaches(self, path: Path, *, is_folder: bool = False) -> bool:
        """Whether it is read and all folders between it and the root are entered."""
        between = [above for above in path.parents if above != self._root and above.is_relative_to(self._root)]
        is_entered = all(self.takes(above, is_folder=True) for above in reversed(between))
        return is_entered and self.takes(path, is_folder=is_folder)

    def _is_ignored(self, path: Path, is_folder: bool) -> bool:
        """As the file nearest to it says that says anything."""
        for above in path.parents:
            if not above.is_relative_to(self._outermost):
                break
            said = self._said(above)
            found = said and said.check_file(_relative(path, above, is_folder)).include
            if found is not None:
                return bool(found)
        return False

    def _said(self, folder: Path) -> Any:
        assert self._ignored is not None, "it is asked for"
        if folder not in self._ignored:
            self._ignored[folder] = _read(folder / _IGNORE)
        return self._ignored[folder]


def _relative(path: Path, folder: Path, is_folder: bool) -> str:
    return str(path.relative_to(folder)) + "/" * is_folder


def _outermost(root: Path) -> Path:
    """Whose `.gitignore` counts, too: the repository that a folder is in."""
    return next((above for above in (root, *root.parents) if (above / ".git").exists()), root)


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            text = file.read(_IGNORE_BYTES_MAX).decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    lines = []
    for line in text.splitlines():
        try:
            _patterns([line])
        except RagError:
            # As git has it: what is no pattern says nothing.
            continue
        lines.append(line)
    return _patterns(lines)


def _patterns(lines: Sequence[str]) -> Any:
    if not lines:
        return None
    try:
        return needed("pathspec", "rag").GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise RagError(f"choose files: {error}", "say patterns as in a .gitignore file: *.md, drafts/") from None
