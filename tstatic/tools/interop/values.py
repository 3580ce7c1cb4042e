"""Parameters, buffers and constants of a module: variables of the program, and arrays for the scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.declare import create_parameter
from tstatic.ir.program import Program, Variable
from tstatic.runtime.scope import Scope
from tstatic.tools.interop.conversion import FUNCTION, torch_dtype

Array = np.ndarray[Any, Any]


def as_array(tensor: Any) -> Array:
    """Returns a copy of a tensor's values; bfloat16 as the type of ``ml_dtypes``."""
    import torch

    host = tensor.detach().cpu().contiguous()
    if host.dtype is torch.bfloat16:
        return np.array(host.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.array(host.numpy())


@dataclass
class State:
    """The state of a module in a program.

    Attributes:
        variables: torch's name -> the Variable; names of one tensor have one Variable.
        arrays: Name of a Variable -> its first value.
    """

    variables: dict[str, Variable] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)


def declare_state(program: Program, module: Any, prefix: str) -> State:
    """Declares a module's parameters and buffers in a program, under their names in torch.

    Tensors that have several names (tied weights) become one variable, with the first of them.

    Args:
        program: Where they are declared.
        module: Whose they are.
        prefix: What the names begin with.
    """
    found = State()
    known: dict[int, Variable] = {}
    parameters = dict(module.named_parameters(remove_duplicate=False))
    for name, tensor in {**parameters, **dict(module.named_buffers(remove_duplicate=False))}.items():
        variable = known.get(id(tensor))
        if variable is None:
            variable = _declare(program, prefix + name, tensor, name in parameters)
            known[id(tensor)] = variable
            found.arrays[variable.name] = as_array(tensor)
        found.variables[name] = variable
    return found


def _declare(program: Program, name: str, tensor: Any, learned: bool) -> Variable:
    dtype, shape = torch_dtype(tensor.dtype), tuple(tensor.shape)
    # A parameter has at least one element.
    if learned and 0 not in shape:
        return create_parameter(program, shape=shape, dtype=dtype, name=name, trainable=bool(tensor.requires_grad))
    return program.global_block().create_var(name=name, shape=shape, dtype=dtype, persistable=True, stop_gradient=True)


def check_names(scope: Scope, names: Iterable[str]) -> None:
    """Refuses names that have values in a scope: another program's weights would be overwritten.

    Raises:
        ProgramError: It names the first ones.
    """
    taken = [name for name in names if scope.array(name) is not None]
    if taken:
        raise ProgramError(
            f"{len(taken)} names of the module's parameters have values in the scope already",
            expected="names that the scope does not have",
            received=", ".join(map(repr, taken[:4])) + ", ..." * (len(taken) > 4),
            fix="pass prefix='another.', or import it in a scope of its own: with static.scope_guard(static.Scope())",
            op=FUNCTION,
            var=taken[0],
        )


def values_of(variables: Mapping[str, Variable], scope: Scope) -> dict[str, Array]:
    """Returns copies of the values of variables by torch's names.

    Raises:
        ProgramError: If the scope has no value for one.
    """
    done = {}
    for name, variable in variables.items():
        value = scope._value(variable.name)
        if value is None:
            raise ProgramError(
                f"the scope has no value for '{variable.name}'",
                expected="the scope in which the module was imported",
                received="a scope without it",
                fix="call it inside of the scope_guard of the import, or pass scope=",
                op=FUNCTION,
                var=variable.name,
            )
        done[name] = value.copy()
    return done
