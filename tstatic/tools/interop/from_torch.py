"""``from_torch``: a module of torch as a program, exported by ``torch.export``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.errors import ProgramTypeError, TstaticError, UnsupportedError, needed_for, shown
from tstatic.ir.build import as_variable, emit
from tstatic.ir.declare import data, program_guard
from tstatic.ir.export import door
from tstatic.ir.program import Program, Variable
from tstatic.ir.types import UNKNOWN, int64
from tstatic.ops.base.mixed import cast_to
from tstatic.ops.shape.sequence import shape as shape_of
from tstatic.runtime.assign import assign
from tstatic.runtime.scope import Scope, global_scope
from tstatic.tools.interop import (  # noqa: F401 - each registers its converters
    aten_activations,
    aten_arithmetic,
    aten_filled,
    aten_images,
    aten_norms,
    aten_products,
    aten_recurrent,
    aten_reductions,
    aten_shapes,
    values,
)
from tstatic.tools.interop.conversion import FUNCTION, MEMORY, Call, Result, Size, converter_of, sizes_of, torch_dtype
from tstatic.tools.interop.exported import (
    BATCH,
    GRAD_MODE,
    arguments_of,
    export_module,
    functional,
    inner_inputs,
    line_of,
    output_names,
    scope_of,
    written_argument,
)
from tstatic.where import show


@dataclass(frozen=True, eq=False)
class TorchProgram:
    """A module of torch as a program; what :func:`from_torch` returns.

    Attributes:
        program: The module's ``forward``, with its parameters.
        startup: An empty program, for what is added: an optimizer's state. The weights need none.
        feed_names: The inputs, in the order of the module's arguments.
        fetch_vars: The results, in torch's order.
        output_names: What the results are called in what ``forward`` returns: ``"out"``, ``"0"``, ``"logits"``, ``"cache.0"``.
        variables: torch's name of a parameter or buffer -> the Variable; tied weights have one.
        saved_names: The names that torch saves: all but those of buffers that are not persistent.

    Example:
        >>> import torch
        >>> net = paddle.from_torch(torch.nn.Linear(4, 3), torch.zeros(2, 4))
        >>> net.feed_names, net.fetch_vars[0].shape, sorted(net.variables)
        (['input'], (-1, 3), ['bias', 'weight'])
    """

    program: Program
    startup: Program
    feed_names: list[str]
    fetch_vars: list[Variable]
    output_names: list[str]
    variables: dict[str, Variable]
    saved_names: list[str]

    def state_dict(self, scope: Scope | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Returns copies of the weights by torch's names, as ``module.load_state_dict`` takes them once they are tensors.

        Args:
            scope: Where the values are; the global scope if ``None``.

        Raises:
            ProgramError: If the scope has no value for one.

        Example:
            >>> import torch
            >>> module = torch.nn.Linear(4, 3)
            >>> net = paddle.from_torch(module, torch.zeros(2, 4))
            >>> module.load_state_dict({name: torch.from_numpy(a) for name, a in net.state_dict().items()})
            <All keys matched successfully>
        """
        saved = {name: self.variables[name] for name in self.saved_names}
        return values.values_of(saved, global_scope() if scope is None else scope)

    def __repr__(self) -> str:
        results = ", ".join(
            f"{name} {list(v.shape)}" for name, v in zip(self.output_names, self.fetch_vars, strict=True)
        )
        return f"<TorchProgram: {', '.join(self.feed_names)} -> {results}; {self.program!r}>"


