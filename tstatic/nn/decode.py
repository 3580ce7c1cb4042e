"""Decoding step by step: ``dynamic_decode``, ``BeamSearchDecoder``, and ``BasicDecoder`` with its helpers."""

from __future__ import annotations

import contextlib
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tstatic.errors import UnsupportedError
from tstatic.ir.build import LayerNamer, append_op, as_variable, check_variable, emit
from tstatic.ir.checks import INDICES, check_callable, check_int, check_static_dim
from tstatic.ir.declare import default_main_program
from tstatic.ir.opdef import export
from tstatic.ir.program import Block, Variable
from tstatic.ir.types import UNKNOWN, bool_, int64
from tstatic.nn.layer.rnn_cells import swap_steps_and_batch
from tstatic.no_effect import no_effect
from tstatic.ops.base import blocks as _blocks
from tstatic.ops.control.loop import While
from tstatic.ops.control.tensor_array import array_write, create_array, join_array

_LOWEST = -1e9
"""The logarithm of a probability that is never chosen."""


def _reshape(x: Variable, shape: tuple[int, ...]) -> Variable:
    return emit("reshape2", {"X": x}, {"shape": shape}, drop=("XShape",))  # type: ignore[no-any-return]


def _cast(x: Variable, dtype: Any) -> Variable:
    return emit("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": dtype})  # type: ignore[no-any-return]


def _map(function: Callable[..., Any], *structures: Any) -> Any:
    leaves = zip(*(_blocks.flatten(one) for one in structures), strict=True)
    return _blocks.pack(structures[0], iter([function(*row) for row in leaves]))


# -------------------------------------------------------------------------------------------------------------- decoders
@export("nn.Decoder", "fluid.layers.Decoder")
class Decoder:
    """Base class of what :func:`dynamic_decode` runs.

    Attributes:
        tracks_own_finished: Whether :meth:`step` itself keeps finished rows finished and counts lengths in its state.

    Example:
        >>> class Counter(paddle.nn.Decoder):
        ...     def initialize(self, inits):
        ...         return inits, inits, inits > 9
        ...     def step(self, time, inputs, states):
        ...         return states, states + 1, states + 1, states > 2
        >>> numbers, last = paddle.nn.dynamic_decode(Counter(), inits=paddle.zeros([1, 1]))
        >>> static.Executor().run(fetch_list=[numbers])[0].ravel()
        array([0., 1., 2., 3.], dtype=float32)
    """

    tracks_own_finished = False

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """Returns the first inputs, the first states, and which rows are finished already.

        Raises:
            UnsupportedError: If the class has none.
        """
        raise self._missing("initialize")

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        """Returns the outputs of a step, the new states, the next inputs, and which rows are finished.

        Args:
            time: The number of the step, int64 ``[1]``.
            inputs, states: Of this step.
            **kwargs: What :func:`dynamic_decode` was given besides.

        Raises:
            UnsupportedError: If the class has none.
        """
        raise self._missing("step")

    @no_effect(sequence_lengths="for decoders of the user's own")
    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Any, Any]:
        """Returns what becomes of the outputs of all steps and the last states: by default what they are.

        Args:
            outputs: Of all steps, ``[steps, batch, ...]``.
            final_states: The states after the last step.
        """
        return outputs, final_states

    def _missing(self, method: str) -> UnsupportedError:
        return UnsupportedError(
            f"{type(self).__name__} has no {method}()",
            expected=f"a method {method}",
            received="a decoder without it",
            fix=f"define {method} in class {type(self).__name__}",
            op=type(self).__name__,
        )


