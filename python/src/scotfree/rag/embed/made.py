"""What an index knows of the embedder that made it, and why another one is refused.

Vectors of another model, of other prompts or of another length are not compared with those that are there.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scotfree.rag.embed.embedder import Embedder
from scotfree.rag.embed.prompts import Prompts
from scotfree.rag.trouble import RagError


@dataclass(frozen=True)
class Made:
    """An embedder as an index remembers it."""

    # By which `embed.by_name` makes it again.
    name: str
    digest: bytes
    # An index that says nothing of them was made when there were none.
    prompts: Prompts
    # Not known of an index that was made before it was written down.
    dimensions: int | None

    @classmethod
    def by(cls, embedder: Embedder) -> Made:
        """What is to be remembered of one."""
        prompts = getattr(embedder, "prompts", Prompts())
        return cls(embedder.name, embedder.digest, prompts, embedder.dimensions)

    @classmethod
    def read(cls, said: bytes) -> Made:
        """From what `written` made."""
        try:
            found = json.loads(said)
            digest, prompts = bytes.fromhex(found["digest"]), Prompts(**found.get("prompts", {}))
            name, dimensions = found["name"], found.get("dimensions")
            texts = (name, prompts.query, prompts.passage)
            if not all(isinstance(text, str) for text in texts) or not isinstance(dimensions, int | None):
                raise TypeError
            return cls(name, digest, prompts, dimensions)
        except (AttributeError, ValueError, KeyError, TypeError):
            raise RagError(
                "open an index: what it says of its embedder is damaged", "remove its folder and index again"
            ) from None

    def written(self) -> bytes:
        """As an index keeps it."""
        said: dict[str, Any] = {"name": self.name, "digest": self.digest.hex(), "dimensions": self.dimensions}
        if self.prompts != Prompts():
            said["prompts"] = asdict(self.prompts)
        return json.dumps(said).encode()

    def check(self, folder: Path, embedder: Embedder) -> None:
        """Refuses an embedder whose vectors are others, by a `RagError` that says what about it is another."""
        now = Made.by(embedder)
        if now.digest == self.digest and self.dimensions in (None, now.dimensions):
            return
        tried = f"open the index {folder}: "
        if now.name == self.name and self.dimensions not in (None, now.dimensions):
            raise RagError(
                f"{tried}its embeddings have {self.dimensions} dimensions, and those of {now.name} now have "
                f"{now.dimensions}",
                "put back the model that made it, or make another index",
            )
        if now.name == self.name and now.prompts != self.prompts:
            raise RagError(
                f"{tried}it was made with {self.prompts}, and now there is {now.prompts}",
                "open it with those that it was made with (commands take them from the index where no flag names "
                "others), or make another index",
            )
        if now.name == self.name:
            raise RagError(
                f"{tried}its passages were embedded by another model that was called {self.name}",
                "put that one back in its place, or make another index",
            )
        raise RagError(
            f"{tried}its passages were embedded by another model ({self.name})",
            f"open it with that one (--embedder {shlex.quote(self.name)}), or make another index",
        )
