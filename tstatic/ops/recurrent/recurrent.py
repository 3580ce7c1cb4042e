"""The ``recurrent`` op, which runs a body of ops once per step of its sequences, and the builder of such bodies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.build import LayerNamer, append_op
from tstatic.ir.opdef import Attr, GradOp, OpDef, register
from tstatic.ir.program import Block, Variable
from tstatic.ir.traits import Recurrent
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base import blocks as _blocks
from tstatic.undo import undone_on_error

Arrays = Sequence[Any]


def _given(
    run_block: Any, inputs: Arrays, initial: Arrays, parameters: Arrays
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the sequences by name, and what every step reads; the state is added to that for each step."""
    fixed = dict(zip(run_block.names("parameters"), parameters, strict=True))
    return dict(zip(run_block.names("inputs"), inputs, strict=True)), fixed


def _order(inputs: Arrays, reverse: bool) -> range:
    steps = len(inputs[0])
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _run(
    inputs: Arrays,
    initial: Arrays,
    parameters: Arrays,
    outs: Any,
    last: Any,
    scopes: Any,
    *,
    run_block: Any,
    ex_states: Sequence[str],
    states: Sequence[str],
    final: Sequence[str],
    reverse: bool,
) -> tuple[Any, Any, Any]:
    sequences, fixed = _given(run_block, inputs, initial, parameters)
    # The state of a run without steps is copied out, and the body hands its own on.
    state = dict(zip(ex_states, initial, strict=True))
    if scopes is not None:
        scopes.clear()
        # The arena's buffers are used again before the backward pass, which gets the rest anew.
        state = {n: np.array(a) for n, a in state.items()}
    names = run_block.names("outputs")
    # By the step's number, not in the order of running: `reverse` walks backwards, but outputs stay in place.
    rows: list[Any] = [None] * len(_order(inputs, reverse))
    for t in _order(inputs, reverse):
        env = run_block.run({**fixed, **state, **{n: x[t] for n, x in sequences.items()}})
        if scopes is not None:
            scopes.append(run_block.before(state, env))
        rows[t] = [env[n] for n in names]
        state = {old: env[new] for old, new in zip(ex_states, states, strict=True)}
    made = [
        # Without steps no body ran whose result would tell the dtype; `deliver` copies zero elements anyway.
        np.stack([row[k] for row in rows]) if rows else np.zeros((0, *run_block.placeholder(n).shape), np.float32)
        for k, n in enumerate(names)
    ]
    ends = dict(zip(states, state.values(), strict=True))
    return _blocks.deliver(made, outs), _blocks.deliver([ends[n] for n in final], last), scopes


def _run_grad(
    inputs: Arrays,
    initial: Arrays,
    parameters: Arrays,
    outs: Arrays,
    last: Arrays,
    douts: Arrays,
    dlast: Arrays,
    scopes: Any,
    dinputs: Any,
    dinitial: Any,
    dparameters: Any,
    *,
    run_block: Any,
    ex_states: Sequence[str],
    states: Sequence[str],
    final: Sequence[str],
    reverse: bool,
) -> tuple[Any, Any, Any]:
    sequences, fixed = _given(run_block, inputs, initial, parameters)
    written = {name for name, _ in run_block.sub_block.outputs}
    grad = run_block.grad_name
    ends = dict(zip(final, dlast, strict=True))
    # Gradients of the state after the step, by the name of the state before it.
    carried = {
        old: np.array(ends[new]) if new in ends and ends[new] is not None else np.zeros_like(x)
        for old, new, x in zip(ex_states, states, initial, strict=True)
    }
    to_sequences = {n: np.zeros_like(x) for n, x in sequences.items() if grad(n) in written}
    total = {n: np.zeros_like(x) for n, x in fixed.items() if grad(n) in written}
    # Scopes are numbered as the forward pass ran, so `number` counts them down and `t` is the step that each belongs to.
    order = _order(inputs, reverse)
    for number in range(len(order) - 1, -1, -1):
        t = order[number]
        seeds: dict[str, Any] = {}
        for name, gradient in zip(run_block.names("outputs"), douts, strict=True):
            seeds[name] = gradient[t]
        for old, new in zip(ex_states, states, strict=True):
            # A state may be an output as well: then both gradients arrive at one value.
            seeds[new] = carried[old] if new not in seeds else seeds[new] + carried[old]
        given = {**scopes[number], **fixed, **{n: x[t] for n, x in sequences.items()}}
        done = run_block.run({**given, **{grad(n): g for n, g in seeds.items()}})
        for n, target in to_sequences.items():
            target[t] = done[grad(n)]
        for n, target in total.items():
            # Parameters are read by every step: their gradient is the sum in the order of the backward walk.
            np.add(target, done[grad(n)], target)
        carried = {n: done[grad(n)] if grad(n) in written else np.zeros_like(g) for n, g in carried.items()}

    def results(names: Sequence[str], found: dict[str, Any], like: Arrays) -> list[Any]:
        return [found[n] if n in found else np.zeros_like(x) for n, x in zip(names, like, strict=True)]

    return (
        _blocks.deliver(results(run_block.names("inputs"), to_sequences, inputs), dinputs),
        _blocks.deliver(results(ex_states, carried, initial), dinitial),
        _blocks.deliver(results(run_block.names("parameters"), total, parameters), dparameters),
    )


