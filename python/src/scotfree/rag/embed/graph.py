"""An ONNX graph over the weights of a safetensors file, which stay where they are, written node by node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.embed.weights import BRAIN, HALF, SINGLE, Tensor, numbers, tensors

# Of ONNX: the first that has LayerNormalization and reduces over axes that are inputs.
_OPSET: Final = 18
_IR_VERSION: Final = 9
_KINDS: Final = {SINGLE: TensorProto.FLOAT, HALF: TensorProto.FLOAT16, BRAIN: TensorProto.BFLOAT16}
# Whole numbers of 8 bits, beside zero.
_WHOLE_MAX: Final = 127


@dataclass(frozen=True)
class Input:
    """What is given to a graph: whole numbers, batch x tokens."""

    name: str


class Graph:
    """Nodes one after the other, each named by what it makes."""

    def __init__(
        self, file: Path, prefix: str, *, are_weights_inputs: bool = False, is_whole: bool = False
    ) -> None:
        """Over a file, of whose weights some names may have a prefix.

        `are_weights_inputs`: weights are inputs in single precision, by their names in the file, for a runtime
        that reads no file beside the graph. `is_whole`: what is multiplied is rounded to whole numbers of 8 bits.
        """
        self._file = file
        self._prefix = prefix
        self._tensors = tensors(file)
        self._are_inputs, self._is_whole = are_weights_inputs, is_whole
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        # Those of the file's that were asked for.
        self._weights: dict[str, Tensor] = {}
        # What was rounded, by what it was made of.
        self._rounded: dict[str, str] = {}
        self._widened: dict[str, str] = {}

    def node(self, kind: str, *inputs: str, name: str = "", count: int = 1, **attributes: Any) -> str:
        """Adds one; returns its (first) output, after which any others are numbered from 1 on."""
        first = name or f"{kind}_{len(self._nodes)}"
        outputs = [first, *(f"{first}_{place}" for place in range(1, count))]
        self._nodes.append(helper.make_node(kind, list(inputs), outputs, **attributes))
        return first

    def constant(self, value: Any) -> str:
        """A small one, written into the graph."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def has(self, name: str) -> bool:
        """Whether the file has such a weight."""
        return self._known(name) is not None

    def shape(self, name: str) -> list[int]:
        """Of a weight."""
        return self._tensors[self._full(name)].shape

    def weight(self, name: str) -> str:
        """One of the file's, in single precision; with the prefix that some files have."""
        full = self._used(name)
        if self._are_inputs or self._tensors[full].kind == SINGLE:
            return full
        if full not in self._widened:
            self._widened[full] = self.node("Cast", full, to=TensorProto.FLOAT)
        return self._widened[full]

    def rows(self, name: str, places: str) -> str:
        """Rows of a table that is a weight."""
        full = self._used(name)
        found = self.node("Gather", full, places)
        # Only what is taken is made wider.
        is_wide = self._are_inputs or self._tensors[full].kind == SINGLE
        return found if is_wide else self.node("Cast", found, to=TensorProto.FLOAT)

    def linear(self, rows: str, name: str) -> str:
        """Rows through a layer: its weights lie transposed."""
        if self._is_whole:
            return self._whole_linear(rows, name)
        return self.node("Gemm", rows, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), transB=1)

    def norm(self, state: str, name: str, epsilon: float) -> str:
        """Scaled to mean 0 and variance 1, then as the weights say."""
        weights = [self.weight(f"{name}.{part}") for part in ("weight", "bias")]
        return self.node("LayerNormalization", state, *weights, axis=-1, epsilon=epsilon)

    def written(self, inputs: Sequence[Input], output: str, shape: list[Any]) -> bytes:
        """The graph that makes `output`, which has that shape."""
        given = [_value(one.name, TensorProto.INT64, ["batch", "tokens"]) for one in inputs]
        constants = list(self._constants)
        if self._are_inputs:
            given += [_value(name, TensorProto.FLOAT, tensor.shape) for name, tensor in self._weights.items()]
        else:
            constants += [_external(name, tensor, self._file.name) for name, tensor in self._weights.items()]
        made = helper.make_graph(
            self._nodes, "encoder", given, [_value(output, TensorProto.FLOAT, shape)], constants
        )
        model = helper.make_model(
            made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION, producer_name="scotfree"
        )
        return bytes(model.SerializeToString())

    def _whole_linear(self, rows: str, name: str) -> str:
        """As `linear`, in whole numbers: of each column of weights one scale, of all that comes in one, too."""
        if rows not in self._rounded:
            self._rounded[rows] = self.node("DynamicQuantizeLinear", rows, count=3)
        rounded = self._rounded[rows]
        weights, scales = _rounded_weights(self._numbers(f"{name}.weight"))
        product = self.node("MatMulInteger", rounded, self.constant(weights.T.copy()), f"{rounded}_2")
        scale = self.node("Mul", f"{rounded}_1", self.constant(scales))
        scaled = self.node("Mul", self.node("Cast", product, to=TensorProto.FLOAT), scale)
        return self.node("Add", scaled, self.weight(f"{name}.bias"))

    def _numbers(self, name: str) -> Vectors:
        return numbers(self._file, self._tensors[self._full(name)])

    def _used(self, name: str) -> str:
        full = self._full(name)
        self._weights[full] = self._tensors[full]
        return full

    def _known(self, name: str) -> str | None:
        return next((full for full in (name, f"{self._prefix}.{name}") if full in self._tensors), None)

    def _full(self, name: str) -> str:
        if (known := self._known(name)) is None:
            raise ValueError(f"{self._file.name}: it has no weight {name}")
        return known


def _rounded_weights(weights: Vectors) -> tuple[np.ndarray[Any, np.dtype[np.int8]], Vectors]:
    """Rows as whole numbers, and what each row of them is to be multiplied with."""
    scales = np.maximum(np.abs(weights).max(axis=1), np.finfo(np.float32).tiny) / _WHOLE_MAX
    return np.round(weights / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def _value(name: str, of: int, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, of, shape)


def _external(name: str, tensor: Tensor, file: str) -> Any:
    proto = onnx.TensorProto(
        name=name, data_type=_KINDS[tensor.kind], dims=tensor.shape, data_location=TensorProto.EXTERNAL
    )
    for key, value in (("location", file), ("offset", tensor.start), ("length", tensor.length)):
        proto.external_data.add(key=key, value=str(value))
    return proto