@door("from_torch")
def from_torch(module: Any, example: Any, *, dynamic_shapes: Any = BATCH, prefix: str = "") -> TorchProgram:
    """Turns a module of torch into a program, with its weights in the global scope.

    The program computes what ``module.forward`` computes in the module's mode: of a module in training mode, dropout acts and
    batch norms update their running statistics; ``program.clone(for_test=True)`` then freezes both. ``docs/from_torch.md``
    lists the operators.

    Args:
        module: A ``torch.nn.Module``; it is not changed.
        example: What the module is called with: a tensor, a tuple of arguments, or a dict of them by name. Only shapes
            and dtypes count.
        dynamic_shapes: ``"batch"`` leaves the size of the first axis open for all inputs that share it, where the module
            allows that; ``None`` fixes all sizes; else what ``torch.export.export`` takes.
        prefix: What the names of parameters and buffers begin with; behind it they are torch's.

    Returns:
        The program, its inputs and its results.

    Raises:
        ProgramTypeError: If ``module`` is not a module, or the example holds something that is not a tensor.
        UnsupportedError: If torch cannot export the module, or an operator has no counterpart; the message names it and the
            line of the module's code.
        ProgramError: If a name has a value in the scope already.
        MissingPackageError: If torch is not installed. After any error nothing is left in the scope, nor in the default programs.

    Example:
        >>> import torch
        >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> net = paddle.from_torch(module, torch.zeros(2, 4))
        >>> x = np.ones((5, 4), "float32")
        >>> (y,) = static.Executor().run(net.program, feed={net.feed_names[0]: x}, fetch_list=net.fetch_vars)
        >>> np.allclose(y, module(torch.from_numpy(x)).detach(), atol=1e-6)
        True
    """
    with needed_for(FUNCTION):
        import torch  # noqa: F401
    if not isinstance(prefix, str):
        raise ProgramTypeError(
            "The type of 'prefix' in from_torch must be str", expected="a str", received=shown(prefix),
            fix="pass for example prefix='encoder.'", op=FUNCTION, var="prefix",
        )  # fmt: skip
    exported = functional(export_module(module, arguments_of(example), dynamic_shapes))
    scope = global_scope()
    program, startup = Program(), Program()
    with program_guard(program, startup):
        state = values.declare_state(program, module, prefix)
        values.check_names(scope, state.arrays)
        network = _Network(exported, program, state)
        network.build()
    assign(scope, state.arrays)
    saved = [name for name in module.state_dict() if name in state.variables]
    return TorchProgram(program, startup, network.feeds, network.fetches, network.names, state.variables, saved)


# --------------------------------------------------------------------------------------------------------------- network
_WHOLE: Mapping[Any, Callable[[Any, Any], Any]] = {
    operator.add: operator.add, operator.sub: operator.sub, operator.mul: operator.mul, operator.floordiv: operator.floordiv,
    operator.mod: operator.mod,
}  # fmt: skip
"""Python's functions of whole numbers that stand in graphs of torch."""
_COMPARED = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.and_)
"""Functions whose results on sizes only checks of the graph read."""
_CHECKS = ("aten._assert_scalar.default", "aten._assert_tensor_metadata.default", "aten._assert_async.msg",
           "aten.sym_constrain_range_for_size.default", "aten.sym_constrain_range.default")  # fmt: skip


