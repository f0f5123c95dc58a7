"""The embedder of whole numbers: near the exact one's vectors, each text's its own, and kept without harm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_encoders import BERT, DISTILBERT, MPNET, ROBERTA, Encoder

from scotfree.rag import Document, Index, RagError
from scotfree.rag.embed import by_name, graph, sessions

# Some are of one length: what is run in batches runs those together.
TEXTS = ["Cats purr when they are content", "dogs", "cats", "tails", "dogs wag their tails " * 10, ""]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/scotfree/int8"


@pytest.mark.parametrize("encoder", [BERT, DISTILBERT, MPNET, ROBERTA])
@pytest.mark.parametrize("kind", ["F32", "BF16"])
def test_its_vectors_are_near_the_exact_ones_and_others(
    tmp_path: Path, cache: Path, encoder: Encoder, kind: str
) -> None:
    folder = encoder.write(tmp_path / "model", kind=kind)
    exact, whole = by_name(f"onnx:{folder}"), by_name(f"int8:{folder}")
    cosines = (exact.embed(TEXTS) * whole.embed(TEXTS)).sum(axis=1)
    assert cosines.min() > 0.99 and cosines.max() < 0.999999
    assert whole.name == f"int8:{folder}" and whole.digest != exact.digest
    assert np.abs(np.linalg.norm(whole.embed(TEXTS), axis=1) - 1).max() < 1e-5


def test_a_text_has_one_vector_whatever_stands_beside_it(tmp_path: Path, cache: Path) -> None:
    whole = by_name(f"int8:{BERT.write(tmp_path / 'model')}")
    alone = np.concatenate([whole.embed([text]) for text in TEXTS])
    assert np.array_equal(alone, whole.embed(TEXTS))


def test_weights_are_rounded_to_the_nearest_of_their_row() -> None:
    weights = np.random.default_rng(1).normal(0, 1, (5, 40)).astype(np.float32)
    weights[2] = 0
    rounded, scales = graph._rounded_weights(weights)
    assert np.abs(rounded * scales[:, None] - weights).max() <= scales.max() / 2 * 1.0001
    assert np.abs(rounded).max(axis=1).tolist() == [127, 127, 0, 127, 127]


def test_what_was_rounded_once_is_kept(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"int8:{BERT.write(tmp_path / 'model')}"
    first = by_name(name).embed(TEXTS)
    (kept,) = cache.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(graph, "_rounded_weights", lambda _: pytest.fail("it is rounded again"))
        assert np.array_equal(by_name(name).embed(TEXTS), first)
    whole = kept.read_bytes()
    damages: list[Callable[[], object]] = [
        lambda: kept.write_bytes(whole[:-40]),
        lambda: kept.write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:]),
        lambda: kept.write_bytes(b""),
    ]
    for damage in damages:
        damage()
        assert np.array_equal(by_name(name).embed(TEXTS), first), "what is damaged is not believed"
        assert kept.read_bytes() == whole, "it is made anew"
    BERT.write(tmp_path / "model", seed=2)
    assert not np.allclose(by_name(name).embed(TEXTS), first, atol=0.01), "another model is another file"
    assert len(list(cache.iterdir())) == 2


def test_without_a_place_to_keep_it_it_is_made_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    name = f"int8:{BERT.write(tmp_path / 'model')}"
    assert np.array_equal(by_name(name).embed(TEXTS), by_name(name).embed(TEXTS))


def test_an_index_does_not_mix_them(tmp_path: Path, cache: Path) -> None:
    folder = BERT.write(tmp_path / "model")
    Index.build(tmp_path / "index", [Document("cats", TEXTS[0])], by_name(f"int8:{folder}")).close()
    with pytest.raises(RagError, match=rf"another model \(int8:{folder}\); open it with that one"):
        Index(tmp_path / "index", by_name(f"onnx:{folder}"))
    with Index(tmp_path / "index", by_name(f"int8:{folder}")) as index:
        assert index.search("cats").hits


def test_it_runs_on_the_processor(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(RagError, match="on cuda: it runs on the processor; leave out --device cuda"):
        by_name(f"int8:{BERT.write(tmp_path / 'model')}", device="cuda")


@pytest.mark.parametrize(
    ("flags", "overflows"),
    [("avx2 avx512f", True), ("avx2 avx512_vnni", False), ("avx2 avx_vnni", False), ("asimddp", False)],
)
def test_where_sums_would_be_cut_off_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, overflows: bool
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags : fpu {flags}\n")
    monkeypatch.setattr(sessions, "_CPU_INFO", tmp_path / "cpuinfo")
    assert sessions._overflows() is overflows
    monkeypatch.setattr(sessions, "_CPU_INFO", tmp_path / "absent")
    assert sessions._overflows() is False


def test_the_slower_way_gives_the_same(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"int8:{BERT.write(tmp_path / 'model')}"
    fast = by_name(name).embed(TEXTS)
    monkeypatch.setattr(sessions, "_overflows", lambda: True)
    assert np.abs(by_name(name).embed(TEXTS) - fast).max() < 1e-5
