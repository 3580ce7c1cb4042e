"""Runs ops one by one on arrays outside the plan's arena: bodies of control flow, and steps whose sizes runs find out."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from tstatic.comm.group import Communicator
from tstatic.ir.evaluate import allocate, call_ref, infer_outputs, metas_of, settle
from tstatic.ir.frozen import Entry, FrozenOp, SubBlock
from tstatic.ir.opdef import EMPTY
from tstatic.ir.rng import RngKey
from tstatic.ir.tensor_array import TensorArray, holds_tensor_array
from tstatic.ir.types import UNKNOWN, Meta, dtype_of
from tstatic.runtime.out_of_memory import of_op
from tstatic.where import show

Env = dict[str, Any]


def fetch_entry(entry: Entry, env: Mapping[str, Any]) -> Any:
    """Returns the arrays of a slot."""
    if entry is None:
        return None
    if isinstance(entry, str):
        return env[entry]
    return [None if v == EMPTY else env[v] for v in entry]


def store_entry(entry: Entry, result: Any, env: MutableMapping[str, Any]) -> None:
    """Stores an op's result under the values of its slot."""
    if isinstance(entry, str):
        env[entry] = result
    elif entry:
        for value, one in zip(entry, result, strict=True):
            if value != EMPTY:
                env[value] = one


def run_op(op: FrozenOp, env: MutableMapping[str, Any], reserved: Mapping[str, Any]) -> None:
    """Runs one op on the arrays of ``env`` and adds its results, which get new memory."""
    definition = op.definition
    ins = [fetch_entry(e, env) for e in op.inputs]
    wanted = [e is not None for e in op.outputs]
    if definition.objects:
        outs: list[Any] = []
        for slot, entry in zip(definition.outputs, op.outputs, strict=True):
            outs.append([] if slot.name in definition.objects and entry is not None else None)
    else:
        outs = [None] * len(wanted)
    # A tensor array has no metadata of its own, so the reference allocates.
    if definition.infer is not None and not definition.dynamic and not holds_tensor_array(ins):
        metas = infer_outputs(definition, metas_of(ins), op.attrs)
        unknown = any(
            m is not None
            and any(UNKNOWN in one.shape for one in (m if isinstance(m, list) else [m]) if one is not None)
            for m in metas
        )
        if not unknown:
            # Slots that hold objects (tensor arrays) are lists already, and are not allocated.
            memory = allocate([m if w else None for m, w in zip(metas, wanted, strict=True)])
            outs = [o if o is not None else m for o, m in zip(outs, memory, strict=True)]
            call_ref(definition, ins, outs, op.attrs, **reserved)
            for entry, result in zip(op.outputs, outs, strict=True):
                if entry is not None:
                    store_entry(entry, result, env)
            return
    if op.body:
        # A kernel is launched for sizes known before; the ops that it replaces find theirs one after the other.
        made = ChainMap[str, Any]({}, env)
        for one in op.body:
            run_op(one, made, {**reserved, "rng": reserved["rng"].at(one.position)} if "rng" in reserved else reserved)
        env.update({value: made[value] for value in op.writes()})
        return
    # Sizes that depend on values: the reference allocates, and may answer with a view of an input.
    results = definition.ref.compute(ins, outs, op.attrs, reserved)
    taken = [
        a
        for one in ins
        for a in (one if isinstance(one, list) and not isinstance(one, TensorArray) else [one])
        if isinstance(a, np.ndarray)
    ]
    for entry, result in zip(op.outputs, results, strict=True):
        if entry is not None:
            store_entry(entry, _owned(result, taken), env)


def run_op_in_place(
    placed: Collection[str], op: FrozenOp, env: MutableMapping[str, Any], reserved: Mapping[str, Any]
) -> None:
    """Runs one op as :func:`run_op` does; results named in ``placed`` are copied to the arrays that ``env`` has for them."""
    made: dict[str, Any] = {}
    run_op(op, ChainMap(made, env), reserved)
    for value, result in made.items():
        if value in placed:
            settle(env[value], result, op.type)
        else:
            env[value] = result


def run_update(op: FrozenOp, env: MutableMapping[str, Any], reserved: Mapping[str, Any]) -> None:
    """Runs an update whose inputs may have any number of rows; its results have arrays in ``env``, and are written there."""
    ins, outs = ([fetch_entry(e, env) for e in side] for side in (op.inputs, op.outputs))
    call_ref(op.definition, ins, outs, op.attrs, **reserved)


