"""Names of Paddle's API that tstatic does not have, and what to use instead."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from tstatic.errors import near

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]

__all__ = ["UNSUPPORTED", "Unsupported", "add_namespace", "advice", "missing_in", "refuse"]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Names that are missing for one reason.

    Attributes:
        names: Below ``paddle``; a name also covers what lies below it.
        why: A sentence.
        use: What a script does instead.
    """

    names: tuple[str, ...]
    why: str
    use: str


def _in(*places: str) -> Callable[[str], tuple[str, ...]]:
    return lambda text: tuple(f"{place}.{name}" for place in places for name in text.split())


_LAYERS = _in("fluid.layers")
_BOTH = _in("static.nn", "fluid.layers")

UNSUPPORTED: tuple[Unsupported, ...] = (
    Unsupported(
        (
            "distributed.fleet", "distributed.ParallelEnv", "distributed.all_reduce", "distributed.all_gather",
            "distributed.spawn", "distributed.launch", "distributed.Shard", "distributed.Replicate", "distributed.Partial",
            "distributed.ProcessMesh", "distributed.shard_tensor", "distributed.shard_layer", "fluid.DistributeTranspiler",
            "fluid.DistributeTranspilerConfig", "fluid.transpiler",
        ),
        "Collectives are operators of data-parallel programs here; fleet, transpilers and process starters are not part of tstatic",
        "static.CompiledProgram(program).with_data_parallel(loss.name) in processes that torchrun starts; distributed.mean(x)",
    ),
    Unsupported(
        (
            *_LAYERS("open_files random_data_generator"),
        ),
        "Readers of record files are not part of tstatic",
        "static.data(name, shape, dtype) for each variable that the reader gave, and 'loader = "
        "fluid.io.DataLoader.from_generator(feed_list=[image, label], capacity=8, iterable=False)'; then start(), exe.run "
        "without a feed, EOFException and reset() as before",
    ),
    Unsupported(
        ("save", "load"),
        "Files hold programs and their variables, not any Python object",
        "static.save(program, path) and static.load(program, path), or np.save for an array",
    ),
    Unsupported(
        ("fluid.evaluator", "fluid.metrics.DetectionMAP"),
        "Evaluators that change the program are not part of tstatic",
        "the metrics of fluid.metrics with fetched values",
    ),
    Unsupported(
        ("fluid.layers.IfElse", "static.nn.IfElse", "static.nn.control_flow", "static.nn.ConditionalBlock",
         "fluid.layers.ConditionalBlock"),
        "Control flow is built from functions here",
        "static.nn.cond, case, switch_case and while_loop; paddle.where chooses row by row, as IfElse did",
    ),
    Unsupported(
        ("linalg", "fft", "signal", "distribution", "geometric", "quantization", "device.cuda"),
        "These packages are not part of tstatic",
        "the functions that stand in the top namespace (paddle.matmul, paddle.norm, ...), or numpy before the feed",
    ),
    Unsupported(("finfo", "iinfo"), "Limits of a dtype are numpy's", "np.finfo('float32') or np.iinfo('int64')"),
    Unsupported(
        ("testing",),
        "tstatic.testing is loaded on demand, because it needs hypothesis",
        "'import tstatic.testing' or 'from tstatic import testing'",
    ),
    Unsupported(
        ("is_compiled_with_npu", "is_compiled_with_mlu", "is_compiled_with_ipu", "is_compiled_with_cinn",
         "is_compiled_with_distribute"),
        "This build has no backend of that kind",
        "False in its place; is_compiled_with_custom_device(name) answers for any name",
    ),
    Unsupported(
        ("inference", "fluid.core.AnalysisConfig", "fluid.core.create_paddle_predictor"),
        "There is no separate predictor",
        "program, feeds, fetches = static.load_inference_model(path, exe), then "
        "exe.run(program, feed=dict(zip(feeds, arrays)), fetch_list=fetches)",
    ),
    Unsupported(
        (
            "dataset", "fluid.DatasetFactory", "distributed.InMemoryDataset", "distributed.QueueDataset",
            "static.Executor.train_from_dataset", "static.Executor.infer_from_dataset",
        ),
        "Downloads and parameter-server data sets are not part of tstatic",
        "arrays that you load yourself (see examples/digits.py)",
    ),
    Unsupported(
        (
            "fluid.create_lod_tensor", "fluid.create_random_int_lodtensor", "fluid.nets.sequence_conv_pool",
            *_BOTH(
                "sequence_pool sequence_conv sequence_softmax sequence_expand sequence_last_step sequence_first_step "
                "sequence_reshape sequence_enumerate sequence_scatter sequence_slice sequence_unpad sequence_pad row_conv "
                "crf_decoding"
            ),
            *_LAYERS("dynamic_lstm dynamic_lstmp dynamic_gru gru_unit lstm_unit lstm lod_reset linear_chain_crf beam_search "
                     "beam_search_decode chunk_eval im2sequence warpctc"),
            *_in("fluid.layers", "tensor")("array_write array_read array_length create_array"),
        ),
        "Sequences of different lengths in one tensor (LoD) and tensor arrays are not part of tstatic",
        "padded batches with a mask, paddle.arange(n) < paddle.unsqueeze(lengths, 1), and static.nn.while_loop for recurrences",
    ),
    Unsupported(
        (
            "static.nn.StaticRNN", "fluid.layers.StaticRNN", "fluid.layers.DynamicRNN", "nn.LSTM", "nn.GRU", "nn.SimpleRNN",
            "nn.LSTMCell", "nn.GRUCell", "nn.BeamSearchDecoder", "nn.dynamic_decode",
        ),
        "Recurrent layers are not part of this release",
        "static.nn.while_loop, or nn.Transformer",
    ),
    Unsupported(
        (
            "amp", "static.amp.debugging",
        ),
        "Mixed precision of eager training is not part of this release",
        "static.amp.decorate(optimizer, dtype='bfloat16')",
    ),
    Unsupported(
        (
            "jit", "Model", "DataParallel", "autograd", "fluid.dygraph.guard", "fluid.dygraph.to_variable",
            "fluid.dygraph.enabled", "fluid.dygraph.load_dygraph", "fluid.dygraph.save_dygraph", "fluid.dygraph.base",
            "fluid.dygraph.jit", "fluid.load_dygraph", "fluid.save_dygraph", "fluid.framework._test_eager_guard",
        ),
        "There is no eager mode: tstatic builds programs and runs them",
        "static.data for inputs, layers on them, and static.Executor.run",
    ),
    Unsupported(
        ("onnx", "static.sparsity", "fluid.incubate", "sparse", "vision", "text", "hub", "audio"),
        "These packages are not part of tstatic",
        "static.save and static.load for parameters, static.nn and nn for layers",
    ),
    Unsupported(
        ("fluid.memory_optimize", "fluid.release_memory"),
        "The memory plan of every run reuses dead buffers already",
        "BuildStrategy.memory_optimize to switch that",
    ),
    Unsupported(
        ("fluid.Generator", "fluid.generator.Generator", "get_cuda_rng_state", "set_cuda_rng_state", "get_rng_state"),
        "Random numbers are counted, so there is no generator whose state could be kept",
        "paddle.seed or Program.random_seed; static.save keeps the run count",
    ),
    Unsupported(
        ("static.WeightNormParamAttr", "fluid.WeightNormParamAttr", "fluid.param_attr.WeightNormParamAttr"),
        "Weight normalisation as an attribute is not part of tstatic",
        "the formula in the program: w * (g / paddle.norm(w))",
    ),
    Unsupported(
        ("fluid.optimizer.GradientMergeOptimizer",),
        "This wrapper is not part of this release",
        "a larger batch",
    ),
    Unsupported(
        ("static.nn.sparse_embedding", "static.nn.nce", "fluid.layers.nce", "fluid.layers.hsigmoid",
         "fluid.layers.sampled_softmax_with_cross_entropy"),
        "Parameter-server tables and sampled losses are not part of tstatic",
        "static.nn.embedding and nn.functional.cross_entropy",
    ),
)  # fmt: skip