@export("nn.BeamSearchDecoder", "fluid.layers.BeamSearchDecoder")
class BeamSearchDecoder(Decoder):
    """Keeps the ``beam_size`` most probable sequences of each row.

    Args:
        cell: A cell that reads ``[batch * beam_size, ...]``.
        start_token: The first id of every sequence.
        end_token: The id that ends one; an ended sequence goes on with it, at no cost.
        beam_size: How many sequences a row keeps.
        embedding_fn: Maps ids ``[batch, beam_size]`` to the cell's inputs; ``None`` if the cell takes ids.
        output_fn: Maps the cell's outputs ``[batch, beam_size, ...]`` to logits ``[batch, beam_size, vocabulary]``.

    Example:
        >>> cell = paddle.nn.GRUCell(3, 4)
        >>> words, to_words = paddle.nn.Embedding(6, 3), paddle.nn.Linear(4, 6)
        >>> decoder = paddle.nn.BeamSearchDecoder(cell, 0, 1, beam_size=2, embedding_fn=words, output_fn=to_words)
        >>> ids, states = paddle.nn.dynamic_decode(decoder, inits=paddle.zeros([5, 4]), max_step_num=3)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[ids])[0].shape[::2]
        (5, 2)
    """

    OutputWrapper = namedtuple("OutputWrapper", ("scores", "predicted_ids", "parent_ids"))
    StateWrapper = namedtuple("StateWrapper", ("cell_states", "log_probs", "finished", "lengths"))

    tracks_own_finished = True

    def __init__(
        self,
        cell: Any,
        start_token: int,
        end_token: int,
        beam_size: int,
        embedding_fn: Callable[[Variable], Variable] | None = None,
        output_fn: Callable[[Variable], Variable] | None = None,
    ) -> None:
        self.cell = check_callable(cell, "cell", "BeamSearchDecoder", "a cell")
        self.start_token = check_int(start_token, "start_token", "BeamSearchDecoder", 0)
        self.end_token = check_int(end_token, "end_token", "BeamSearchDecoder", 0)
        self.beam_size = check_int(beam_size, "beam_size", "BeamSearchDecoder", 1)
        self.embedding_fn = embedding_fn
        self.output_fn = output_fn

    @staticmethod
    def tile_beam_merge_with_batch(x: Variable, beam_size: int) -> Variable:
        """Returns each row of ``x`` ``[batch, ...]`` ``beam_size`` times: ``[batch * beam_size, ...]``.

        Args:
            x: What a cell reads beside its inputs and states, such as the outputs of an encoder.
            beam_size: How often.

        Example:
            >>> x = paddle.to_tensor([[1.0], [2.0]])
            >>> y = paddle.nn.BeamSearchDecoder.tile_beam_merge_with_batch(x, 2)
            >>> static.Executor().run(fetch_list=[y])[0].ravel()
            array([1., 1., 2., 2.], dtype=float32)
        """
        check_variable(x, "x", "tile_beam_merge_with_batch")
        check_int(beam_size, "beam_size", "tile_beam_merge_with_batch", 1)
        return _merged(_tiled(x, beam_size))

    def initialize(self, initial_cell_states: Any) -> tuple[Any, Any, Variable]:
        """Returns the start tokens, the states of all beams, and that none is finished."""
        size = self.beam_size
        first = check_variable(_blocks.flatten(initial_cell_states)[0], "initial_cell_states", "BeamSearchDecoder")

        def filled(value: Any, dtype: Any) -> Variable:
            attrs = {"shape": (UNKNOWN, size), "dtype": dtype, "value": value}
            return emit("fill_constant_batch_size_like", {"Input": first}, attrs)  # type: ignore[no-any-return]

        states = _map(lambda x: _tiled(x, size), initial_cell_states)
        ids = filled(self.start_token, int64)
        # Only the first beam counts at the start: the others would be the same sequences.
        start = as_variable(np.array([[0.0] + [_LOWEST] * (size - 1)], first.dtype.np))
        log_probs = emit("elementwise_add", {"X": filled(0.0, first.dtype), "Y": start})
        finished = _cast(filled(0, int64), bool_)
        inputs = ids if self.embedding_fn is None else self.embedding_fn(ids)
        return inputs, self.StateWrapper(states, log_probs, finished, filled(0, int64)), finished

    @no_effect(time="every step is alike")
    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        """Runs the cell on all beams and keeps the best of their continuations.

        Args:
            inputs: ``[batch, beam_size, ...]``.
            states: A ``StateWrapper``.
            **kwargs: Further arguments of the cell.
        """
        made, cell_states = self.cell(_map(_merged, inputs), _map(_merged, states.cell_states), **kwargs)
        logits = _apart(made, self.beam_size)
        if self.output_fn is not None:
            logits = self.output_fn(logits)
        vocabulary = check_static_dim(logits.shape[-1], logits, "the last axis (the vocabulary)", "BeamSearchDecoder")
        ended = np.full(vocabulary, _LOWEST, logits.dtype.np)
        ended[self.end_token] = 0
        log_probs = emit("log_softmax", {"X": logits}, {"axis": -1})
        done = emit("unsqueeze2", {"X": states.finished}, {"axes": (2,)}, drop=("XShape",))
        stay = _cast(done, logits.dtype)
        # Of a finished beam, the end token costs nothing, and all others all.
        go = emit("scale", {"X": stay}, {"scale": -1.0, "bias": 1.0})
        kept = emit("elementwise_mul", {"X": stay, "Y": as_variable(ended)})
        log_probs = emit("elementwise_add", {"X": emit("elementwise_mul", {"X": log_probs, "Y": go}), "Y": kept})
        before = emit("unsqueeze2", {"X": states.log_probs}, {"axes": (2,)}, drop=("XShape",))
        total = emit("elementwise_add", {"X": log_probs, "Y": before})
        flat = _reshape(total, (-1, self.beam_size * vocabulary))
        scores, places = emit("top_k_v2", {"X": flat}, {"k": self.beam_size, "axis": -1})
        size = as_variable(np.array(vocabulary, "int64"))
        beams = emit("elementwise_floordiv", {"X": places, "Y": size})
        tokens = emit("elementwise_mod", {"X": places, "Y": size})
        rows = self._rows(beams)

        def chosen(x: Variable) -> Variable:
            return _apart(emit("gather", {"X": _merged(x), "Index": rows}), self.beam_size)

        finished, lengths = chosen(states.finished), chosen(states.lengths)
        lengths = emit("elementwise_add", {"X": lengths, "Y": _cast(emit("logical_not", {"X": finished}), int64)})
        end = as_variable(np.array(self.end_token, "int64"))
        finished = emit("logical_or", {"X": finished, "Y": emit("equal", {"X": tokens, "Y": end})})
        new = _map(lambda x: chosen(_apart(x, self.beam_size)), cell_states)
        outputs = self.OutputWrapper(scores, tokens, beams)
        next_inputs = tokens if self.embedding_fn is None else self.embedding_fn(tokens)
        return outputs, self.StateWrapper(new, scores, finished, lengths), next_inputs, finished

    def _rows(self, beams: Variable) -> Variable:
        """Returns the numbers of the chosen rows of ``[batch * beam_size, ...]``."""
        attrs = {"shape": (UNKNOWN, 1), "dtype": int64, "value": self.beam_size}
        # Counted rather than made by arange, whose size would be known only when it has run.
        counted = emit("cumsum", {"X": emit("fill_constant_batch_size_like", {"Input": beams}, attrs)}, {"axis": 0})
        first = emit("scale", {"X": counted}, {"bias": -float(self.beam_size)})
        return _reshape(emit("elementwise_add", {"X": beams, "Y": first}), (-1,))

    @no_effect(sequence_lengths="ended sequences go on with the end token")
    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Any, Any]:
        """Returns the ids of whole sequences ``[steps, batch, beam_size]``, the best first, and the states.

        Args:
            outputs: An ``OutputWrapper`` of all steps.
            final_states: Returned as they are.
        """
        ids = emit("gather_tree", {"Ids": outputs.predicted_ids, "Parents": outputs.parent_ids})
        return ids, final_states


