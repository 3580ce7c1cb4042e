"""The peers that a row is measured with: tstatic, its references, and torch; others register by one decorator.

A peer is a function from a :class:`~tstatic.benchlib.cases.Case` to ready runs. Torch's is made from the torch forms that op
definitions state, in the order of the row's program, with torch's own autograd for gradients, so no op is named here.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.attrs import GRAD
from tstatic.ir.opdef import OpDef, op_def
from tstatic.runtime.scope import Scope
from tstatic.static.run.compiled_program import CompiledProgram
from tstatic.static.run.executor import Executor
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy
from tstatic.target import asked_blocks
from tstatic.tools.benchlib.blocks import launched
from tstatic.tools.benchlib.cases import Case, own_attributes, run_references
from tstatic.tools.benchlib.rows import BACKWARD, FORWARD, Row
from tstatic.tools.benchlib.timers import Run, Timer
from tstatic.tools.testing.parts import Array
from tstatic.tools.testing.recipe import Recipe
from tstatic.tools.testing.runner import baseline_of, everything_on


class PeerMissingError(Exception):
    """A peer cannot measure a row: it is not installed, or has no form of it; the text says which."""


@dataclass(frozen=True)
class Competitor:
    """A peer that is ready to run a row.

    Attributes:
        runs: Runs on as many sets of inputs as were asked for.
        results: Runs once, and returns the results in the order of the case's ``compared``, as arrays of the host. It is called
            before any of the runs.
        kernels: Returns the generated kernels that a run launches, as plain data; called after ``results``.
        per_run: How often a run does the row's work; its time is divided by it.
    """

    runs: Sequence[Run]
    results: Callable[[], list[Array]]
    kernels: Callable[[], list[dict[str, Any]]] = list
    per_run: int = 1


class Prepare(Protocol):
    """What a peer is: ``(case, timer, sets) -> Competitor``."""

    def __call__(self, case: Case, timer: Timer, sets: int) -> Competitor: ...


@dataclass(frozen=True)
class Peer:
    """A registered peer.

    Attributes:
        name: What ``--peers`` selects.
        prepare: Makes it ready for a row; raises :class:`PeerMissingError` if it cannot.
        usual: Whether it is measured when nobody names peers.
    """

    name: str
    prepare: Prepare
    usual: bool = True


PEERS: dict[str, Peer] = {}


def peer(name: str, usual: bool = True) -> Callable[[Prepare], Prepare]:
    """Registers a function as a peer.

    Args:
        name: What ``--peers`` selects.
        usual: Whether it is measured when nobody names peers.

    Raises:
        ProgramError: If the name is taken.

    Example:
        >>> @peer("idle", usual=False)
        ... def idle(case, timer, sets):
        ...     return Competitor([lambda: None] * sets, lambda: case.expected)
        >>> PEERS.pop("idle").usual
        False
    """

    def add(prepare: Prepare) -> Prepare:
        if name in PEERS:
            raise ProgramError(
                f"there is a peer '{name}' already", fix=f"give the peer a name of its own, such as '{name}-2'"
            )
        PEERS[name] = Peer(name, prepare, usual)
        return prepare

    return add


# --------------------------------------------------------------------------------------------------------------- tstatic
def strategy_of(row: Row) -> BuildStrategy:
    """Returns the strategy of the peer ``tstatic``."""
    if not row.switch:
        return everything_on()
    strategy = baseline_of(BuildStrategy())
    setattr(strategy, row.switch, True)
    return strategy


MOST_ITERATIONS = 16
LONG = 0.02
"""Most iterations of a run of operators, and seconds from which on a run needs no more: copies of a feed and a result of 4 MiB each
take 0.8 ms together, and relu of as many numbers takes 0.3."""


def executed(strategy: BuildStrategy, case: Case, timer: Timer, sets: int) -> Competitor:
    """Returns an Executor's runs of a case under a strategy, each set of inputs in a scope of its own.

    A run copies what is fed into the Executor's memory and results out of it, once for a step of many operators; the other peers
    take arrays as they lie and leave theirs. So on the CPU a run of a row of operators has several iterations, which share those
    copies. A program of the user's is a whole step, and runs once.
    """
    executor, blocks = Executor(timer.place()), asked_blocks()
    compiled = CompiledProgram(case.program, build_strategy=strategy)

    def begun() -> Scope:
        scope = Scope()
        for name, array in case.state.items():
            scope.publish(name, array.copy())
        return scope

    scopes = [begun() for _ in range(sets)]

    def run(scope: Scope, numpy: bool = False) -> Any:
        return executor.run(compiled, feed=case.feed, fetch_list=case.fetches, scope=scope, return_numpy=numpy)

    def results() -> list[Array]:
        return [*run(scopes[0], True), *(np.asarray(scopes[0].find_var(n).get_tensor()) for n in case.written)]  # type: ignore[union-attr]

    def kernels() -> list[dict[str, Any]]:
        return launched(compiled.plan, blocks)

    if case.row.own is not None or timer.device != "cpu":
        return Competitor([partial(run, scope) for scope in scopes], results, kernels)
    trial = begun()
    run(trial)
    start = time.perf_counter()
    run(trial)
    count = max(1, min(MOST_ITERATIONS, round(LONG / (time.perf_counter() - start))))
    execution = ExecutionStrategy()
    execution.num_iteration_per_run = count
    repeated = CompiledProgram(case.program, build_strategy=strategy, exec_strategy=execution)

    def several(scope: Scope) -> Any:
        return executor.run(repeated, feed=case.feed, fetch_list=case.fetches, scope=scope, return_numpy=False)

    return Competitor([partial(several, scope) for scope in scopes], results, kernels, count)


@peer("tstatic")
def tstatic(case: Case, timer: Timer, sets: int) -> Competitor:
    """An Executor, with the fusion that the row is about turned on, or every one; on CPU places with the chosen backend."""
    return executed(strategy_of(case.row), case, timer, sets)


@peer("unfused")
def unfused(case: Case, timer: Timer, sets: int) -> Competitor:
    """An Executor, with every fusion turned off."""
    return executed(baseline_of(BuildStrategy()), case, timer, sets)


@peer("numpy")
def reference(case: Case, timer: Timer, sets: int) -> Competitor:
    """The references of the ops, one after the other, on one thread of the host: what defines the results."""
    if timer.device != "cpu":
        raise PeerMissingError("the references run on the host only")
    if len(case.program.blocks) > 1:
        raise PeerMissingError("it has branches or loops, which no reference runs by itself")

    def run() -> list[Array]:
        values = run_references(case.program, {**case.state, **case.feed})
        return [values[name] for name in case.compared]

    return Competitor([run] * sets, run)


# ----------------------------------------------------------------------------------------------------------------- torch
@peer("torch")
def torch_eager(case: Case, timer: Timer, sets: int) -> Competitor:
    """Torch, op by op, as the op definitions state it; gradients by torch's autograd."""
    return _torch(case, timer, sets, lambda function: function)