register(OpDef(
    "recurrent", "inputs*, initial_states*, parameters* -> outputs*, final_states*?, step_scopes?",
    attrs={
        "sub_block": Attr(kind="block"), "ex_states": Attr((), "strs"), "states": Attr((), "strs"),
        "final": Attr((), "strs"), "reverse": False,
    },
    ref=_run, objects=("step_scopes",), traits=(Recurrent(("inputs", "outputs"), "ex_states", "states"),),
    grad=GradOp(
        "inputs*, initial_states*, parameters*, outputs*, final_states*?, outputs@GRAD*, final_states@GRAD*?, step_scopes "
        "-> inputs@GRAD*, initial_states@GRAD*, parameters@GRAD*",
        ref=_run_grad, shape_only=("outputs", "final_states"),
        instead="write the steps as a Python loop over ops or calls of the cell",
    ),
))  # fmt: skip


class StepBuilder:
    """Builds the body of a ``recurrent`` op, which is one step.

    Variables of the body have the name of the value outside of which they are one step or one state; the values outside are
    copies, so that a body may also read the whole sequence under its own name.

    Args:
        helper: Names what is made.
        reverse: Whether the last step runs first.
    """

    def __init__(self, helper: LayerNamer, reverse: bool = False) -> None:
        self.helper = helper
        self.reverse = reverse
        self.inputs: list[Variable] = []
        self.initial: list[Variable] = []
        self.updates: dict[str, Variable] = {}
        self.outputs: list[Variable] = []
        self.final: list[Variable] = []
        self.block: Block | None = None

    @property
    def outside(self) -> LayerNamer:
        """Names and appends to the block that the op will stand in."""
        assert self.block is not None
        parent = self.block.parent
        assert parent is not None
        return LayerNamer(self.helper.prefix, self.helper.name, parent)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Collects the ops of a step."""
        with undone_on_error(self):
            with _blocks.body() as self.block:
                yield
                self._end()
            self._close()

    def _inner(self, outer: Variable, shape: Sequence[int]) -> Variable:
        assert self.block is not None
        var = Variable(self.block, outer.name, shape, outer.dtype, where=outer.made_at)
        # A step of a value inherits whether the whole one takes gradients.
        var._decide(outer._stop_gradient, outer._stop_origin)
        self.block.vars[outer.name] = var
        return var

    def step_input(self, x: Variable) -> Variable:
        """Returns one step of ``x`` ``[steps, ...]``."""
        outer = self.outside.emit("assign", {"X": x})
        self.inputs.append(outer)
        return self._inner(outer, x.shape[1:])

    def memory(self, init: Variable) -> Variable:
        """Returns the state before a step, which begins as ``init``."""
        # A copy under a new name: the inner step shares that name, which must not hide the caller's own variable in the body.
        outer = self.outside.emit("assign", {"X": init})
        # A constant start stops no gradient: later states depend on parameters.
        outer.stop_gradient = not init.dtype.is_float
        self.initial.append(outer)
        return self._inner(outer, init.shape)

    def update(self, memory: Variable, value: Variable) -> None:
        """Makes ``value`` the state after the step."""
        self.updates[memory.name] = value

    def output(self, value: Variable) -> Variable:
        """Adds a result of each step; returns the variable of all steps, which has a value after the block."""
        self.outputs.append(self._result(value))
        return self.outputs[-1]

    def last(self, memory: Variable) -> Variable:
        """Returns the variable of the state after the last step, which has a value after the block."""
        value = self._result(self.updates[memory.name])
        self.updates[memory.name] = value
        self.final.append(value)
        return value

    def _result(self, value: Variable) -> Variable:
        assert self.block is not None
        # Under a name of its own: the value may be a state, a step of an input, or come from outside.
        return LayerNamer(self.helper.prefix, self.helper.name, self.block).emit("assign", {"X": value})  # type: ignore[no-any-return]

    def _end(self) -> None:
        for memory in self.initial:
            if memory.name not in self.updates:
                raise ProgramError(
                    f"memory '{memory.name}' is not updated in the step",
                    expected="update_memory(memory, value) for every memory",
                    received=f"{len(self.updates)} updates for {len(self.initial)} memories",
                    fix="call update_memory at the end of the step, with the memory itself if it does not change",
                    op="recurrent",
                    var=memory.name,
                )
        # A state that is a step of an input, another state or a value from outside gets a variable of the body's own.
        assert self.block is not None
        made = {name for op in self.block.ops for name in op.output_arg_names}
        seen: set[str] = set()
        for name, value in self.updates.items():
            if value.name not in made or value.name not in self.block.vars or value.name in seen:
                self.updates[name] = self._result(value)
            seen.add(self.updates[name].name)

    def _close(self) -> None:
        block = self.block
        assert block is not None
        parent = block.parent
        assert parent is not None
        own = {v.name for v in (*self.inputs, *self.initial)}
        reads = [n for n in _blocks.captures(block)[0] if n not in own]
        steps = self.inputs[0].shape[0] if self.inputs else UNKNOWN

        def outer(inner: Variable, shape: Sequence[int]) -> Variable:
            var = Variable(parent, inner.name, shape, inner.dtype, where=inner.made_at)
            parent.vars[inner.name] = var
            return var

        outputs = [outer(v, (steps, *v.shape)) for v in self.outputs]
        final = [outer(v, v.shape) for v in self.final]
        # Holds what each step kept, one entry a step; its dtype means nothing.
        scopes = self.outside.variable("float32", ())
        scopes.type = "step_scopes"
        append_op(
            parent, "recurrent",
            {"inputs": self.inputs, "initial_states": self.initial, "parameters": reads},
            {"outputs": outputs, "final_states": final or None, "step_scopes": scopes},
            {
                "sub_block": block.idx, "ex_states": tuple(v.name for v in self.initial),
                "states": tuple(self.updates[v.name].name for v in self.initial),
                "final": tuple(v.name for v in self.final), "reverse": self.reverse,
            },
        )  # fmt: skip
        self.outputs, self.final = outputs, final
