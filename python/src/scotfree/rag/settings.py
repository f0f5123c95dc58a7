"""What is said of an index once and counts for all that comes after: kept in its passages' file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, get_args

from scotfree.rag import calibration
from scotfree.rag.calibration import Bound
from scotfree.rag.damage import damaged
from scotfree.rag.embed.embedder import Embedder
from scotfree.rag.embed.made import Made
from scotfree.rag.passages import Passages
from scotfree.rag.searching import BITS_EXACT_ENOUGH, is_exact_enough
from scotfree.rag.splitting import NEW, Cut
from scotfree.rag.trouble import RagError

# A dimension has so many bits on average: those that vary most have several, others none.
BITS: Final = 5 / 6
BITS_MAX: Final = 6
# Where rows lie beside the codes and there are at most so many passages, so many: a code that says less costs some
# rows more to be read, and axes are dear beside few codes. For each doubling so many more, up to those above.
_FEW_ROWS: Final = 2_500
_BITS_FEW: Final = 1 / 3
_BITS_ROWS_DOUBLED: Final = 1 / 8
# Of codes alone, beyond so many passages, so many more for each doubling: among more there are more that are near,
# and each that codes cannot tell from them is embedded.
_FEW: Final = 25_000
_BITS_DOUBLED: Final = 3 / 8
# Names of what is kept: which embedder made it (see `embed.made`).
EMBEDDER: Final = "embedder"
# How it cuts documents.
_CUT: Final = "cut"
# What it keeps of each passage; where nothing is said, it was made before there was a choice.
_KEEPS: Final = "keeps"
# What share of the nearest searches are to find, and the bound that does.
_RECALL: Final = "recall"
_BOUND: Final = "bound"
# Of how many passages clusters and axes were learnt.
_LEARNT: Final = "learnt"
# Of a dimension, if who made it said so.
_BITS: Final = "bits"

# What is kept of each passage: a code, or a code and a row of exact values.
Keep = Literal["codes", "rows"]


@dataclass(frozen=True)
class Choices:
    """What who opens an index says; nothing, where it is left to the index. See `Index`."""

    bits: float | None = None
    keep: Keep | None = None
    recall: float | None = None
    passage_tokens: int | None = None
    overlap: int | None = None

    def checked(self) -> Choices:
        """Itself; a `RagError` says what no index can have."""
        if self.recall is not None:
            calibration.checked(self.recall)
        if self.keep not in (None, *get_args(Keep)):
            raise RagError(f"keep {self.keep!r} of each passage", f"say one of {', '.join(get_args(Keep))}")
        if self.bits is not None and not 0 < self.bits <= BITS_MAX:
            raise RagError(f"make codes of {self.bits} bits a dimension", f"say some above 0, up to {BITS_MAX}")
        return self


class Settings:
    """Of an index, whose passages these are."""

    def __init__(self, folder: Path, passages: Passages, choices: Choices) -> None:
        self._folder, self._passages, self._choices = folder, passages, choices

    def agree(self, embedder: Embedder) -> Cut:
        """Writes down what a new index is, or refuses what one that is there is not; returns how it is cut."""
        cut = self._agreed_cut(embedder)
        self._check_model(embedder)
        self._check_kept()
        return cut

    @property
    def keeps_rows(self) -> bool:
        """Whether exact values lie beside all codes."""
        return self._passages.known(_KEEPS, lambda said: {b"codes": False, b"rows": True}[said]) or False

    @property
    def is_recall_asked(self) -> bool:
        """Whether who opened it said what share of the nearest is to be found."""
        return self._choices.recall is not None

    @property
    def recall(self) -> float:
        """The share of the nearest that searches are to find."""
        return self._choices.recall or self._passages.known(_RECALL, _share) or calibration.RECALL

    @property
    def bound(self) -> Bound | None:
        """How careful searches are, as it was measured."""
        return self._passages.known(_BOUND, Bound.read)

    @property
    def learnt(self) -> int | None:
        """Of how many passages clusters and axes were learnt; nothing, where that is not known."""
        return self._passages.known(_LEARNT, int)

    def bits(self, passages: int) -> float:
        """How many bits a dimension codes of so many passages have: as was said once, or as they need."""
        said = self._passages.known(_BITS, lambda said: _bits(float(said))) or self._choices.bits
        return said or _bits_for(passages, is_alone=not self.keeps_rows)

    def ask_recall(self, recall: float) -> None:
        """From now on searches are to find this share; who has it written writes the bound, too."""
        self._choices = replace(self._choices, recall=calibration.checked(recall))

    def written(self, *, bound: Bound | None = None, learnt: int | None = None) -> Mapping[str, bytes]:
        """What is to be known of a snapshot's bound, and of how many passages its clusters were learnt."""
        said = {_RECALL: str(self.recall).encode()}
        if bound:
            said[_BOUND] = bound.written()
        if learnt is not None:
            said[_LEARNT] = str(learnt).encode()
        return said

    def _agreed_cut(self, embedder: Embedder) -> Cut:
        """How documents are cut: as they were, as long as there are any."""
        choices, is_new = self._choices, self._passages.setting(EMBEDDER) is None
        cut = NEW if is_new else Cut.read(self._passages.setting(_CUT))
        wanted = replace(
            cut,
            tokens=cut.tokens if choices.passage_tokens is None else choices.passage_tokens,
            overlap=cut.overlap if choices.overlap is None else choices.overlap,
        ).checked(embedder)
        if wanted != cut and not is_new and not self._passages.is_empty():
            raise RagError(
                f"make passages of {wanted.tokens} tokens, {wanted.overlap} of them overlapping, in the index "
                f"{self._folder}: it has documents in passages of {cut.tokens}, {cut.overlap} overlapping",
                "leave that out, or make another index; `scot rag index FOLDER --forget` empties this one",
            )
        if wanted != cut or is_new:
            self._passages.make_known(_CUT, wanted.written())
        return wanted

    def _check_model(self, embedder: Embedder) -> None:
        if (known := self._passages.setting(EMBEDDER)) is not None:
            Made.read(known).check(self._folder, embedder)
            return
        if self._passages.setting("snapshot") is not None or not self._passages.is_empty():
            raise damaged(self._passages.path, "what it says of its embedder")
        bits, recall = self._choices.bits, self._choices.recall
        keeps = self._choices.keep or _kept_with(bits, embedder.dimensions)
        self._passages.make_known(_KEEPS, keeps.encode())
        self._passages.make_known(_RECALL, str(recall or calibration.RECALL).encode())
        if bits is not None:
            self._passages.make_known(_BITS, str(bits).encode())
        # Last: of an index that has none all this is said anew.
        self._passages.make_known(EMBEDDER, Made.by(embedder).written())

    def _check_kept(self) -> None:
        """Refuses what an index that is there does not keep."""
        kept = "rows" if self.keeps_rows else "codes"
        if self._choices.keep not in (None, kept):
            raise RagError(
                f"open the index {self._folder} as one that keeps {self._choices.keep}: it keeps {kept}",
                "leave that out, or make another index; `scot rag plan --apply` changes what is kept of clusters",
            )


def _kept_with(bits: float | None, dimensions: int) -> Keep:
    """What a new index keeps, if nothing is said: codes that are near enough need nothing beside them."""
    return "codes" if bits is not None and is_exact_enough(bits * dimensions, dimensions) else "rows"


def _bits_for(passages: int, *, is_alone: bool) -> float:
    """How many bits a dimension codes of so many passages have; `is_alone`: nothing nearer lies beside them."""
    if is_alone:
        return min(BITS + _BITS_DOUBLED * _doublings(passages, _FEW), BITS_EXACT_ENOUGH - _BITS_DOUBLED)
    return min(_BITS_FEW + _BITS_ROWS_DOUBLED * _doublings(passages, _FEW_ROWS), BITS)


def _doublings(count: int, of: int) -> float:
    return math.log2(max(count, of) / of)


def _share(said: bytes) -> float:
    share = float(said)
    if not 0 < share < 1:
        raise ValueError
    return share


def _bits(bits: float) -> float:
    """Bits a dimension that codes can have; a `ValueError`: they cannot."""
    if not 0 < bits <= BITS_MAX:
        raise ValueError
    return bits