@peer("torch.compile", usual=False)
def torch_compiled(case: Case, timer: Timer, sets: int) -> Competitor:
    """The same function through ``torch.compile``, which needs a C++ compiler on the CPU and takes seconds for each row."""
    torch = import_torch()
    torch._dynamo.reset()
    return _torch(case, timer, sets, partial(torch.compile, dynamic=False))


def import_torch() -> Any:
    """Returns torch; raises :class:`PeerMissingError` without it."""
    try:
        import torch
    except ImportError as error:
        raise PeerMissingError("torch is not installed") from error
    return torch


def _torch(case: Case, timer: Timer, sets: int, compiled: Callable[[Any], Any]) -> Competitor:
    torch = import_torch()
    if timer.device == "cpu":
        torch.set_num_threads(timer.threads)
    if case.trains and case.row.own is None:
        raise PeerMissingError("a step with an optimizer of tstatic has no torch form")
    if case.random:
        raise PeerMissingError("its torch form draws tstatic's numbers, bit by bit, which nobody would run")
    reason = _no_derivative(case)
    if reason:
        raise PeerMissingError(f"the gradient is not what autograd makes: {reason}")
    names, steps, fetches = _own_steps(case) if case.row.own is not None else _steps(case.row.recipe)
    forward = compiled(_forward(torch, names, steps, fetches, timer.device))
    return by_torch(torch, case, timer, sets, forward, names)