def run_collective(op: FrozenOp, ins: Sequence[Any], communicator: Communicator) -> list[Any]:
    """Runs a collective on arrays of sizes that were not known before; returns its results, in new memory of the device."""
    device = communicator.device
    if op.definition.dynamic:
        # Sizes that the replicas find out together: the reference allocates.
        outs = [None] * len(op.outputs)
        return op.definition.ref.compute(ins, outs, op.attrs, {"group": communicator.of_op(op)})

    def empty(meta: Meta) -> Any:
        return device.empty(meta.shape, meta.dtype.np)

    metas = infer_outputs(op.definition, [_each(_meta, one) for one in ins], op.attrs)
    results = [None if entry is None else _each(empty, meta) for entry, meta in zip(op.outputs, metas, strict=True)]
    start = len(communicator.buffers)
    for function, args in device.bind_collective(op, ins, results, communicator):
        function(*args)
    # Before the buffers go: what is queued still reads them.
    device.synchronize([communicator.stream])
    communicator.free(start)
    return results


def _meta(array: Any) -> Meta:
    return Meta(array.shape, dtype_of(array.dtype))


def _each(function: Callable[[Any], Any], slot: Any) -> Any:
    """Applies a function to what is in a slot: a value, a list of values, or ``None``."""
    if isinstance(slot, list):
        return [_each(function, one) for one in slot]
    return None if slot is None else function(slot)


def _owned(result: Any, taken: Sequence[Any]) -> Any:
    """Copies a result that shares memory with the op's inputs: theirs may be reused while the result is still needed."""
    if isinstance(result, list) and not isinstance(result, TensorArray):
        return [_owned(one, taken) for one in result] if any(isinstance(one, np.ndarray) for one in result) else result
    if isinstance(result, np.ndarray) and any(np.may_share_memory(result, array) for array in taken):
        return np.array(result)
    return result


class BlockRunner:
    """Runs the body of a control-flow op; its reference receives this as ``run_block``.

    Args:
        op: The op that owns the body.
        key: Seed, place and run of the random numbers inside; each execution of the body counts as an iteration.
    """

    def __init__(self, op: FrozenOp, key: RngKey) -> None:
        self.op = op
        self.sub_block: SubBlock = op.sub_blocks[0]
        self.key = key
        self.iteration = 0
        # By identity: equal ops at two places of a body count their iterations apart.
        self._inner = {id(o): BlockRunner(o, key) for o in self.sub_block.ops if o.sub_blocks}

    def names(self, slot: str) -> tuple[str, ...]:
        """Returns the variable names of a slot of the owning op."""
        return self.op.slot_names.get(slot, ())

    def placeholder(self, name: str) -> Any:
        """Returns a value for a variable that the body would have written, had it run: zeros, with unknown sizes 0."""
        value = dict(self.sub_block.outputs)[name]
        meta = self.sub_block.metas[value]
        return np.zeros([max(size, 0) for size in meta.shape], meta.dtype.np)

    def grad_name(self, name: str) -> str:
        """Returns the name of a variable's gradient in a backward body."""
        return f"{self.sub_block.grad_prefix}{name}@GRAD"

    def restart(self) -> None:
        """Resets the iteration count; called at the start of each run of the program."""
        self.iteration = 0

    def run(self, given: Mapping[str, Any]) -> Env:
        """Runs the body once.

        Args:
            given: Variable name -> array, for the variables that the body reads from outside.

        Returns:
            Variable name -> value after the body, and every inner value by name (for the backward pass).
        """
        env: Env = {}
        for name, value in self.sub_block.inputs:
            if name in given:
                env[value] = given[name]
        # Before the ops, from 1: iteration 0 keys the random numbers of ops outside of bodies.
        self.iteration += 1
        for op in self.sub_block.ops:
            key = RngKey(self.key.seed, self.key.place, op.position, self.key.run, self.iteration)
            try:
                run_op(op, env, {"rng": key, "run_block": self._inner.get(id(op))})
            except Exception as raised:
                error = of_op(raised, op)
                annotate(error, op)
                if error is raised:
                    raise
                raise error from raised
        # Inner values stay by name for the backward pass, and the body's variables are added under theirs.
        results: Env = dict(env)
        for name, value in self.sub_block.outputs:
            results[name] = env[value]
        return results

    def before(self, given: Mapping[str, Any], env: Env) -> Env:
        """Returns the values that the backward pass reads: the body's inputs as they were given, and its inner values."""
        return {**env, **{name: given[name] for name, _ in self.sub_block.inputs if name in given}}


def annotate(error: BaseException, op: FrozenOp) -> None:
    """Adds op, variables and the user's line to an error that an op raised."""
    if hasattr(error, "add_context"):
        error.add_context(op=op.type, var=", ".join(list(op.reads())[:6]) or None, where=show(op.where))
    # Bodies nest, and the innermost op is the one that failed: outer ones add nothing to its note.
    elif not getattr(error, "__notes__", None):
        error.add_note(f"while running operator '{op.type}' ({', '.join(op.reads())}), built at {show(op.where)}")
