"""Makes a user's Triton kernel a fusion: an op with a kernel becomes a fused op whose body is the op itself."""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from tstatic.errors import ProgramError, TstaticError
from tstatic.fusion.codegen.kernel import Kernel, KernelArgument, KernelLocal, KernelParameter, Launch, Launches
from tstatic.fusion.codegen.loops.lines import TYPES
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.text.emit import named
from tstatic.fusion.codegen.text.reference import NoNameError, Reference
from tstatic.fusion.codegen.text.script import standalone_main
from tstatic.fusion.engine import Fused, Fusion, Log, Proposal, Proposals, apply
from tstatic.fusion.engine.view import View
from tstatic.ir.evaluate import infer_outputs
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import OPS
from tstatic.ir.types import DType, Meta
from tstatic.locks import parse_module
from tstatic.target import DEFAULT_TARGET, Target
from tstatic.where import show

OPTIONS = ("num_warps",)
"""Options that a launch may set besides the kernel's own parameters."""


# ------------------------------------------------------------------------------------------------------------ its source
def python_function(kernel: Any) -> FunctionType | None:
    """Returns the Python function behind a ``triton.jit`` function, or the function itself; does not import Triton."""
    found = getattr(kernel, "fn", kernel)
    return found if isinstance(found, FunctionType) else None


