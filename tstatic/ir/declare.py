"""The default programs, inputs and parameters declared in them, and guards that mark the ops built inside."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

from tstatic.errors import DTypeError, EmptyNameError, ProgramError, ProgramTypeError, ShapeError, TstaticError, shown
from tstatic.guards import Guarded
from tstatic.ir import names
from tstatic.ir.attrs import LOD
from tstatic.ir.checks import check_int, check_type
from tstatic.ir.export import BUILT_WITH_FLUID, door
from tstatic.ir.names import DEVICE, NAME_SCOPE
from tstatic.ir.opdef import export
from tstatic.ir.program import Parameter, Program, Variable
from tstatic.ir.types import UNKNOWN, DType, dtype_of, int64
from tstatic.ir.variable import check_shape
from tstatic.where import show, user_line

# ----------------------------------------------------------------------------------------------------- default programs
_main = Guarded("main program", Program())
_startup = Guarded("startup program", Program())


def default_main_program() -> Program:
    """Returns the program that layer calls add to: that of this thread's ``program_guard``, else one that all threads share.

    Example:
        >>> x = static.data("x", [2])
        >>> y = paddle.tanh(x)
        >>> [op.type for op in static.default_main_program().global_block().ops]
        ['tanh']
    """
    return _main.get()


def default_startup_program() -> Program:
    """Returns the program that initializers add to: this thread's, set by ``program_guard``, else one that all threads share.

    Example:
        >>> y = static.nn.fc(static.data("x", [None, 3]), size=2)
        >>> [op.type for op in static.default_startup_program().global_block().ops]
        ['uniform_random', 'fill_constant']
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
    """
    return _startup.get()


def _built_with_fluid(result: Any) -> None:
    """Marks the program that a function of ``fluid`` built in, or those in the tuple or list that it returns (a loaded model)."""
    found = [one for one in result if isinstance(one, Program)] if isinstance(result, list | tuple) else []
    for program in found or [default_main_program()]:
        # The program's own mark: under as_paddle, the class has one for all programs.
        if not vars(program).get("fetches_convert"):
            program.fetches_convert = True


BUILT_WITH_FLUID.append(_built_with_fluid)


@door("framework.switch_main_program")
def switch_main_program(program: Program) -> Program:
    """Makes ``program`` the default main program; returns the old one."""
    return _main.switch(program)


@door("framework.switch_startup_program")
def switch_startup_program(program: Program) -> Program:
    """Makes ``program`` the default startup program; returns the old one."""
    return _startup.switch(program)


def reset_default_programs() -> None:
    """Starts with empty default programs and fresh unique names (for tests)."""
    Program._first_seed = 0
    switch_main_program(Program())
    switch_startup_program(Program())
    names.switch()


@contextlib.contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Makes the given programs the default ones inside the ``with`` block, for the thread that enters it.

    Args:
        main_program: The default main program inside the block.
        startup_program: The default startup program inside the block; ``None`` leaves the one outside.

    Raises:
        ProgramTypeError: If an argument is not a Program; it names the argument.

    Example:
        >>> main, startup = static.Program(), static.Program()
        >>> with static.program_guard(main, startup):
        ...     y = paddle.scale(static.data("x", [2]), 3.0)
        >>> feed = {"x": np.array([1, 2], "float32")}
        >>> static.Executor().run(main, feed=feed, fetch_list=[y])
        [array([3., 6.], dtype=float32)]
    """
    for name, program in (("main_program", main_program), ("startup_program", startup_program)):
        if program is not None or name == "main_program":
            make = "make one with static.Program()"
            check_type(program, Program, name, "program_guard", expected="a static.Program", fix=make)
    with _main.inside(main_program):
        if startup_program is None:
            yield
            return
        with _startup.inside(startup_program):
            yield


def in_program_guard() -> bool:
    """Returns whether this thread is inside of a ``program_guard``, and so builds a program."""
    return _main.is_inside()


# ---------------------------------------------------------------------------------------------- inputs and parameters
MAX_LEVELS = 64
"""How deep sequences may be nested in each other; each level has a variable of its own."""


def _refusal(
    function: str, name: str | None, error: type[TstaticError], what: str, expected: object, received: object, fix: str
) -> TstaticError:
    return error(what, expected=expected, received=received, fix=fix, op=function, var=name)