_NAMESPACES: dict[str, Callable[[], Iterable[str]]] = {}
"""Public module, below ``paddle`` -> its names; a search for a missing name goes through all of them."""


def advice(name: str) -> str:
    """Returns why ``name`` (below ``paddle``) is missing and what to use instead; empty if nothing is known of it."""
    parts = name.split(".")
    prefixes = {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
    for entry in UNSUPPORTED:
        if prefixes.intersection(entry.names):
            return f"{entry.why}: use {entry.use}."
    return ""


def _elsewhere(name: str) -> str:
    """Says which other namespaces have a name; those of 1.x are named only if no other has it."""
    found = [f"{module}.{name}".lstrip(".") for module, names in _NAMESPACES.items() if name in names()]
    found = [one for one in found if not one.startswith("fluid.")] or found
    found.sort(key=lambda one: (one.count("."), one))
    return f"it is {' or '.join(found[:3])}" if found else ""


def add_namespace(module: str, names: Callable[[], Iterable[str]]) -> None:
    """Says which names a public module has; ``names`` is called when one of any module is missing."""
    _NAMESPACES[module.partition(".")[2]] = names


class _Message:
    """What an AttributeError says, worked out when it is read: ``hasattr`` never reads it."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text()

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def refuse(module: str, name: str, caller: FrameType, load: Callable[[], None] = lambda: None) -> NoReturn:
    """Answers for a name that a public module does not have: says what to use instead, or a near one.

    Args:
        module: Its ``__name__``.
        name: The missing name.
        caller: The frame that asks.
        load: Imports the modules whose names can be suggested.

    Raises:
        ImportError: If a ``from module import name`` asks: Python's own would not say what to use instead.
        AttributeError: In all other cases.
    """
    if name.startswith("__"):
        raise AttributeError(name)

    def text(start: str) -> str:
        load()
        have = sorted(_NAMESPACES[module.partition(".")[2]]())
        hint = advice(f"{module}.{name}".partition(".")[2]) or _elsewhere(name) or near(name, have, 0.75)
        return f"{start}. {hint}".rstrip()

    if caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM:
        raise ImportError(text(f"cannot import name '{name}' from '{module}'"), name=module)
    raise AttributeError(_Message(lambda: text(f"module '{module}' has no attribute '{name}'")), name=name)


def missing_in(module: str, names: Iterable[str]) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a module whose names are all there; see :func:`refuse`."""
    have = tuple(names)
    add_namespace(module, lambda: have)
    return lambda name: refuse(module, name, sys._getframe(1))