def accepted(function: Callable[..., Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the attributes that a user's function accepts."""
    params = inspect.signature(function).parameters.values()
    every = any(p.kind is p.VAR_KEYWORD for p in params)
    return {n: v for n, v in attrs.items() if every or n in {p.name for p in params}}


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel's source.

    Attributes:
        text: Text of its module: imports, numbers, the functions that it calls, the kernel.
        name: Name of the function.
        parameters: Names of its parameters, in order.
        constants: The parameters that are ``tl.constexpr``.
    """

    text: str
    name: str
    parameters: tuple[str, ...]
    constants: frozenset[str]


def source_of(kernel: Any, what: str) -> Source:
    """Reads the source of a kernel and of everything that it uses.

    Raises:
        ProgramError: If a source is not available, or it uses something that source text cannot express.
    """
    function = python_function(kernel)
    assert function is not None
    parts: dict[str, str] = {}
    node = collect(function, parts, what, jit=True)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    constants = {a.arg for a in arguments if a.annotation and ast.unparse(a.annotation).endswith("constexpr")}
    text = "\n\n\n".join(["import triton", *parts.values()])
    return Source(text, function.__name__, tuple(a.arg for a in arguments), frozenset(constants))


def collect(function: FunctionType, parts: dict[str, str], what: str, jit: bool) -> ast.FunctionDef:
    """Adds the texts of what a function uses, then its own."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        tree = parse_module(source)
    except (OSError, SyntaxError) as error:
        raise ProgramError(
            f"the text of '{function.__name__}' cannot be read: {what} is generated from it",
            expected="a function that is defined with `def` in a file",
            received=f"{type(error).__name__}: {error}",
            fix="put the function into a file",
        ) from None
    node = tree.body[0]
    # For a lambda, inspect returns the statement that contains it.
    if not isinstance(node, ast.FunctionDef) or node.name != function.__name__:
        raise ProgramError(
            f"{what} needs a function that is defined with `def`",
            expected="def name(...): ...",
            received=source.strip().splitlines()[0],
            fix="define it with `def`",
        )
    own = {a.arg for a in (*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs)}
    # A name that is assigned inside hides one outside.
    own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    inside = [n for statement in node.body for n in ast.walk(statement)]
    # Of a kernel annotations count: `tl.constexpr` is one.
    annotations = [n for a in node.args.args if a.annotation for n in ast.walk(a.annotation)] if jit else []
    carry_names(function, (*annotations, *inside), own, parts, what, jit)
    lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
    parts[function.__name__] = "@triton.jit\n" + "\n".join(lines) if jit else _unannotated(node)
    return node


def carry_names(
    function: FunctionType, nodes: Iterable[ast.AST], own: set[str], parts: dict[str, str], what: str, jit: bool = False
) -> None:
    """Adds the texts of the names that a function reads from outside, in ``nodes``, but for its ``own`` names."""
    known = inspect.getclosurevars(function)
    outside = {**known.globals, **known.nonlocals}
    for name in dict.fromkeys(n.id for n in nodes if isinstance(n, ast.Name)):
        # `getclosurevars` looks at the code, in which annotations may not be.
        value = outside.get(name, function.__globals__.get(name))
        if name not in own and name not in parts and not hasattr(builtins, name) and value is not None:
            _carry(name, value, parts, what, jit, function)


def _unannotated(node: ast.FunctionDef) -> str:
    """Returns a function's source without decorators and annotations, whose names only the user's file imports."""
    # A copy: callers read the annotations of the node.
    bare = copy.deepcopy(node)
    bare.decorator_list, bare.returns = [], None
    for argument in (*bare.args.args, *bare.args.posonlyargs, *bare.args.kwonlyargs):
        argument.annotation = None
    return ast.unparse(bare)


def _carry(name: str, value: Any, parts: dict[str, str], what: str, jit: bool, user: FunctionType) -> None:
    """Adds the text that gives a name its value."""
    inner = python_function(value)
    kind = type(value).__name__
    if isinstance(value, ModuleType):
        parts[name] = f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")
    elif isinstance(value, bool | int | float | str):
        parts[name] = f"{name} = {value!r}"
    elif kind == "constexpr":
        parts[name] = f"{name} = triton.language.constexpr({value.value!r})"
    elif inner is not None and inner.__module__.startswith("triton"):
        parts[name] = f"from {inner.__module__} import {inner.__name__}" + (
            f" as {name}" if inner.__name__ != name else ""
        )
    # A kernel calls only functions that are jitted themselves.
    elif inner is not None and (not jit or inner is not value):
        collect(inner, parts, what, jit)
    else:
        raise ProgramError(
            f"'{user.__name__}' uses '{name}', which the text of {what} cannot carry",
            expected="modules, numbers, texts, tl.constexpr, and functions with @triton.jit",
            received=f"a {kind}",
            fix=f"pass '{name}' as a parameter, or make it one of these",
        )


# ------------------------------------------------------------------------------------------------------------ its launch
@dataclass(frozen=True)
class UserKernel:
    """A kernel that ``register_kernel`` registered.

    Attributes:
        op: Type of the op.
        source: The kernel's source.
        launch: ``(*metas of inputs and outputs, **attributes) -> (grid, {parameter: number})``.
        reference: The function on arrays.
        stated: What else the registration said: ``slots``, ``infer``, ``attrs`` and ``grad``.
    """

    op: str
    source: Source
    launch: Callable[..., tuple[Any, Mapping[str, Any]]]
    reference: Callable[..., Any]
    stated: Mapping[str, Any]

    def kernel(self, body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
        """Returns the kernel of one op for known shapes.

        Raises:
            ProgramError: If the result of ``launch`` does not fit the kernel.
        """
        (op,) = body
        try:
            return self._kernel(op, metas, needed)
        except TstaticError as error:
            raise error.add_context(op=self.op, where=show(op.where)) from None

    def _kernel(self, op: FrozenOp, metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
        definition = op.definition
        pairs = [*zip(definition.inputs, op.inputs, strict=True), *zip(definition.outputs, op.outputs, strict=True)]
        found = _output_metas(op, metas)
        shapes = [metas[str(e)] for e in op.inputs] + found
        if any(0 in m.shape for m in shapes):
            raise CodegenUnsupported("EMPTY", f"{op.type} has no elements", op)
        # For the chip by default: of its numbers only the types are needed here.
        _, given = self._launch(shapes, op.attrs)
        operands: dict[str, tuple[str, DType]] = {}
        partials: dict[KernelLocal, tuple[int, DType]] = {}
        for (slot, entry), meta in zip(pairs, shapes, strict=True):
            value = str(entry)
            if slot in definition.outputs and (entry is None or value not in needed):
                # The kernel writes it even if no op reads it.
                value = KernelLocal(f"partial:{slot.param}")
                partials[value] = meta.numel, meta.dtype
            operands[slot.param] = value, meta.dtype
        parameters = []
        for name in self.source.parameters:
            if name in self.source.constants:
                parameters.append(KernelParameter(name, "constant"))
            elif name in operands:
                value, dtype = operands[name]
                parameters.append(KernelParameter(name, "pointer", TYPES[dtype.name], value))
            else:
                number = given[name] if name in given else op.attrs[name]
                parameters.append(KernelParameter(name, "integer", _type_of(number)))

        def plan(target: Target) -> Launches:
            grid, given = self._launch(shapes, op.attrs, target)
            # What `launch` answers beats an attribute of that name.
            numbers = {**op.attrs, **given}
            arguments = [operands[p.name][0] if p.kind == "pointer" else numbers[p.name]
                         for p in parameters if p.kind != "constant"]  # fmt: skip
            types = [f"*{p.type}" if p.kind == "pointer" else _type_of(numbers[p.name])
                     for p in parameters if p.kind != "constant"]  # fmt: skip
            constants = {p.name: numbers[p.name] for p in parameters if p.kind == "constant"}
            # Triton's own default.
            warps = int(given.get("num_warps", 4))
            launch = Launch(self.source.name, grid, tuple(arguments), constants, warps, tuple(types))
            return Launches((launch,), partials)

        read = [(str(e), metas[str(e)]) for e in op.inputs]
        written = [(str(e), m) for e, m in zip(op.outputs, found, strict=True) if e is not None and str(e) in needed]
        return Kernel(
            named(self.source.text, "user_kernel"),
            f"{self.source.text}\n",
            "user_kernel",
            tuple(parameters),
            tuple(KernelArgument(v, m.dtype, m.numel) for v, m in dict(read).items()),
            tuple(KernelArgument(v, m.dtype, m.numel) for v, m in written),
            plan,
            standalone_main([op], metas, self._exact),
            ops=(op,),
            metas=metas,
        )

    def _blocks(self, target: Target) -> dict[str, int]:
        """Returns the block sizes that ``launch`` leaves to its caller: its parameters with a default, named as constants."""
        known = inspect.signature(self.launch).parameters
        chosen = {n: p.default for n, p in known.items() if n in self.source.constants and isinstance(p.default, int)}
        return {name: target.block(name, size) for name, size in chosen.items()}

    def _launch(
        self, shapes: Sequence[Meta], attrs: Mapping[str, Any], target: Target = DEFAULT_TARGET
    ) -> tuple[tuple[int, ...], dict[str, Any]]:
        answer = self.launch(*shapes, **{**self._blocks(target), **accepted(self.launch, attrs)})
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping)):
            raise ProgramError(
                f"the launch function of '{self.op}' must return a grid and the kernel's other arguments",
                expected="(grid, {parameter: number})",
                received=repr(answer),
                fix="return ((programs,), {'n': x.numel, 'BLOCK': 1024}), for example",
            )
        # A number is a grid of one dimension.
        grid = answer[0] if isinstance(answer[0], tuple) else (answer[0],)
        if not grid or len(grid) > 3 or not all(isinstance(n, int) and n > 0 for n in grid):
            raise ProgramError(
                f"the launch function of '{self.op}' returned something that is not a grid",
                expected="one to three positive ints",
                received=repr(answer[0]),
                fix="round the number of programs up, and launch at least one",
            )
        given = dict(answer[1])
        wanted = {p for p in self.source.parameters if p not in self.slots}
        missing = [p for p in self.source.parameters if p in wanted and p not in given and p not in attrs]
        foreign = [n for n in given if n not in wanted and n not in OPTIONS]
        if missing or foreign:
            raise ProgramError(
                f"the launch function of '{self.op}' does not fit its kernel",
                expected=f"numbers for {', '.join(p for p in self.source.parameters if p in wanted)}",
                received=f"{', '.join(given) or 'none'}",
                fix=f"return {missing[0]!r} as well" if missing else f"leave {foreign[0]!r} out",
            )
        return grid, given

    @property
    def slots(self) -> frozenset[str]:
        """The parameters that are tensors."""
        definition = OPS[self.op]
        return frozenset(s.param for s in (*definition.inputs, *definition.outputs))

    def _exact(self, reference: Reference, op: FrozenOp) -> None:
        """Writes the user's reference into ``reference``, if its source is available."""
        parts: dict[str, str] = {}
        function = python_function(self.reference)
        try:
            if function is None:
                raise NoNameError(self.op)
            collect(function, parts, "the reference", jit=False)
        except ProgramError:
            raise NoNameError(self.op) from None
        # The script has imported numpy itself.
        reference.helpers.update({n: t for n, t in parts.items() if n != "np"})
        attrs = accepted(function, op.attrs).items()
        named_ = [f"{n}={v!r}" for n, v in attrs if isinstance(v, bool | int | float | str)]
        ins = [reference.of(str(e)).text for e in op.inputs]
        call = f"{function.__name__}({', '.join([*ins, *named_])})"
        if len(op.outputs) == 1:
            reference.put(op.outputs[0], call)
            return
        names = [f"r{i}" for i in range(len(op.outputs))]
        reference.lines.append(f"{', '.join(names)} = {call}")
        for entry, name in zip(op.outputs, names, strict=True):
            reference.put(entry, name)


def _output_metas(op: FrozenOp, metas: Mapping[str, Meta]) -> list[Meta]:
    return infer_outputs(op.definition, [metas[str(e)] for e in op.inputs], op.attrs)


def _type_of(number: Any) -> str:
    if isinstance(number, float):
        return "fp32"
    # What does not fit into 32 bits.
    return "i64" if abs(int(number)) >= 1 << 31 else "i32"


# ------------------------------------------------------------------------------------------------------------ the fusion
def _propose(view: View) -> Iterator[Proposal]:
    for index, op in enumerate(view.ops):
        if op.definition.kernel is not None and not op.body:
            yield (index,), partial(_fused, op)


def _fused(op: FrozenOp) -> Fused:
    inputs = {s.name: e for s, e in zip(op.definition.inputs, op.inputs, strict=True)}
    outputs = {s.name: e for s, e in zip(op.definition.outputs, op.outputs, strict=True)}
    return Fused(f"{op.type}_triton", inputs, outputs, dict(op.attrs))


def _kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    made: Kernel = body[0].definition.kernel.kernel(body, metas, needed)
    return made


USER = Fusion("user_kernel", "register_kernel()", Proposals(_propose), kernel=_kernel, exact=True)
"""Applied before any other fusion, whatever the strategy; ``static.no_fuse()`` keeps the reference."""


def present(program: FrozenProgram) -> bool:
    """Returns whether an op has a user's kernel."""
    return any(op.definition.kernel is not None for op in program.ops)


def with_user_kernels(program: FrozenProgram, metas: dict[str, Meta], log: Log) -> FrozenProgram:
    """Gives ops with a user's kernel their kernels."""
    return apply(USER, program, metas, log) if present(program) else program