@export("static.data")
def data(name: str, shape: Any, dtype: Any = None, lod_level: int = 0) -> Variable:
    """Declares an input of the program.

    Args:
        name: The key in ``feed``.
        shape: Sizes; ``None`` or ``-1`` where the feed decides.
        dtype: Element type; the default dtype (float32) if ``None``.
        lod_level: How deep the rows are nested in sequences: 1 for rows that are words of sentences. What is fed is then a
            ``LoDTensor``, and ``name@LOD@0`` is the variable of its outermost offsets.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: For a bad name, shape or dtype.
        ProgramError: If the name is taken by a variable of another shape or dtype.

    Example:
        >>> x = static.data("x", shape=[None, 2], dtype="float32")
        >>> y = x * 2
        >>> static.Executor().run(feed={"x": np.array([[1, 2], [3, 4]], "float32")}, fetch_list=[y])[0]
        array([[2., 4.],
               [6., 8.]], dtype=float32)
    """
    if not isinstance(name, str) or not name:
        what = "The type of 'name' in static.data must be str"
        fix = "name the input, for example static.data('x', [None, 3])"
        raise _refusal("data", repr(name), ProgramTypeError, what, "a non-empty str", shown(name), fix)
    sizes = check_shape(shape, "static.data", name)
    try:
        kind = default_dtype() if dtype is None else dtype_of(dtype)
    except TstaticError as error:
        raise error.add_context(op="data", var=name, where=show(user_line())) from None
    lod_level = check_int(lod_level, "lod_level", "static.data", 0, most=MAX_LEVELS)
    block = default_main_program().global_block()
    # The same declaration twice is one input, as in Paddle.
    old = block.vars.get(name)
    if old is not None:
        if old.shape != sizes or old.dtype is not kind:
            what = (
                f"Variable '{name}' has been created before. The previous shape is {old.shape}, the new shape is {sizes}. "
                "They are not matched."
            )
            before, now = f"{old.dtype.name}{list(old.shape)}", f"{kind.name}{list(sizes)}"
            raise _refusal("data", name, ProgramError, what, before, now, "use another name, or one declaration")
        if old.lod_level != lod_level:
            what = f"Variable '{name}' has been created before, with another lod_level"
            raise _refusal(
                "data", name, ProgramError, what, old.lod_level, lod_level, "use another name, or one declaration"
            )
        return old
    var = Variable(
        block, name, sizes, kind, stop_gradient=True, is_data=True, need_check_feed=True, lod_level=lod_level,
        where=user_line(),
    )  # fmt: skip
    block.vars[name] = var
    if lod_level:
        declare_offsets(var)
    block.program._touch()
    return var


@export("fluid.data")
def fluid_data(name: str, shape: Any, dtype: Any = "float32", lod_level: int = 0) -> Variable:
    """Declares an input as :func:`data` does; programs of 1.x begin with it.

    Args:
        name, shape, dtype, lod_level: As there, with its errors.

    Example:
        >>> fluid.data("x", [None, 2]).shape
        (-1, 2)
    """
    return data(name, shape, dtype, lod_level)


def offsets_name(name: str, level: int) -> str:
    """Returns the name of the offsets of a level; 0 is the outermost."""
    return f"{name}{LOD}@{level}"


def declare_offsets(var: Variable) -> None:
    """Declares the offsets of an input of the program, as many as its ``lod_level``."""
    block = var.block
    var.lod = tuple(offsets_name(var.name, level) for level in range(var.lod_level))
    for name in var.lod:
        # Inputs too, since a LoDTensor brings its offsets along.
        block.vars[name] = Variable(
            block, name, (UNKNOWN,), int64, stop_gradient=True, is_data=True, need_check_feed=True, where=var.made_at
        )


def create_parameter(
    program: Program, *, shape: Any, dtype: Any = "float32", name: str | None = None, **kwargs: Any
) -> Parameter:
    """Adds a parameter to the program's global block, or returns the one of that name.

    Raises:
        ShapeError: If a size is unknown or 0, or the name is taken with another shape.
        DTypeError: If the name is taken with another dtype.
    """

    def wrong(*parts: Any) -> TstaticError:
        return _refusal("create_parameter", name, *parts)  # with the name that is generated below

    if shape is None:
        what = "The shape of Parameter should not be None"
        raise wrong(ShapeError, what, "a list of positive ints", "None", "give the parameter's shape")
    sizes = check_shape(shape, "create_parameter", name or "parameter")
    if any(size <= 0 for size in sizes):
        what = f"Each dimension of shape for Parameter must be greater than 0, but received {list(sizes)}"
        fix = "parameters need known sizes: give the input's feature size in static.data"
        raise wrong(ShapeError, what, "positive sizes only", list(sizes), fix)
    kind = dtype_of(dtype)
    block = program.global_block()
    # Only now: a refused call takes no number.
    if name is None:
        name = names.generate("_parameter")
    old = block.vars.get(name)
    if old is not None:
        if not isinstance(old, Parameter) or old.shape != sizes:
            what = f"a variable named '{name}' exists already with another shape"
            fix = "give the parameter another name, or share it with equal shapes"
            raise wrong(ShapeError, what, list(old.shape), list(sizes), fix)
        if old.dtype is not kind:
            what = f"a parameter named '{name}' exists already with another dtype"
            fix = "give the parameter another name, or share it with equal dtypes"
            raise wrong(DTypeError, what, old.dtype.name, kind.name, fix)
        # Layers that name one parameter share it.
        return old
    parameter = Parameter(block, name, sizes, kind, where=user_line(), **kwargs)
    block.vars[name] = parameter
    program._touch()
    return parameter


