"""What language models said, kept: asked the same again, for another mode or after an interruption, none waits."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Final

from scotfree.rag.generate.model import LanguageModel
from scotfree.rag.trouble import RagError

_TABLE: Final = "CREATE TABLE IF NOT EXISTS said (asked BLOB PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID"
# Others that evaluate the same collection write in between.
_PATIENCE_S: Final = 60.0


class Kept:
    """Replies in a file, by model and text; each is on the disk before the next is asked for."""

    def __init__(self, path: Path) -> None:
        """Made if it is not there."""
        self._path = path
        try:
            self._file = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)
            # What cannot be read and written is better known now than after an hour.
            for statement in (_TABLE, "SELECT asked, reply FROM said LIMIT 1", "BEGIN IMMEDIATE", "COMMIT"):
                self._file.execute(statement)
        except sqlite3.Error as error:
            raise self._trouble(error) from None

    def close(self) -> None:
        """Gives the file back."""
        self._file.close()

    def get(self, model: LanguageModel, text: str) -> str | None:
        """What the model said to the text, if that is known."""
        try:
            found = self._file.execute("SELECT reply FROM said WHERE asked = ?", [_key(model, text)]).fetchone()
        except sqlite3.Error as error:
            raise self._trouble(error) from None
        return found and str(found[0])

    def put(self, model: LanguageModel, text: str, reply: str) -> None:
        """Keeps what it said; the last counts."""
        try:
            self._file.execute("INSERT OR REPLACE INTO said VALUES (?, ?)", [_key(model, text), reply])
        except sqlite3.Error as error:
            raise self._trouble(error) from None

    def _trouble(self, error: sqlite3.Error) -> RagError:
        return RagError(
            f"keep what language models said in {self._path}: {error}",
            "make it possible, or remove the file, and all is asked anew",
        )


def _key(model: LanguageModel, text: str) -> bytes:
    """Of where a model is, what it is called and what it is asked; no text of its own is kept in it."""
    asked = json.dumps([model.place.rstrip("/"), model.name, text])
    return hashlib.blake2b(asked.encode(), digest_size=16).digest()