def _tiled(x: Variable, count: int) -> Variable:
    """Returns ``[batch, count, ...]``: each row as often."""
    column = emit("unsqueeze2", {"X": x}, {"axes": (1,)}, drop=("XShape",))
    return emit("concat", {"X": [column] * count}, {"axis": 1})  # type: ignore[no-any-return]


def _merged(x: Variable) -> Variable:
    """Makes one axis of batch and beams."""
    return _reshape(x, (-1, *x.shape[2:]))


def _apart(x: Variable, beams: int) -> Variable:
    """Makes two axes of batch and beams."""
    return _reshape(x, (-1, beams, *x.shape[1:]))


@export("fluid.layers.BasicDecoder")
class BasicDecoder(Decoder):
    """Runs a cell; a helper chooses the ids and the next inputs.

    Args:
        cell: A cell.
        helper: A :class:`DecodeHelper`, such as :class:`TrainingHelper`.
        output_fn: Applied to the cell's outputs, such as a layer that makes logits.

    Example:
        >>> L = fluid.layers
        >>> helper = L.TrainingHelper(static.data("x", [2, 5, 3]), paddle.to_tensor([5, 2]))
        >>> decoder = L.BasicDecoder(L.GRUCell(4), helper, paddle.nn.Linear(4, 6))
        >>> outputs, state = L.dynamic_decode(decoder, inits=paddle.zeros([2, 4]))
        >>> outputs.cell_outputs.shape
        (2, -1, 6)
    """

    OutputWrapper = namedtuple("OutputWrapper", ("cell_outputs", "sample_ids"))

    def __init__(self, cell: Any, helper: Any, output_fn: Callable[[Variable], Variable] | None = None) -> None:
        self.cell = check_callable(cell, "cell", "BasicDecoder", "a cell")
        self.helper = helper
        self.output_fn = output_fn

    def initialize(self, initial_cell_states: Any) -> tuple[Any, Any, Variable]:
        """Returns the helper's first inputs, the given states, and which rows are finished."""
        inputs, finished = self.helper.initialize()
        return inputs, initial_cell_states, finished

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        """Runs the cell, then asks the helper for ids and the next inputs.

        Args:
            time: The number of the step.
            inputs, states: What the cell reads.
            **kwargs: Further arguments of the cell.
        """
        outputs, states = self.cell(inputs, states, **kwargs)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        ids = self.helper.sample(time=time, outputs=outputs, states=states)
        finished, inputs, states = self.helper.next_inputs(time=time, outputs=outputs, states=states, sample_ids=ids)
        return self.OutputWrapper(outputs, ids), states, inputs, finished


