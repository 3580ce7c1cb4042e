"""Triton's interpreter without work that it repeats: tests launch thousands of small kernels."""

from __future__ import annotations

import ast
import inspect
from functools import cache, lru_cache
from types import CodeType, FunctionType
from typing import Any

KNOWN = ("3.6.0", "3.7.1")
"""Versions of Triton whose tensors are made of what is set here, and nothing else."""


class _Stays:
    """What is patched stays patched: a process that interprets never compiles."""

    def restore(self) -> None:
        pass


def interpret_quickly() -> None:
    """Makes Triton patch its language once per process, instead of before every launch and every call of a device function.

    To look through the members of the language takes 1.3 ms each time, a fifth of what the launch of a small kernel takes.
    The patched functions are the same each time. Other versions of Triton than those with these functions are left alone.
    """
    try:
        import triton
        from triton.runtime import interpreter
    except ImportError:
        return
    patch = getattr(interpreter, "_patch_lang", None)
    if patch is None or not hasattr(interpreter, "_LangPatchScope"):
        return
    language = (interpreter.tl, interpreter.tl.core)
    patched: set[frozenset[int]] = set()

    def once(function: Any) -> _Stays:
        seen = frozenset(i for i, part in enumerate(language) if any(v is part for v in function.__globals__.values()))
        if seen not in patched:
            patch(function)
            patched.add(seen)
        return _Stays()

    types, of_scalar = interpreter.tl.core, cache(interpreter._get_np_dtype)

    def numpy_type(dtype: Any) -> Any:
        # It makes a table of all types for each question.
        scalar = dtype.element_ty if isinstance(dtype, types.block_type) else dtype
        return pointer if isinstance(scalar, types.pointer_type) else of_scalar(scalar)

    pointer = interpreter._get_np_dtype(types.pointer_type(types.float32))
    interpreter._patch_lang, interpreter._get_np_dtype = once, numpy_type
    if triton.__version__ in KNOWN:
        _make_types_once(types)
        _check_types_once(interpreter, types)
        _call_directly(interpreter)
        _rewrite_quickly(interpreter)