_default_dtype = dtype_of("float32")


def default_dtype() -> DType:
    """Returns the dtype of ``static.data`` and of parameters when none is given."""
    return _default_dtype


@export("tensor.get_default_dtype", "framework.get_default_dtype")
def get_default_dtype() -> str:
    """Returns the name of the default float type."""
    return _default_dtype.name


@export("tensor.set_default_dtype", "framework.set_default_dtype")
def set_default_dtype(d: Any) -> None:
    """Sets the default float type.

    Raises:
        DTypeError: If it is not a float type.

    Example:
        >>> paddle.set_default_dtype("float64")
        >>> paddle.get_default_dtype(), paddle.ones([2]).dtype
        ('float64', tstatic.float64)
        >>> paddle.set_default_dtype("float32")
    """
    global _default_dtype
    kind = dtype_of(d)
    if not kind.is_float:
        raise DTypeError(
            "the default dtype must be a float type",
            expected="float16, bfloat16, float32 or float64",
            received=kind.name,
            fix="choose a float type",
        )
    _default_dtype = kind


@export("static.name_scope", "fluid.name_scope", "fluid.framework.name_scope")
@contextlib.contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Puts ``prefix/`` into the ``op_namescope`` attribute of ops built inside; names do not change.

    Example:
        >>> with static.name_scope("head"):
        ...     y = static.nn.fc(static.data("x", [None, 2]), 1)
        >>> static.default_main_program().global_block().ops[0].attr("op_namescope")
        '/head/'
    """
    if not isinstance(prefix, str) or not prefix:
        raise EmptyNameError(
            "namescope prefix can not be empty.",
            expected="a non-empty str",
            received=shown(prefix),
            fix="name the scope, for example static.name_scope('encoder')",
            op="name_scope",
        )
    program = default_main_program()
    # Scopes nest: a prefix stands behind those around it.
    # For this program alone: what is built in another one inside the block has no prefix.
    with NAME_SCOPE.inside(f"{NAME_SCOPE.get(program)}{prefix}/", program):
        yield


NO_FUSE = "__no_fuse__"
FUSE_TOGETHER = "__fuse_together_"
# A number for each block: two of them, one after the other, are two kernels.
_together = itertools.count(1)


@export("static.no_fuse")
def no_fuse() -> contextlib.AbstractContextManager[None]:
    """Keeps the ops built inside, and their gradients, out of every fusion, whatever the strategy says.

    The mark is a part of ``op_namescope``, as that of ``amp.fp16_guard``, so that it is saved and printed with the program.
    """
    return name_scope(NO_FUSE)


@export("static.fuse_together")
def fuse_together() -> contextlib.AbstractContextManager[None]:
    """Requires that the ops built inside become one kernel, whatever the strategy says; their gradients need not.

    Running a program in which that cannot be raises UnsupportedError, with the reason, both ops and what to change.
    """
    return name_scope(f"{FUSE_TOGETHER}{next(_together)}__")


@export("static.device_guard", "fluid.device_guard")
@contextlib.contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Sets the ``op_device`` attribute (``"cpu"``, ``"gpu"``, ``"gpu:0"``) of ops built inside.

    Raises:
        ProgramError: For any other text.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> with static.device_guard("cpu"):
        ...     y = x * 2
        >>> static.default_main_program().global_block().ops[-1].attr("op_device")
        'cpu'
    """
    text = "" if device is None else device
    kind, _, index = str(text).partition(":")
    # 'npu' is among the names that Paddle takes.
    if kind not in ("", "cpu", "gpu", "npu") or (index and not index.isdigit()):
        raise ProgramError(
            "The Attr(device) should be 'cpu' 'npu' or 'gpu', and it can also be empty string or None when there is no need "
            f"to specify device. But received {device}",
            expected="'cpu', 'gpu', 'gpu:<number>', '' or None",
            received=repr(device),
            fix="device_guard('cpu'), device_guard('gpu:0') or device_guard()",
        )
    if kind == "cpu" and ":" in str(text):
        raise ProgramError(
            "Should not set device id for cpu.",
            expected="'cpu'",
            received=repr(device),
            fix="leave the number out: there is one CPU",
            op="device_guard",
        )
    program = default_main_program()
    with DEVICE.inside(text, program):
        yield