@export("fluid.layers.DecodeHelper")
class DecodeHelper:
    """Base class of helpers: ``initialize()``, ``sample(time, outputs, states)``, ``next_inputs(time, outputs, states,
    sample_ids)``.

    Example:
        >>> helper = fluid.layers.DecodeHelper()
        >>> ids = helper.sample(None, paddle.to_tensor([[0.0, 2.0, 1.0]]), None)
        >>> static.Executor().run(fetch_list=[ids])[0]
        array([1])
    """

    @no_effect(time="every step is alike", states="the logits say all")
    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """Returns the most probable id of each row.

        Args:
            outputs: Logits ``[batch, vocabulary]``.
        """
        return emit("arg_max", {"X": outputs}, {"axis": -1})  # type: ignore[no-any-return]


@export("fluid.layers.TrainingHelper")
class TrainingHelper(DecodeHelper):
    """Feeds the steps of a given sequence, whatever was decoded.

    Args:
        inputs: ``[batch, steps, ...]``, or a nest of such.
        sequence_length: Steps of each row, ``[batch]``.
        time_major: ``inputs`` is ``[steps, batch, ...]``.

    Example:
        >>> helper = fluid.layers.TrainingHelper(static.data("x", [2, 5, 3]), paddle.to_tensor([5, 2]))
        >>> inputs, finished = helper.initialize()
        >>> inputs.shape
        (2, 3)
    """

    def __init__(self, inputs: Any, sequence_length: Variable, time_major: bool = False) -> None:
        self.sequence_length = check_variable(sequence_length, "sequence_length", "TrainingHelper", INDICES)
        given = _map(lambda x: check_variable(x, "inputs", "TrainingHelper"), inputs)
        sequences = given if time_major else _map(swap_steps_and_batch, given)

        def padded(x: Variable) -> Variable:
            first = emit("slice", {"Input": x}, {"axes": (0,), "starts": (0,), "ends": (1,)})
            # The step after the last one is read as well, and its outputs are dropped.
            return emit("concat", {"X": [x, emit("fill_zeros_like", {"X": first})]}, {"axis": 0})  # type: ignore[no-any-return]

        self.inputs = _map(padded, sequences)

    def initialize(self) -> tuple[Any, Variable]:
        """Returns the first step, and which rows have none."""
        zero = as_variable(np.zeros(1, self.sequence_length.dtype.np))
        return self._at(_cast(zero, int64)), emit("equal", {"X": self.sequence_length, "Y": zero})

    def _at(self, time: Variable) -> Any:
        return _map(lambda x: _reshape(emit("gather", {"X": x, "Index": time}), x.shape[1:]), self.inputs)

    @no_effect(outputs="the given sequence is the input", sample_ids="the given sequence is the input")
    def next_inputs(self, time: Variable, outputs: Any, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        """Returns which rows are finished, the next step, and the states.

        Args:
            time: The number of the step, int64 ``[1]``.
            states: Returned as they are.
        """
        following = emit("increment", {"X": time}, {"step": 1.0})
        length = _cast(self.sequence_length, int64)
        return emit("greater_equal", {"X": following, "Y": length}), self._at(following), states


@export("fluid.layers.GreedyEmbeddingHelper")
class GreedyEmbeddingHelper(DecodeHelper):
    """Feeds the most probable word of each step back.

    Args:
        embedding_fn: Maps ids ``[batch]`` to the cell's inputs.
        start_tokens: Ids of the first step, int64 ``[batch]``.
        end_token: The id that ends a row.

    Example:
        >>> words = paddle.nn.Embedding(6, 3)
        >>> helper = fluid.layers.GreedyEmbeddingHelper(words, paddle.zeros([2], "int64"), end_token=1)
        >>> inputs, finished = helper.initialize()
        >>> inputs.shape
        (2, 3)
    """

    def __init__(self, embedding_fn: Callable[[Variable], Variable], start_tokens: Variable, end_token: int) -> None:
        kind = type(self).__name__
        self.embedding_fn = check_callable(embedding_fn, "embedding_fn", kind, "a function of ids")
        self.start_tokens = check_variable(start_tokens, "start_tokens", kind, INDICES)
        self.end_token = check_int(end_token, "end_token", kind, 0)

    def initialize(self) -> tuple[Any, Variable]:
        """Returns the inputs of the start tokens, and that no row is finished."""
        none = _cast(emit("fill_zeros_like", {"X": self.start_tokens}), bool_)
        return self.embedding_fn(self.start_tokens), none

    @no_effect(time="every step is alike", outputs="the ids were chosen from them")
    def next_inputs(self, time: Variable, outputs: Any, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        """Returns which rows end, the inputs of the chosen ids, and the states.

        Args:
            states: Returned as they are.
            sample_ids: The ids chosen in this step.
        """
        end = as_variable(np.array(self.end_token, sample_ids.dtype.np))
        return emit("equal", {"X": sample_ids, "Y": end}), self.embedding_fn(sample_ids), states


@export("fluid.layers.SampleEmbeddingHelper")
class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Draws a word of each step from its probabilities and feeds it back.

    Args:
        embedding_fn, start_tokens, end_token: As in :class:`GreedyEmbeddingHelper`.
        softmax_temperature: Divides the logits; above 1 the draws are more even.
        seed: Seed of the draws; the program's own random numbers by default.

    Example:
        >>> words = paddle.nn.Embedding(6, 3)
        >>> helper = fluid.layers.SampleEmbeddingHelper(words, paddle.zeros([2], "int64"), 1, softmax_temperature=0.5)
        >>> helper.sample(None, static.data("logits", [2, 6]), None).shape
        (2,)
    """

    def __init__(
        self,
        embedding_fn: Callable[[Variable], Variable],
        start_tokens: Variable,
        end_token: int,
        softmax_temperature: float | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding_fn, start_tokens, end_token)
        self.softmax_temperature = softmax_temperature
        self.seed = seed

    @no_effect(time="every step is alike", states="the logits say all")
    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """Returns an id of each row, drawn with the probabilities of the logits.

        Args:
            outputs: Logits ``[batch, vocabulary]``.
        """
        if self.softmax_temperature is not None:
            outputs = emit("scale", {"X": outputs}, {"scale": 1.0 / self.softmax_temperature})
        attrs = {"num_samples": 1, "replacement": False, "seed": self.seed or 0}
        drawn = emit("multinomial", {"X": emit("softmax", {"X": outputs}, {"axis": -1})}, attrs)
        return _reshape(drawn, (-1,) if outputs.shape[0] < 0 else outputs.shape[:1])


# ------------------------------------------------------------------------------------------------------------- decoding
@contextlib.contextmanager
def _in_block(block: Block) -> Iterator[None]:
    """Makes ops go to another block."""
    program = block.program
    before = program.current_block_idx
    program.current_block_idx = block.idx
    try:
        yield
    finally:
        program.current_block_idx = before


@export("nn.dynamic_decode", "fluid.layers.dynamic_decode", op="while")
def dynamic_decode(
    decoder: Any,
    inits: Any = None,
    max_step_num: int | None = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """Calls ``decoder.step`` until all rows are finished.

    Args:
        decoder: A :class:`Decoder`.
        inits: What ``decoder.initialize`` gets, such as the cell's first states.
        max_step_num: Ends after at most ``max_step_num + 1`` steps.
        output_time_major: Outputs are ``[steps, batch, ...]`` instead of ``[batch, steps, ...]``.
        impute_finished: Rows that are finished keep their states.
        is_test: Kept as the loop's attribute; it runs alike in training and in tests.
        return_length: Returns the lengths, too.
        **kwargs: Further arguments of ``decoder.step``.

    Returns:
        The outputs of all steps, the last states and, with ``return_length``, the length of each row. Of a
        :class:`BeamSearchDecoder`: ids ``[batch, steps, beam_size]``, states, and lengths ``[batch, beam_size]``.

    Raises:
        UnsupportedError: If the decoder lacks a method.

    Example:
        >>> cell, words, to_words = paddle.nn.GRUCell(3, 4), paddle.nn.Embedding(6, 3), paddle.nn.Linear(4, 6)
        >>> decoder = paddle.nn.BeamSearchDecoder(cell, 0, 1, 2, words, to_words)
        >>> ids, states, lengths = paddle.nn.dynamic_decode(
        ...     decoder, inits=paddle.zeros([5, 4]), max_step_num=3, return_length=True)
        >>> ids.shape, lengths.shape
        ((5, -1, 2), (5, 2))
    """
    if max_step_num is not None:
        check_int(max_step_num, "max_step_num", "dynamic_decode", 0)
    program = default_main_program()
    inputs, states, finished = decoder.initialize(inits)
    helper = LayerNamer("dynamic_decode")
    lengths = _cast(emit("fill_zeros_like", {"X": _cast(finished, int64)}), int64)

    def own(x: Variable) -> Variable:
        copied = helper.emit("assign", {"X": x})
        # The steps before may depend on parameters, even where the first values do not.
        copied.stop_gradient = not copied.dtype.is_float
        return copied  # type: ignore[no-any-return]

    carried = _map(own, [inputs, states, finished, lengths])
    inputs, states, finished, lengths = carried
    step = emit("fill_constant", {}, {"shape": (1,), "dtype": int64, "value": 0})
    going = _going(finished, step, None)
    parent = program.current_block()
    loop = While(going, is_test=is_test)
    arrays: list[Variable] = []
    with loop.block():
        outputs, new_states, new_inputs, ends = decoder.step(step, inputs, states, **kwargs)
        if decoder.tracks_own_finished:
            new_lengths = getattr(new_states, "lengths", lengths)
        else:
            ends = emit("logical_or", {"X": ends, "Y": finished})
            alive = _cast(emit("logical_not", {"X": finished}), int64)
            new_lengths = emit("elementwise_add", {"X": lengths, "Y": alive})
            if impute_finished:
                new_states = _map(lambda new, old: _kept(finished, old, new), new_states, states)
        for x in _blocks.flatten(outputs):
            with _in_block(parent):
                array = create_array(x.dtype)
            arrays.append(array_write(x, step, array))
        emit("increment", {"X": step}, {"step": 1.0}, outputs={"Out": step})
        # Through copies: a value that is carried may be another one's new value.
        new = _map(lambda x: emit("assign", {"X": x}), [new_inputs, new_states, ends, new_lengths])
        block = program.current_block()
        for value, var in zip(_blocks.flatten(new), _blocks.flatten(carried), strict=True):
            append_op(block, "assign", {"X": value}, {"Out": var})
        append_op(block, "assign", {"X": _going(finished, step, max_step_num)}, {"Out": going})
    made = _blocks.pack(outputs, iter([join_array(array, 0, True, None)[0] for array in arrays]))
    final, states = decoder.finalize(made, states, lengths)
    if not output_time_major:
        final = _map(swap_steps_and_batch, final)
    return (final, states, lengths) if return_length else (final, states)


def _going(finished: Variable, step: Variable, most: int | None) -> Variable:
    """Returns whether a further step is to be made."""
    done = emit("reduce_all", {"X": finished}, {"reduce_all": True})
    going = _reshape(emit("logical_not", {"X": done}), (1,))
    if most is None:
        return going
    few = emit("less_equal", {"X": step, "Y": as_variable(np.array([most], "int64"))})
    return emit("logical_and", {"X": going, "Y": few})  # type: ignore[no-any-return]


def _kept(finished: Variable, old: Variable, new: Variable) -> Variable:
    """Returns ``old`` in finished rows, else ``new``."""
    column = _reshape(finished, (-1, *[1] * (len(new.shape) - len(finished.shape))))
    apart = emit("elementwise_sub", {"X": old, "Y": new})
    chosen = emit("elementwise_mul", {"X": apart, "Y": _cast(column, new.dtype)})
    return emit("elementwise_add", {"X": new, "Y": chosen})  # type: ignore[no-any-return]
