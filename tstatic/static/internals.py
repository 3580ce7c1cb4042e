"""What scripts take from inside Paddle's modules: names of gradients, checks of arguments, values in scopes, numbers of dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np

from tstatic.errors import DTypeError, FeedTypeError, NotFoundError, ProgramTypeError, shown
from tstatic.ir.checks import check_type as is_instance
from tstatic.ir.declare import default_main_program
from tstatic.ir.export import export
from tstatic.ir.program import Program, Variable
from tstatic.ir.types import DType, dtype_of
from tstatic.no_effect import no_effect
from tstatic.places import Place, cpu_places, cuda_places, to_place
from tstatic.runtime.scope import LoDTensor, Scope, global_scope, tensor_of

Array = np.ndarray[Any, Any]
SUFFIX = "@GRAD"


# ------------------------------------------------------------------------------------------------------ names of gradients
@export(
    "fluid.framework.grad_var_name", "framework.grad_var_name", "fluid.backward._append_grad_suffix_",
)  # fmt: skip
def grad_var_name(var_name: str) -> str:
    """Returns the name of a variable's gradient: ``x@GRAD`` for ``x``.

    Example:
        >>> fluid.framework.grad_var_name("x")
        'x@GRAD'
    """
    return var_name + SUFFIX


@export("fluid.backward._strip_grad_suffix_")
def strip_grad_suffix(name: str) -> str:
    """Returns the name of the variable that a gradient, or a part of one, belongs to; other names are returned as they are."""
    name = name.partition(SUFFIX)[0]
    # Gradients of a second loss begin with it.
    return name.rpartition("grad/")[2]


@export("fluid.backward._as_list")
def as_list(x: Any) -> list[Any]:
    """Returns a sequence as a list, ``None`` as an empty one, and anything else, a text too, as the only entry."""
    if x is None:
        return []
    # Paddle makes letters of a text, which is a name wherever this is called.
    return list(x) if isinstance(x, Sequence) and not isinstance(x, str | bytes) else [x]


# ------------------------------------------------------------------------------------------------------------------ dtypes
@export(
    "fluid.framework.convert_np_dtype_to_dtype_", "framework.convert_np_dtype_to_dtype_",
    "fluid.executor.convert_np_dtype_to_dtype_",
)  # fmt: skip
def convert_np_dtype_to_dtype_(np_dtype: Any) -> DType:
    """Returns the dtype of what numpy, a text or Paddle's number names; ``VarType.FP32`` is one.

    Raises:
        DTypeError: For anything else.
    """
    return dtype_of(np_dtype)


@export("fluid.data_feeder.convert_dtype", "fluid.executor.convert_dtype")
def convert_dtype(dtype: Any) -> str:
    """Returns the name of a dtype; that of bfloat16 is ``uint16``, in which Paddle feeds and fetches it.

    Raises:
        DTypeError: If it is none.

    Example:
        >>> fluid.data_feeder.convert_dtype(fluid.core.VarDesc.VarType.FP32)
        'float32'
    """
    name = dtype_of(dtype).name
    return "uint16" if name == "bfloat16" else name


# ---------------------------------------------------------------------------------------------------- checks of arguments
@export("fluid.data_feeder.check_variable_and_dtype")
def check_variable_and_dtype(
    input: Any, input_name: str, expected_dtype: Sequence[str], op_name: str, extra_message: str = ""
) -> None:
    """Checks that a layer's argument is a Variable of one of some dtypes.

    Args:
        input: The argument.
        input_name: Its name.
        expected_dtype: Names of dtypes; bfloat16 is ``uint16`` or ``bfloat16``.
        op_name: The layer that checks.
        extra_message: A sentence that ends the error's text.

    Raises:
        ProgramTypeError: If it is not a Variable.
        DTypeError: If it is of another dtype.

    Example:
        >>> x = static.data("x", [2], "float32")
        >>> try:
        ...     fluid.data_feeder.check_variable_and_dtype(x, "x", ["int64"], "my_layer")
        ... except TypeError as error:
        ...     print(str(error).splitlines()[0])
        The data type of 'x' in my_layer must be ['int64'], but received float32.
    """
    check_type(input, input_name, Variable, op_name, extra_message)
    check_dtype(input.dtype, input_name, expected_dtype, op_name, extra_message)


@export("fluid.data_feeder.check_type", "fluid.backward.check_type")
def check_type(input: Any, input_name: str, expected_type: Any, op_name: str, extra_message: str = "") -> None:
    """Checks the Python type of a layer's argument.

    Args:
        input, input_name, op_name, extra_message: As in :func:`check_variable_and_dtype`.
        expected_type: A type, or a tuple of types.

    Raises:
        ProgramTypeError: If it is of another type.
    """
    if isinstance(input, expected_type):
        return
    text = (
        f"The type of '{input_name}' in {op_name} must be {expected_type}, but received {type(input)}. {extra_message}"
    )
    raise ProgramTypeError(
        text.rstrip(),
        expected=str(expected_type),
        received=shown(input),
        fix=f"pass another '{input_name}'",
        op=op_name,
    )


@export("fluid.data_feeder.check_dtype")
def check_dtype(
    input_dtype: Any, input_name: str, expected_dtype: Sequence[str], op_name: str, extra_message: str = ""
) -> None:
    """Checks the dtype of a layer's argument.

    Args:
        input_dtype: The dtype.
        input_name, expected_dtype, op_name, extra_message: As in :func:`check_variable_and_dtype`.

    Raises:
        DTypeError: If it is another one.
    """
    name = convert_dtype(input_dtype)
    # Callers list bfloat16 under either name.
    if name in expected_dtype or (name == "uint16" and "bfloat16" in expected_dtype):
        return
    text = (
        f"The data type of '{input_name}' in {op_name} must be {expected_dtype}, but received {name}. {extra_message}"
    )
    raise DTypeError(
        text.rstrip(), expected=str(expected_dtype), received=name,
        fix=f"convert it with paddle.cast({input_name}, '{next(iter(expected_dtype), 'float32')}')", op=op_name,
    )  # fmt: skip


@export("tensor.check_shape", "fluid.data_feeder.check_shape")
def check_shape(
    shape: Any,
    op_name: str,
    expected_shape_type: Any = None,
    expected_element_type: Any = None,
    expected_tensor_dtype: Sequence[str] = ("int32", "int64"),
) -> None:
    """Checks the Python types of a layer's shape, and the dtypes of Variables in it; not the sizes.

    Args:
        shape: The shape: numbers and Variables, or one Variable.
        op_name: The layer that checks.
        expected_shape_type: What the shape may be; a list, a tuple or a Variable if ``None``.
        expected_element_type: What its sizes may be; an int or a Variable if ``None``.
        expected_tensor_dtype: Dtypes of Variables.

    Raises:
        ProgramTypeError: If the shape or a size is of another type.
        DTypeError: If a Variable is of another dtype.

    Example:
        >>> paddle.check_shape([2, -1], "my_layer")
        >>> try:
        ...     paddle.check_shape([2.5], "my_layer")
        ... except TypeError as error:
        ...     print("no size")
        no size
    """
    check_type(shape, "shape", expected_shape_type or (list, tuple, Variable), op_name)
    for size in shape if isinstance(shape, list | tuple) else (shape,):
        # A shape that is one Variable has no elements to check.
        if not isinstance(shape, Variable):
            check_type(size, "element of shape", expected_element_type or (int, Variable), op_name)
        if isinstance(size, Variable):
            check_dtype(size.dtype, "shape", expected_tensor_dtype, op_name)


# ---------------------------------------------------------------------------------------------------- variables and values
@export("fluid.framework._get_var")
def get_var(name: str, program: Program | None = None) -> Variable:
    """Returns the variable of that name in a program's first block.

    Args:
        name: Its name.
        program: The default main program if ``None``.

    Raises:
        ProgramTypeError: If ``name`` is not a str, or ``program`` not a Program.
        NotFoundError: If there is none.
    """
    if program is not None:
        is_instance(program, Program, "program", "_get_var")
    return (program or default_main_program()).global_block().var(name)


@export("fluid.executor._fetch_var")
def fetch_var(name: str, scope: Scope | None = None, return_numpy: bool = True) -> Array | LoDTensor:
    """Returns what a variable holds in a scope.

    Args:
        name: Its name.
        scope: The scope; the global one if ``None``.
        return_numpy: Whether to return a copy as an array rather than the tensor itself.

    Raises:
        ProgramTypeError: If ``name`` is not a str.
        NotFoundError: If the scope has no such variable, or it has no value.
    """
    held = (scope or global_scope()).find_var(is_instance(name, str, "name", "_fetch_var"))
    if held is None or not held.get_tensor()._is_initialized():
        raise NotFoundError(
            f"Cannot find {name} in scope",
            expected="a variable with a value",
            received=repr(name),
            fix="make it persistable (var.persistable = True), so that it keeps its value, or name it in fetch_list",
            var=name,
        )
    tensor = held.get_tensor()
    # A copy: the tensor may be memory that the next run writes.
    return np.array(tensor) if return_numpy else tensor


@export("fluid.executor._as_lodtensor")
def as_lodtensor(data: Any, place: Place, dtype: Any = None) -> LoDTensor:
    """Returns data as a tensor of its own, as feeds are.

    Args:
        data: An array; or a number, or a list of numbers or arrays, which need ``dtype``.
        place: A place; values that are not fed yet lie in the memory of the host.
        dtype: The dtype of what is not an array.

    Raises:
        FeedTypeError: If ``data`` is not an array and there is no ``dtype``, or it is a list of rows of different lengths.
    """
    # Only checked: values stay on the host until they are fed.
    to_place(place)
    if not isinstance(data, np.ndarray):
        if dtype is None:
            raise FeedTypeError(
                "The dtype should be given when feed data is not np.ndarray",
                expected="an array, or a dtype beside the data",
                received=shown(data),
                fix="pass dtype='float32', or np.array(data, 'float32')",
            )
        try:
            data = np.array(data, dtype_of(dtype).np)
        except (ValueError, TypeError) as error:
            raise FeedTypeError(
                "the data cannot become one array",
                expected="numbers of one shape",
                received=str(error),
                fix="fluid.create_lod_tensor takes rows of different lengths",
            ) from None
    return tensor_of(data)


@export("Program._remove_training_info")
@no_effect(clip_extra="operators have no attributes that only training needs")
def _remove_training_info(self: Program, clip_extra: bool = True) -> Program:
    """Returns a copy of the program in which no variable stops gradients, as those of inference models are in Paddle."""
    made = self.clone()
    for var in made.list_vars():
        var.stop_gradient = False
    return made


# ------------------------------------------------------------------------------------------------------------ places, text
@export("fluid.layers.device.get_places")
def get_places(device_count: int | None = None, device_type: str | None = None) -> list[Place]:
    """Returns places to run on, for ``CompiledProgram.with_data_parallel``; Paddle 1.x makes a variable of them.

    Args:
        device_count: How many; all if ``None``.
        device_type: ``"CPU"`` or ``"CUDA"``; CPU if ``None``.

    Raises:
        PlaceError: If there are fewer GPUs.
    """
    if device_type is not None and device_type.lower() in ("cuda", "gpu"):
        # `cuda_places` takes the numbers of devices, not how many there are.
        return list(cuda_places(None if device_count is None else range(device_count)))
    return list(cpu_places(device_count))


@export("fluid.transpiler.details.program_to_code", "fluid.transpiler.details.program_utils.program_to_code")
@no_effect(skip_op_callstack="operators have no such attribute")
def program_to_code(prog: Program, fout: TextIO | None = None, skip_op_callstack: bool = True) -> None:
    """Prints a program as text.

    Args:
        prog: The program.
        fout: A text file to write to; standard output if ``None``.
    """
    print(is_instance(prog, Program, "prog", "program_to_code"), file=fout)