def by_torch(
    torch: Any, case: Case, timer: Timer, sets: int, forward: Callable[..., Any], names: Sequence[str]
) -> Competitor:
    """Returns the runs of a function of tensors; gradients by torch's autograd.

    A result that is a view of an input, or one row that is repeated without being written, is copied, as part of the run: a row
    asks for results in memory of their own, and a reader of theirs would have to make the copy.

    Args:
        torch: The library.
        case: The row.
        timer: The device on which tensors lie.
        sets: How many sets of inputs there are.
        forward: ``(*inputs) -> results``, a list in the order of the row's results.
        names: The inputs in the order in which the function takes them.
    """
    recipe = case.row.recipe
    wanted = [n for n in recipe.gradients if n + GRAD in case.fetches]
    runs: list[Run] = []
    borrowed: list[int] | None = None
    for _ in range(sets):
        tensors = {n: tensor_of(torch, a, timer.device) for n, a in case.inputs.items()}
        given = [tensors[name] for name in names]
        if wanted:
            leaves = [tensors[n].requires_grad_() for n in wanted]
            bars = [tensors.get(f"{n}_bar") for n in recipe.fetches]
            run = _with_gradients(torch, forward, given, leaves, bars, case.row.direction)
        else:
            run = partial(_without_gradients, torch, forward, given)
        if borrowed is None:
            borrowed = _borrowed(run(), tensors.values())
        runs.append(partial(_owning, torch, run, borrowed) if borrowed else run)

    def results() -> list[Array]:
        made = list(runs[0]())
        made_names = [n + GRAD for n in wanted]
        if case.row.direction != BACKWARD:
            made_names = [*(recipe.fetches or case.compared), *made_names]
        found = {n: t for n, t in zip(made_names, made, strict=True) if t is not None}
        # No gradient is a gradient of zeros.
        pairs = [(found.get(n), np.asarray(case.expected[i])) for i, n in enumerate(case.compared)]
        return [np.zeros_like(like) if t is None else array_of(torch, t, like) for t, like in pairs]

    return Competitor(runs, results)


def _borrowed(made: Sequence[Any], given: Iterable[Any]) -> list[int]:
    """Returns which results have no memory of their own: views of what was given or of another result, and repeated rows."""
    seen = {one.untyped_storage().data_ptr() for one in given}
    found = []
    for i, one in enumerate(made):
        if one is None:
            continue
        if one.untyped_storage().data_ptr() in seen or not one.is_contiguous():
            found.append(i)
        seen.add(one.untyped_storage().data_ptr())
    return found


def _owning(torch: Any, run: Run, borrowed: Sequence[int]) -> list[Any]:
    made = list(run())
    with torch.no_grad():
        for i in borrowed:
            made[i] = made[i].clone(memory_format=torch.contiguous_format)
    return made


def _no_derivative(case: Case) -> str:
    """Returns why a gradient is by definition something else than the derivative of the results; empty if it is the derivative."""
    if case.row.direction == FORWARD:
        return ""
    domains = [op_def(step.type).domain for step in case.row.recipe.steps]
    return next((str(d.check_grad) for d in domains if d is not None and d.check_grad is not True), "")


def _without_gradients(torch: Any, forward: Any, given: Sequence[Any]) -> Any:
    with torch.no_grad():
        return forward(*given)