def _make_types_once(core: Any) -> None:
    """Makes Triton construct each type of a block, and the shape of its tensors, once instead of for every operation."""
    block_type = core.block_type
    validate = core.validate_block_shape

    # Typed: `4.0` is no size, though it equals one.
    @lru_cache(maxsize=None, typed=True)
    def sizes(*shape: Any) -> tuple[Any, int, tuple[Any, Any]]:
        if not shape:
            raise TypeError("0d block_type is forbidden")
        numel = validate(shape)
        of_tensor = core.constexpr(numel), core.tuple([core.constexpr(n) for n in shape])
        return core.tuple(shape), numel, of_tensor

    def initialise_type(self: Any, element: Any, shape: Any) -> None:
        assert isinstance(shape, list | tuple | core.tuple)
        self.element_ty = element
        plain = [n.value if isinstance(n, core.constexpr) else n for n in shape]
        self.shape, self.numel, self.of_tensor = sizes(*plain)

    known: dict[tuple[str, int], Any] = {}

    def with_element_type(self: Any, element: Any) -> Any:
        if isinstance(element, core.pointer_type):
            return block_type(element, self.shape)
        # Shapes are made once each, and kept.
        key = element.name, id(self.shape)
        if key not in known:
            known[key] = block_type(element, self.shape)
        return known[key]

    def to_ir(self: Any, builder: Any) -> Any:
        made = self.__dict__.get("made_ir")
        if made is None:
            made = self.made_ir = builder.get_block_ty(self.element_ty.to_ir(builder), self.shape)
        return made

    scalar = core.constexpr(1), core.tuple([])

    def initialise(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type = handle, type
        if isinstance(type, block_type):
            self.dtype = type.element_ty
            self.numel, self.shape = type.of_tensor
        else:
            self.dtype = type.scalar
            self.numel, self.shape = scalar

    block_type.__init__, block_type.with_element_ty, block_type.to_ir = initialise_type, with_element_type, to_ir
    block_type.name = property(lambda self: f"<{self.shape}, {self.element_ty}>")
    core.tensor.__init__ = initialise


ALIKE = {"fp32", "fp64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int1"}
"""Types whose operations on two tensors of one type and shape convert neither operand."""
FLOATS = {"fp32", "fp64"}
WHOLE = {
    "int32": range(-(2**31), 2**31), "int64": range(-(2**31), 2**32), "uint32": range(2**32), "uint64": range(2**32),
}  # fmt: skip
"""Types of whole numbers, and the numbers beside which a tensor keeps its type."""


def _check_types_once(interpreter: Any, core: Any) -> None:
    """Leaves out the checks and conversions of operands that are alike, and of numbers that fit the other operand's type."""
    semantic, tensor = type(interpreter.interpreter_semantic), core.tensor
    check, convert, broadcast = (
        semantic.binary_op_type_checking_impl, semantic.cast, semantic.broadcast_impl_value,
    )  # fmt: skip

    def fits(number: Any, name: str) -> bool:
        return (type(number) is float and name in FLOATS) or (type(number) is int and number in WHOLE.get(name, ()))

    def operands(self: Any, a: Any, b: Any, *how: Any, **named: Any) -> Any:
        if type(a) is tensor and type(b) is tensor:
            if a.dtype.name in ALIKE and a.dtype.name == b.dtype.name:
                return alike(self, a, b)
        elif type(a) is tensor and fits(b, a.dtype.name):
            return broadcast(self, a, self.scalar_constant(b, dtype=a.dtype))
        elif type(b) is tensor and fits(a, b.dtype.name):
            return broadcast(self, self.scalar_constant(a, dtype=b.dtype), b)
        return check(self, a, b, *how, **named)

    def alike(self: Any, a: Any, b: Any) -> Any:
        return (a, b) if a.shape is b.shape else broadcast(self, a, b)

    def cast(self: Any, x: Any, dtype: Any, *rounding: Any, **named: Any) -> Any:
        return x if x.dtype is dtype else convert(self, x, dtype, *rounding, **named)

    def unwrap(value: Any) -> Any:
        kind = type(value)
        return value if kind is tensor or kind is int else value.value if kind is core.constexpr else any_value(value)

    any_value, core._unwrap_if_constexpr = core._unwrap_if_constexpr, unwrap
    semantic.binary_op_type_checking_impl, semantic.cast, semantic.broadcast_impl_value = operands, cast, alike


def _call_directly(interpreter: Any) -> None:
    """Makes the functions of the language call what is behind their wrappers."""

    def patch_attribute(where: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        code = getattr(member, "__code__", None)
        while code is not None and code.co_qualname in WRAPPERS:
            member = member.__closure__[code.co_freevars.index("fn")].cell_contents
            code = getattr(member, "__code__", None)
        semantic = interpreter.interpreter_semantic

        def called(*args: Any, **named: Any) -> Any:
            named["_semantic"] = semantic
            return member(*args, **named)

        scope.set_attr(where, name, called)

    interpreter._patch_attr = patch_attribute


def _rewrite_quickly(interpreter: Any) -> None:
    """Changes the assignments of a kernel alone, whose text is read once, instead of every node of its tree, three times.

    Two in three functions are those of another module, where the prelude's stand, too: their code is moved, not made again.
    """
    known: dict[CodeType, tuple[CodeType, int]] = {}

    def rewrite(self: Any) -> Any:
        code = self.fn.__code__
        # Equal code has equal text; where it stands is no part of it.
        placeless = code.replace(co_firstlineno=1)
        if placeless not in known:
            made = rewritten(self)
            if made is self.fn:
                return made
            known[placeless] = made.__code__, made.__code__.co_firstlineno - code.co_firstlineno
        new, below = known[placeless]
        new = new.replace(co_filename=code.co_filename, co_firstlineno=code.co_firstlineno + below)
        space = self.fn.__globals__
        if "interpreter_semantic" not in space:
            space.update({name: value for name, value in vars(interpreter).items() if name not in space})
        moved = FunctionType(new, space, self.fn.__name__, self.fn.__defaults__, self.fn.__closure__)
        moved.__annotations__, moved.__kwdefaults__ = self.fn.__annotations__, self.fn.__kwdefaults__
        return moved

    def rewritten(self: Any) -> Any:
        try:
            lines, start = inspect.getsourcelines(self.fn)
        except (OSError, TypeError):
            return self.fn
        self.filename, self.def_lineno = self.fn.__code__.co_filename, self._find_def(lines)
        self.def_file_lineno = start + self.def_lineno - 1
        tree = ast.parse("\n" * (self.def_file_lineno - 1) + self._prepare_source(lines))
        _make_tensors(tree.body)
        return self._compile_and_exec(tree)

    interpreter.FunctionRewriter.rewrite_ast = rewrite


def _make_tensors(body: list[Any]) -> None:
    """Makes a tensor of each value that is assigned, as Triton's own transformer does."""
    for one in body:
        if isinstance(one, ast.Assign):
            if len(one.targets) > 1:
                raise ValueError("Multiple assignments are not supported")
            semantic = ast.Name("interpreter_semantic", ast.Load())
            function, unchecked = ast.Attribute(semantic, "to_tensor", ast.Load()), ast.Constant(False)
            call = ast.Call(function, [one.value, unchecked], [])
            for node in (semantic, function, unchecked, call):
                ast.copy_location(node, one.value)
            one.value = call
        for inner in ("body", "orelse"):
            _make_tensors(getattr(one, inner, []))


WRAPPERS = ("builtin.<locals>.wrapper", "_tensor_member_fn.<locals>.wrapper")