class _Network:
    """Builds one exported module, node by node.

    Attributes:
        feeds: Names of the inputs.
        fetches, names: The results, and what they are called.
    """

    def __init__(self, exported: Any, program: Program, state: values.State) -> None:
        self.exported = exported
        self.program = program
        self.state = state
        self.known: dict[Any, Any] = {}
        self.same: dict[Any, Any] = {}  # node -> the node whose tensor it is, after writes to it
        self.facts: dict[str, Result] = {}
        self.feeds: list[str] = []
        self.fetches: list[Variable] = []
        self.names: list[str] = []
        self.inputs: dict[Any, Any] = {}  # placeholder -> torch's record of it
        self.written: list[tuple[Variable, Variable]] = []  # buffers of the functional form, and their new values

    def build(self) -> None:
        specs = {spec.arg.name: spec for spec in self.exported.graph_signature.input_specs if hasattr(spec.arg, "name")}
        for node in self.exported.graph.nodes:
            if node.op == "placeholder":
                self.inputs[node] = specs.get(node.name)
                self.known[node] = self._input(node, specs.get(node.name))
        self._run(self.exported.graph, self.exported.graph_module)
        self._write_back()

    # ---------------------------------------------------------------------------------------------------------- inputs
    def _input(self, node: Any, spec: Any) -> Any:
        kind = spec.kind.name if spec is not None else ""
        if kind in ("PARAMETER", "BUFFER"):
            variable = self.state.variables[spec.target]
            self.facts[variable.name] = Result(variable.shape, variable.dtype)
            return variable
        value = node.meta.get("val")
        if kind == "CONSTANT_TENSOR":
            constant = as_variable(values.as_array(self.exported.constants[spec.target]))
            self.facts[constant.name] = Result(constant.shape, constant.dtype)
            return constant
        is_tensor = hasattr(value, "dtype")
        if not is_tensor and not hasattr(value, "node"):
            return value  # a number, a text or None, which export makes a part of the program
        if kind != "USER_INPUT" or not is_tensor:
            raise UnsupportedError(
                f"input '{node.name}' of the exported module is not a tensor",
                expected="parameters, buffers, constants and tensors", received=kind if is_tensor else "a size",
                fix="leave such objects out of the module; give numbers without dynamic shapes", op=FUNCTION,
            )  # fmt: skip
        result = Result(sizes_of(value), torch_dtype(value.dtype))
        name = node.name
        while name in self.program.global_block().vars:
            name += "_input"
        variable = data(name, [None if s == UNKNOWN else s for s in result.shape], result.dtype)
        self.facts[name] = result
        self.feeds.append(name)
        return variable

    # ----------------------------------------------------------------------------------------------------------- nodes
    def _run(self, graph: Any, owner: Any) -> Any:
        """Builds the nodes of a graph; returns what it returns."""
        for node in graph.nodes:
            if node.op == "call_function":
                self._call(node, owner)
            elif node.op == "get_attr":
                self.known[node] = getattr(owner, node.target)
            elif node.op == "output":
                result = self._value(node.args[0])
                if owner is self.exported.graph_module:
                    self._outputs(node.args[0])
                return result
        return None

    def _of(self, node: Any) -> Any:
        while node in self.same:
            node = self.same[node]
        return node

    def _value(self, argument: Any) -> Any:
        """Returns an argument with Variables in the place of nodes."""
        if isinstance(argument, list | tuple):
            return [self._value(one) for one in argument]
        if isinstance(argument, dict):
            return {name: self._value(one) for name, one in argument.items()}
        return self.known[self._of(argument)] if hasattr(argument, "all_input_nodes") else argument

    def _call(self, node: Any, owner: Any) -> None:
        name = str(node.target)
        if node.target is operator.getitem:
            self.known[node] = self._value(node.args[0])[node.args[1]]
            return
        if name in _CHECKS or node.target in _COMPARED:
            self.known[node] = None
            return
        if name == GRAD_MODE:
            self.known[node] = self._inner(node)
            self._note(node, self.known[node])
            return
        start = len(self.program.global_block().ops)
        where = line_of(node)
        try:
            made = self._converted(node, name, owner)
        except TstaticError as error:
            raise error.add_context(op=name, where=show(where) if where else None) from None
        finally:
            scope = scope_of(node)
            for op in self.program.global_block().ops[start:]:
                op.where = where or op.where
                op.namescope = scope + op.namescope.removeprefix("/") if scope else op.namescope
        written = written_argument(node)
        if written is not None and isinstance(made, Variable):
            made = cast_to(made, self.facts[self._value(written).name].dtype)
            self.same[node] = self._of(written)
            self.known[self._of(written)] = made
        else:
            self.known[node] = made
        self._note(node, made)

    def _note(self, node: Any, made: Any) -> None:
        """Remembers what torch says about the results."""
        found = node.meta.get("val")
        several = isinstance(made, list | tuple)
        for value, variable in zip(found, made, strict=False) if several else [(found, made)]:
            if isinstance(variable, Variable) and hasattr(value, "dtype"):
                self.facts[variable.name] = Result(sizes_of(value), torch_dtype(value.dtype))

    def _converted(self, node: Any, name: str, owner: Any) -> Any:
        if node.target in _WHOLE or name in ("aten.sym_size.int", "<built-in function truediv>"):
            return self._size(node, name)
        target = name
        if written_argument(node) is not None:
            head, _, overload = name.rpartition(".")
            target = f"{head.removesuffix('_')}.{overload}"
        converter = converter_of(target)
        where = line_of(node)
        if converter is None:
            raise UnsupportedError(
                f"'{name}' has no counterpart among the operators that {FUNCTION} converts",
                expected="operators of the table in docs/from_torch.md",
                received=name,
                fix="write this part of the module with other functions, or leave it out and build it in the program",
                op=name,
                where=show(where) if where else None,
            )
        kwargs = {n: v for n, v in node.kwargs.items() if n not in MEMORY}
        call = Call(name, tuple(_results(node)), self.facts, where)
        return converter(call, *self._value(node.args), **self._value(kwargs))

    def _size(self, node: Any, name: str) -> Any:
        """Returns a size, or what is computed of sizes: a number, or a :class:`Size`."""
        found = node.meta["val"]
        if type(found) is int:
            return found
        if name == "aten.sym_size.int":
            x, axis = self._value(node.args[0]), node.args[1]
            return Size(str(found), lambda: cast_to(shape_of(x)[axis], int64))
        if node.target not in _WHOLE:
            raise UnsupportedError(
                "a size that is known only when the program runs is divided with a fraction",
                expected="+, -, *, // and % of sizes", received=name, fix="use // in the module", op=name,
            )  # fmt: skip
        parts = [self._value(one) for one in node.args]

        def make() -> Variable:
            a, b = (p.variable() if isinstance(p, Size) else as_variable(p, dtype=int64) for p in parts)
            result: Variable = _WHOLE[node.target](a, b)
            return result

        return Size(str(found), make)

    def _inner(self, node: Any) -> Any:
        """Builds a part that the module computes with or without gradients."""
        enabled, inner = node.args[0], self.known[node.args[1]]
        for place, argument in inner_inputs(node, inner.graph):
            self.same[place] = argument
        results = self._run(inner.graph, inner)
        return list(results) if enabled else [_detached(one) for one in results]

    # ---------------------------------------------------------------------------------------------------------- outputs
    def _outputs(self, results: Any) -> None:
        """Notes the results of the module, and in the functional form the new values of buffers."""
        specs = self.exported.graph_signature.output_specs
        shown_results = []
        for node, spec in zip(results, specs, strict=True):
            if spec.kind.name == "BUFFER_MUTATION":
                self.written.append((self.state.variables[spec.target], self._value(node)))
            elif spec.kind.name == "PARAMETER_MUTATION":
                raise _parameter_written(spec.target, self.state.variables[spec.target])
            elif spec.kind.name == "USER_OUTPUT":
                shown_results.append(node)
        for node, name in zip(shown_results, output_names(self.exported, len(shown_results)), strict=True):
            value = self._value(node)
            if isinstance(value, Variable):
                self.fetches.append(value)
                self.names.append(name)
            elif value is not None:
                raise UnsupportedError(
                    f"result '{name}' of the module is not a tensor",
                    expected="tensors, and None, which is left out",
                    received=value.text if isinstance(value, Size) else shown(value),
                    fix="let forward return tensors only; wrap the module in one that leaves the rest out",
                    op=FUNCTION,
                )

    def _write_back(self) -> None:
        """Gives buffers that the module writes to their new values."""
        pairs = list(self.written)
        for node, spec in self.inputs.items():
            if spec is None or spec.kind.name not in ("PARAMETER", "BUFFER"):
                continue
            variable = self.state.variables[spec.target]
            if self.known[node] is not variable:
                if spec.kind.name == "PARAMETER":
                    raise _parameter_written(spec.target, variable)
                pairs.append((variable, self.known[node]))
        for variable, value in pairs:
            if value is not variable:
                # Of a role that clone(for_test=True) leaves out: an evaluation must not count batches.
                with self.program._lr_schedule_guard():
                    emit("assign", {"X": value}, outputs={"Out": variable})


def _parameter_written(name: str, variable: Variable) -> UnsupportedError:
    return UnsupportedError(
        f"the module writes to its parameter '{name}'",
        expected="writes to buffers only",
        received="a write to a parameter",
        fix="register it as a buffer, or update it outside of forward",
        op=FUNCTION,
        var=variable.name,
    )


def _results(node: Any) -> Iterator[Result]:
    found = node.meta.get("val")
    for value in found if isinstance(found, list | tuple) else [found]:
        if hasattr(value, "dtype"):
            yield Result(sizes_of(value), torch_dtype(value.dtype))


def _detached(value: Any) -> Any:
    """Returns a copy of a Variable that no gradient passes."""
    if not isinstance(value, Variable):
        return value
    copied: Variable = emit("assign", {"X": value})
    copied.stop_gradient = True
    return copied