def _with_gradients(torch: Any, forward: Any, given: Any, leaves: Any, bars: Any, direction: str) -> Run:
    def targets() -> tuple[list[Any], list[Any], list[Any]]:
        outs = list(forward(*given))
        pairs = [(o, b) for o, b in zip(outs, bars, strict=True) if b is not None and o.requires_grad]
        if not pairs:
            raise PeerMissingError("torch's autograd finds no gradient of its results: measure it with --direction fwd")
        return outs, [o for o, _ in pairs], [b for _, b in pairs]

    def both() -> list[Any]:
        outs, made, seeds = targets()
        return [*outs, *torch.autograd.grad(made, leaves, seeds, allow_unused=True)]

    if direction != BACKWARD:
        return both
    _, made, seeds = targets()
    # The graph is kept, so that each run does the backward work alone.
    return lambda: torch.autograd.grad(made, leaves, seeds, retain_graph=True, allow_unused=True)


@dataclass(frozen=True)
class _Step:
    """An op: its definition and attributes, and the variables of each slot."""

    definition: OpDef
    attrs: Mapping[str, Any]
    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]


Steps = tuple[list[str], list[_Step], list[str]]
"""Inputs, ops and results."""


def _steps(recipe: Recipe) -> Steps:
    steps = [_Step(op_def(s.type), s.all_attrs(), dict(s.inputs), dict(s.outputs)) for s in recipe.steps]
    return [one.name for one in recipe.inputs], steps, list(recipe.fetches)


def _own_steps(case: Case) -> Steps:
    """Returns a user's program as steps, backward operators and updates among them; what it is fed comes first, then its state."""
    if len(case.program.blocks) > 1:
        raise PeerMissingError("it has branches or loops")
    ops = case.program.global_block().ops
    return list(case.inputs), [_Step(op.definition, op.attrs, op.inputs, op.outputs) for op in ops], case.compared


def _forward(
    torch: Any, names: Sequence[str], steps: Sequence[_Step], fetches: Sequence[str], device: str
) -> Callable[..., list[Any]]:
    """Returns steps as a function of tensors: the inputs in their order -> the results in theirs."""
    ops: list[tuple[Any, list[Any], list[Sequence[str]]]] = []
    for step in steps:
        definition = step.definition
        if definition.lower is None:
            raise PeerMissingError(f"'{definition.type}' has no torch form")
        taken = inspect.signature(definition.lower).parameters
        attrs = definition.pick(definition.lower, definition.complete(own_attributes(definition, step.attrs)))
        if "device" in taken:
            attrs["device"] = device
        ins, outs = step.inputs, step.outputs
        if "wanted" in taken:
            attrs["wanted"] = tuple(bool(outs.get(slot.name)) for slot in definition.outputs)
        slots = [
            None if not ins.get(slot.name) else list(ins[slot.name]) if slot.many else ins[slot.name][0]
            for slot in definition.inputs
        ]
        ops.append(
            (partial(definition.lower, torch, **attrs), slots, [outs.get(s.name, ()) for s in definition.outputs])
        )

    def forward(*tensors: Any) -> list[Any]:
        values: dict[str, Any] = dict(zip(names, tensors, strict=True))
        for function, slots, written in ops:
            made = function(*(_look(values, one) for one in slots))
            for row, out in zip(written, made if isinstance(made, tuple) else (made,), strict=False):
                values.update(zip(row, out if isinstance(out, list | tuple) else (out,), strict=False))
        return [values[n] for n in fetches]

    return forward


def _look(values: Mapping[str, Any], slot: Any) -> Any:
    return None if slot is None else [values[n] for n in slot] if isinstance(slot, list) else values[slot]


def tensor_of(torch: Any, array: Array, device: str) -> Any:
    """Returns a tensor of its own with an array's numbers."""
    own = np.array(array, order="C", copy=True)
    if own.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(own.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(own).to(device)


def array_of(torch: Any, tensor: Any, like: Array) -> Array:
    """Returns a tensor's numbers as an array; of integers and truth values in the type of ``like``, as torch has fewer of them."""
    found = tensor.detach().cpu()
    if found.dtype is torch.bfloat16:
        return np.asarray(found.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    array = np.array(found.numpy(), order="C")
    return array.astype(like.dtype) if like.dtype.kind in "iub" and array.dtype.kind in "iub" else array


__all__ = ["PEERS", "Competitor", "Peer", "PeerMissingError", "peer", "tensor_of"]
