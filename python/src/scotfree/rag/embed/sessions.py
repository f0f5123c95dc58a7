"""Sessions of ONNX Runtime, over graphs of ours and over ready ones.

On a processor it is tested. On a GPU the same code would run through the CUDA provider of the package
onnxruntime-gpu; no run of it there has been recorded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

# Otherwise the runtime tells its maker over the network how it is used; it looks once, when
# it is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as states

from scotfree.rag.embed.embedder import Device, Vectors
from scotfree.rag.trouble import RagError

_CPU: Final = "CPUExecutionProvider"
_CUDA: Final = "CUDAExecutionProvider"
# Products of fewer digits, which are the provider's own choice, are other vectors than a processor's.
_CUDA_OPTIONS: Final = {"use_tf32": "0"}
# What it raises for numbers that a graph does not take, as of tokens that it has no row for.
REFUSALS: Final = (states.InvalidArgument, states.Fail, states.RuntimeException)
_CPU_INFO: Final = Path("/proc/cpuinfo")
_VNNI: Final = ("avx512_vnni", "avx_vnni")
_WHOLE: Final = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

# Of a batch: batch x tokens.
Numbers = np.ndarray[Any, np.dtype[np.int64]]


def opened(graph: bytes | Path, weights: Path, *, threads: int, device: Device) -> Any:
    """A session over a graph whose weights lie in the folder `weights`, with so many threads (0: one a core).

    A `RagError` says that the device cannot be had; what is wrong with the graph is raised as the runtime has it.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # What is wrong is raised, too.
    options.log_severity_level = 4
    # Threads that look for work while there is none take processor time from whoever has some.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if _overflows():
        # Slower, and the same sums as elsewhere.
        options.add_session_config_entry("session.x64quantprecision", "1")
    if isinstance(graph, bytes):
        # The graph names weights by their file; this says where it lies.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(weights))
    given = graph if isinstance(graph, bytes) else str(graph)
    session = onnxruntime.InferenceSession(given, options, providers=_providers(device))
    if device == "cuda" and device_of(session) != "CUDA":
        raise _without_cuda("its libraries or its driver could not be loaded")
    return session


def device_of(session: Any) -> str:
    """Where it runs: `CPU` or `CUDA`."""
    return str(session.get_providers()[0].removesuffix("ExecutionProvider"))


class Ready:
    """A graph that somebody else has written: its inputs and its output are known by their names."""

    def __init__(self, session: Any, outputs: tuple[str, ...], ranks: tuple[int, ...]) -> None:
        """Of what it makes the first of `outputs` is taken, else what comes first and has one of `ranks` axes.

        A `ValueError` says what it wants that nobody has, or that it makes nothing of the kind.
        """
        self._session = session
        self._inputs = {one.name: one.type for one in session.get_inputs()}
        known = {"input_ids", "attention_mask", "token_type_ids", "position_ids"}
        if unknown := self._inputs.keys() - known:
            raise ValueError(f"its graph wants {min(unknown)}, which is none of {', '.join(sorted(known))}")
        if wrong := sorted(of for of in self._inputs.values() if of not in _WHOLE):
            raise ValueError(f"its graph wants tokens as {wrong[0]}")
        made = {one.name: len(one.shape) for one in session.get_outputs()}
        fitting = [name for name, rank in made.items() if rank in ranks]
        chosen = [name for name in outputs if name in fitting] + sorted(fitting, key=lambda name: -made[name])
        if not chosen:
            raise ValueError(f"its graph makes {', '.join(made)}, none of which is what is wanted of a text")
        self.output = chosen[0]

    def run(self, ids: Numbers, mask: Numbers, kinds: Numbers | None = None) -> Vectors:
        """What it makes of a batch; `kinds` are of tokens, the first unless they are said."""
        at_hand: Mapping[str, Numbers] = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids) if kinds is None else kinds,
            "position_ids": np.broadcast_to(np.arange(ids.shape[1]), ids.shape),
        }
        given = {name: np.ascontiguousarray(at_hand[name], _WHOLE[of]) for name, of in self._inputs.items()}
        return np.asarray(self._session.run([self.output], given)[0], np.float32)


def _overflows() -> bool:
    """Whether sums of products of whole numbers are cut off: on x86-64, where it has no VNNI."""
    try:
        flags = _CPU_INFO.read_text()
    except OSError:
        return False
    return "avx2" in flags and not any(name in flags for name in _VNNI)


def _providers(device: Device) -> list[Any]:
    """In the order in which they are tried."""
    has_cuda = _CUDA in onnxruntime.get_available_providers()
    if device == "cuda" and not has_cuda:
        raise _without_cuda("this ONNX Runtime has no part for it")
    return [(_CUDA, _CUDA_OPTIONS), _CPU] if has_cuda and device != "cpu" else [_CPU]


def _without_cuda(why: str) -> RagError:
    return RagError(
        f"embed on cuda: {why}", "install onnxruntime-gpu in place of onnxruntime, or leave out --device cuda"
    )
