"""Encoders of several kinds and precisions, with layers behind, or as ready graphs: what each must give."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import bert_oracle
import numpy as np
import onnx
import pytest
import small_bert
from onnx import TensorProto, helper
from small_encoders import BERT, DISTILBERT, MPNET, ROBERTA, Encoder

from scotfree.rag import OnnxEmbedder, RagError
from scotfree.rag.embed import by_name
from scotfree.rag.embed.bert_graph import build
from scotfree.rag.embed.shapes import Shape

TEXTS = ["Cats purr when they are content", "dogs", "dogs wag their tails " * 10, ""]
KINDS = {"bert": BERT, "distilbert": DISTILBERT, "roberta": ROBERTA, "mpnet": MPNET}


def tokens(text: str) -> list[int]:
    return list(small_bert.tokenizer().encode(text).ids)


def scaled(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def write_modules(folder: Path, *kinds: str, pooling: str = "mean") -> None:
    names = [("" if kind == "Transformer" else f"{place}_{kind}", kind) for place, kind in enumerate(kinds)]
    modules = [{"path": name, "type": f"sentence_transformers.models.{kind}"} for name, kind in names]
    (folder / "modules.json").write_text(json.dumps(modules))
    for name, kind in names:
        (folder / name).mkdir(exist_ok=True)
        if kind == "Pooling":
            (folder / name / "config.json").write_text(json.dumps({"pooling_mode": pooling}))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("name", KINDS)
def test_a_folder_gives_what_its_definition_gives(tmp_path: Path, name: str, kind: str) -> None:
    encoder = KINDS[name]
    folder = encoder.write(tmp_path / "model", kind=kind)
    embedder = by_name(f"onnx:{folder}")
    assert embedder.tokens_max == encoder.config["max_position_embeddings"] - encoder.first_place
    for text, vector in zip(TEXTS, embedder.embed(TEXTS), strict=True):
        wanted = scaled(encoder.states(folder, tokens(text)).mean(axis=0))
        assert np.abs(vector - wanted).max() < 1e-5, text


def test_tokens_that_stand_far_apart_are_told_apart_as_the_definition_has_it(tmp_path: Path) -> None:
    folder = MPNET.write(tmp_path / "model")
    text = "cats purr when they are content " * 40
    (vector,) = by_name(f"onnx:{folder}").embed([text])
    assert np.abs(vector - scaled(MPNET.states(folder, tokens(text)[:240]).mean(axis=0))).max() > 1e-4
    assert np.abs(vector - scaled(MPNET.states(folder, tokens(text)).mean(axis=0))).max() < 1e-5


@pytest.mark.parametrize("behind", [("Dense",), ("Normalize", "Dense"), ("Dense", "Dense", "Normalize")])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("is_ready", [False, True])
def test_layers_behind_the_pooling_are_run(
    tmp_path: Path, behind: tuple[str, ...], pooling: str, is_ready: bool
) -> None:
    folder = BERT.write(tmp_path / "model")
    write_modules(folder, "Transformer", "Pooling", *behind, pooling=pooling)
    sizes, layers = iter([(small_bert.WIDTH, 24), (24, 16)]), []
    for place, kind in enumerate(behind, 2):
        if kind == "Dense":
            layers.append((next(sizes), place))
            write_layer(folder / f"{place}_Dense", *layers[-1], has_tanh=len(layers) == 1)
    before = folder_embedder(folder, is_ready=is_ready)
    assert before.dimensions == layers[-1][0][1]
    vectors = before.embed(TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        states = BERT.states(folder, tokens(text))
        wanted = states[0] if pooling == "cls" else states.mean(axis=0)
        for place, kind in enumerate(behind, 2):
            if kind == "Normalize":
                wanted = scaled(wanted)
            else:
                of = bert_oracle.weights(folder / f"{place}_Dense/model.safetensors")
                wanted = of["linear.weight"] @ wanted + of["linear.bias"]
                wanted = np.tanh(wanted) if place == layers[0][1] else wanted
        assert np.abs(vector - scaled(wanted)).max() < 1e-5, text
    write_layer(folder / f"{layers[0][1]}_Dense", layers[0][0], 77, has_tanh=True)
    assert by_name(f"onnx:{folder}").digest != before.digest, "other layers are other vectors"


def write_layer(folder: Path, size: tuple[int, int], seed: int, *, has_tanh: bool) -> None:
    kind = "activation.Tanh" if has_tanh else "linear.Identity"
    said = {"in_features": size[0], "out_features": size[1], "activation_function": f"torch.nn.modules.{kind}"}
    (folder / "config.json").write_text(json.dumps(said))
    shapes = {"linear.weight": size[::-1], "linear.bias": size[1:]}
    small_bert.write_weights(folder / "model.safetensors", seed, shapes)


def folder_embedder(folder: Path, *, is_ready: bool) -> OnnxEmbedder:
    """Of a folder whose graph is written, or lies there as somebody else has made it."""
    if is_ready:
        write_ready(folder)
        # Whatever it may be.
        (folder / "config.json").write_text(json.dumps(small_bert.CONFIG | {"model_type": "new"}))
    return OnnxEmbedder(folder)


def write_ready(folder: Path, **how: Any) -> Path:
    """A graph with weights in it that makes the last layer's states, out of ours: the part before the pooling."""
    weights = folder / "model.safetensors"
    model = onnx.load_from_string(build(weights, Shape.read(folder / "config.json")))
    onnx.load_external_data_for_model(model, str(folder))
    for tensor in model.graph.initializer:
        tensor.ClearField("external_data")
        tensor.data_location = onnx.TensorProto.DEFAULT
    last = next(node for node in model.graph.node if node.input[-1:] == ["whole"])
    keep = list(model.graph.node)[: list(model.graph.node).index(last) + 1]
    last.output[0] = how.get("output", "last_hidden_state")
    del model.graph.node[:]
    model.graph.node.extend(keep)
    del model.graph.output[:]
    made = helper.make_tensor_value_info(last.output[0], TensorProto.FLOAT, ["batch", "tokens", small_bert.WIDTH])
    model.graph.output.append(made)
    for name in how.get("inputs", ["token_type_ids"]):
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]))
    path = Path(folder / how.get("path", "model.onnx"))
    path.parent.mkdir(exist_ok=True)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("path", ["model.onnx", "onnx/model.onnx"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_ready_graph_is_run_as_it_is(tmp_path: Path, path: str, pooling: str) -> None:
    folder = BERT.write(tmp_path / "model")
    write_modules(folder, "Transformer", "Pooling", pooling=pooling)
    ready = write_ready(folder, path=path)
    own = by_name(f"onnx:{folder}")
    (folder / "config.json").unlink()
    (folder / "model.safetensors").rename(tmp_path / "model.safetensors")
    embedder = by_name(f"onnx:{folder}")
    assert embedder.dimensions == small_bert.WIDTH and embedder.digest != own.digest
    assert np.abs(embedder.embed(TEXTS) - own.embed(TEXTS)).max() < 1e-5
    (ready.parent / "model.onnx_data").write_bytes(b"more")
    assert by_name(f"onnx:{folder}").digest != embedder.digest, "what lies beside it decides, too"


def test_a_ready_graph_that_pools_itself_is_taken_at_its_word(tmp_path: Path) -> None:
    folder = BERT.write(tmp_path / "model")
    own = by_name(f"onnx:{folder}")
    model = onnx.load(write_ready(folder))
    inputs, outputs = ["last_hidden_state", "axes"], ["sentence_embedding"]
    model.graph.node.append(helper.make_node("ReduceMax", inputs, outputs, keepdims=0))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axes"))
    made = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", small_bert.WIDTH])
    model.graph.output.append(made)
    onnx.save(model, folder / "model.onnx")
    states = BERT.states(folder, tokens("cats purr"))
    (folder / "model.safetensors").unlink()
    (vector,) = by_name(f"onnx:{folder}").embed(["cats purr"])
    assert np.abs(vector - scaled(states.max(axis=0))).max() < 1e-5
    assert np.abs(vector - own.embed(["cats purr"])[0]).max() > 1e-3


def test_what_is_no_ready_graph_is_refused(tmp_path: Path) -> None:
    folder = BERT.write(tmp_path / "model")
    path = write_ready(folder, inputs=["pixel_values"])
    (folder / "model.safetensors").unlink()
    with pytest.raises(RagError, match="its graph wants pixel_values, which is none of attention_mask"):
        by_name(f"onnx:{folder}")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(RagError, match=r"embed with the model .*: .*name a folder with the config.json"):
        by_name(f"onnx:{folder}")
    path.write_bytes(b"")
    with pytest.raises(RagError, match="embed with the model"):
        by_name(f"onnx:{folder}")


def test_of_architectures_that_have_no_graph_those_are_named_that_have(tmp_path: Path) -> None:
    folder = BERT.write(tmp_path / "model")
    for config, said in (
        ({"model_type": "modernbert"}, "a modernbert with gelu; supported are BERT, DistilBERT, RoBERTa, XLM-"),
        ({"hidden_act": "relu"}, "a bert with relu; supported are"),
        ({"position_embedding_type": "relative_key"}, "its places are relative_key, not absolute"),
        ({"max_position_embeddings": 65}, "its weights have 64 places, and its config.json says 65"),
    ):
        (folder / "config.json").write_text(json.dumps(small_bert.CONFIG | config))
        with pytest.raises(RagError, match=said):
            by_name(f"onnx:{folder}")
    with pytest.raises(RagError, match="there is only a ready one"):
        by_name(f"int8:{ready_alone(tmp_path / 'other')}")


def ready_alone(folder: Path) -> Path:
    write_ready(BERT.write(folder))
    (folder / "model.safetensors").unlink()
    return folder


@pytest.mark.parametrize("is_ready", [False, True])
def test_another_models_tokenizer_is_refused(tmp_path: Path, is_ready: bool) -> None:
    folder = BERT.write(tmp_path / "model")
    made = small_bert.tokenizer()
    made.add_tokens(["violin"])
    made.save(str(folder / "tokenizer.json"))
    if is_ready:
        write_ready(folder)
        (folder / "model.safetensors").unlink()
        embedder = by_name(f"onnx:{folder}")
        with pytest.raises(RagError, match="embed with the model"):
            embedder.embed(["violin"])
    else:
        with pytest.raises(RagError, match=r"its tokenizer knows 15 tokens and its weights 14: it is another"):
            by_name(f"onnx:{folder}")


@pytest.mark.parametrize(
    ("encoder", "damage"),
    [(ROBERTA, {"first_place": 0}), (MPNET, {"has_distances": False}), (BERT, {"first_place": 1})],
)
def test_the_oracle_tells_what_is_left_out(tmp_path: Path, encoder: Encoder, damage: dict[str, Any]) -> None:
    folder = encoder.write(tmp_path / "model")
    (vector,) = by_name(f"onnx:{folder}").embed(["cats purr"])
    wrong = replace(encoder, **damage)
    assert np.abs(vector - scaled(wrong.states(folder, tokens("cats purr")).mean(axis=0))).max() > 1e-4
