"""Building programs: check, infer, name, and remember the user's line of every op."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import (
    DTypeError,
    NotFoundError,
    ProgramError,
    ProgramTypeError,
    ShapeError,
    TstaticError,
    near,
    shown,
)
from tstatic.ir import names
from tstatic.ir.attrs import packed
from tstatic.ir.budget import OP, building
from tstatic.ir.checks import same_shape
from tstatic.ir.composed import Composed, composed_op
from tstatic.ir.declare import default_main_program, program_guard
from tstatic.ir.evaluate import infer_with_unchecked
from tstatic.ir.lod import give_offsets, with_offsets
from tstatic.ir.opdef import EMPTY, LOD, NO_ATTRS, OpDef, Slot, op_def
from tstatic.ir.operator import OpRole, unknown
from tstatic.ir.program import Block, Operator, Variable
from tstatic.ir.rng import op_position
from tstatic.ir.types import Meta, dtype_of, plain
from tstatic.undo import undone_on_error
from tstatic.where import Where, show, user_line

# Attributes that any op may be given.
AUTOMATIC = ("op_role", "op_role_var", "op_namescope", "op_callstack", "op_device", "with_quant_attr")
# Those that choose a library, a kernel or its layout in Paddle. An op that has none of the name drops it.
KERNEL_ATTRS = {
    "use_cudnn", "use_mkldnn", "use_quantizer", "mkldnn_data_type", "data_format", "workspace_size_MB", "exhaustive_search",
    "overwrite", "is_test",
}  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- checks
def check_variable(x: Any, arg: str, function: str, dtypes: Sequence[str] | None = None) -> Variable:
    """Returns ``x`` if it is a Variable (of one of ``dtypes``).

    Raises:
        ProgramTypeError: If it is something else.
        DTypeError: If its dtype is not among ``dtypes``.
    """
    if not isinstance(x, Variable):
        raise ProgramTypeError(
            f"The type of '{arg}' in {function} must be Variable",
            expected="a Variable of the program",
            received=f"{type(x).__name__}" + (f" {x!r}" if isinstance(x, int | float | str) else ""),
            fix=f"make '{arg}' a Variable: static.data(...) for an input, paddle.full(...) or paddle.assign(array) for a constant",
            op=function,
            var=arg,
        )
    if dtypes is not None and x.dtype.name not in dtypes:
        raise DTypeError(
            f"The data type of '{arg}' in {function} is not supported",
            expected=f"one of {', '.join(dtypes)}",
            received=x.dtype.name,
            fix=f"convert it with paddle.cast({x.name}, '{dtypes[0]}')",
            op=function,
            var=x.name,
        )
    return x


def as_variable(x: Any, like: Variable | None = None, dtype: Any = None) -> Variable:
    """Turns a number or an array into a Variable (``fill_constant`` or ``assign_value``); a Variable is returned as it is.

    Args:
        x: A Variable, a Python or numpy number, a list, or an array.
        like: Takes the dtype of this Variable for numbers.
        dtype: The wanted dtype; beats ``like``.
    """
    if isinstance(x, Variable):
        return x
    # A number of Python becomes complex64, as one without an imaginary part becomes float32.
    if isinstance(x, complex | np.complexfloating):
        x = np.asarray(x, None if isinstance(x, np.complexfloating) else np.complex64)
    if isinstance(x, bool | int | float | np.bool_ | np.integer | np.floating):
        wanted = dtype_of(dtype) if dtype is not None else (like.dtype if like is not None else None)
        if wanted is None:
            wanted = dtype_of("bool" if isinstance(x, bool) else "int64" if isinstance(x, int) else "float32")
        filled: Variable = emit(
            "fill_constant", {}, {"shape": (), "dtype": wanted, "value": float(x) if wanted.is_inexact else int(x)}
        )
        return filled
    if isinstance(x, list | tuple | np.ndarray):
        array = plain(x, "the operand", "assign_value")
        if array.dtype.kind not in "biufcV":
            raise ProgramTypeError(
                "this list or array cannot become a Variable",
                expected="numbers of one shape",
                received=f"an array of dtype {array.dtype}",
                fix="pass a rectangular list of numbers",
            )
        if dtype is not None:
            array = array.astype(dtype_of(dtype).np)
        # Floats of Python are float32, as in Paddle; an array says itself what it is.
        elif array.dtype == np.float64 and not isinstance(x, np.ndarray):
            array = array.astype(np.float32)
        elif array.dtype == np.complex128 and not isinstance(x, np.ndarray):
            array = array.astype(np.complex64)
        attrs = {"shape": array.shape, "dtype": dtype_of(array.dtype), "values": packed(array)}
        made: Variable = emit("assign_value", {}, attrs)
        return made
    return check_variable(x, "x", "as_variable")


# ------------------------------------------------------------------------------------------------------------ append_op
def _slot_names(
    definition: OpDef, block: Block, slots: Mapping[str, Slot], given: Mapping[str, Any], side: str
) -> dict[str, tuple[str, ...]]:
    """Checks one side of an op; returns slot -> names, without absent slots."""
    done: dict[str, tuple[str, ...]] = {}
    for name, value in given.items():
        slot = slots.get(name)
        if slot is None:
            see = f"see the slots of '{definition.type}' in docs/ops.md"
            raise unknown(ProgramError, definition.type, side, name, slots, see)
        if value is None:
            continue
        items = value if isinstance(value, list | tuple) else (value,)
        if len(items) > 1 and not slot.many:
            raise ProgramError(
                f"{side.capitalize()} {name} expects only one {side}, but {len(items)} are given.",
                expected="one variable",
                received=f"{len(items)} variables",
                fix=f"pass a single variable for '{name}'",
            )
        row = []
        for item in items:
            if isinstance(item, Variable):
                row.append(item.name)
                if item.block.program is not block.program and block._find_var_recursive(item.name) is None:
                    raise ProgramError(
                        f"variable '{item.name}' belongs to another program",
                        expected="a variable of the program that is being built",
                        received=repr(item),
                        fix="build both inside the same static.program_guard(...)",
                        var=item.name,
                    )
            elif isinstance(item, str):
                if block._find_var_recursive(item) is None:
                    raise NotFoundError(
                        f"operator '{definition.type}' names a variable that the program does not have",
                        expected="a variable that was created before",
                        received=repr(item),
                        fix=near(item, block.vars) or "create it first with block.create_var(name=...)",
                        var=item,
                    )
                row.append(item)
            else:
                raise ProgramTypeError(
                    f"The type of '{name}' in operator {definition.type} should be one of Variable, str",
                    expected="a Variable or its name",
                    received=shown(item),
                    fix=f"make '{name}' a Variable: static.data(...) or paddle.full(...)",
                    var=name,
                )
        if row or slot.many:
            done[name] = tuple(row)
    for name, slot in slots.items():
        if name in done or slot.optional or (slot.many and name in given):
            continue
        # Variables for offsets that the op computes are made with it.
        if side == "input" or not name.endswith(LOD):
            raise ProgramError(
                f"{side.capitalize()} {name} not found: operator '{definition.type}' needs it"
                if side == "input"
                else f'Incorrect setting for output(s) of operator "{definition.type}", should set: [{name}].',
                expected=f"a variable in slot '{name}'",
                received="nothing",
                fix=f"pass '{name}'",
            )
    # Slots in the op definition's own order, so that equal ops print and compare equal.
    return {name: done[name] for name in slots if name in done}


def _metas(definition: OpDef, block: Block, inputs: Mapping[str, tuple[str, ...]]) -> list[Any]:
    metas: list[Any] = []
    for slot in definition.inputs:
        row = inputs.get(slot.name)
        if slot.many:
            metas.append([block._var_recursive(n).meta for n in row or ()])
        else:
            metas.append(block._var_recursive(row[0]).meta if row else None)
    return metas


def _infer(
    definition: OpDef, block: Block, inputs: Mapping[str, tuple[str, ...]], attrs: Mapping[str, Any]
) -> tuple[list[Any], list[Any]] | None:
    """Returns the metadata per input slot and per output slot; ``None`` if it is not inferred."""
    if definition.infer is None:
        return None
    metas = _metas(definition, block, inputs)
    rows = [inputs.get(name, ()) for name in definition.input_slots]
    unchecked = [bool(row) and _is_unchecked(block._var_recursive(row[0])) for row in rows]
    return infer_with_unchecked(definition, metas, unchecked, attrs)


def _is_unchecked(var: Variable) -> bool:
    return var.is_data and not var.need_check_feed


def _split_attrs(known: Container[str], attrs: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the attributes that are the op's own, and those that any op may have; those of kernels are dropped."""
    own: dict[str, Any] = {}
    automatic: dict[str, Any] = {}
    for name, value in (attrs or NO_ATTRS).items():
        # `fuse_relu`, `fuse_alpha` and their like are marks for Paddle's own kernels.
        if name in known or not (name in KERNEL_ATTRS or name.startswith("fuse_")):
            (automatic if name in AUTOMATIC else own)[name] = value
    return own, automatic


def _clean_attrs(definition: OpDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    for name in attrs:
        if name not in definition.attrs:
            see = f"see the attributes of '{definition.type}' in docs/ops.md"
            raise unknown(ProgramError, definition.type, "attribute", name, definition.attrs, see)
    return definition.complete(attrs)


def _add(block: Block, definition: OpDef, inputs: dict[str, tuple[str, ...]], outputs: dict[str, tuple[str, ...]],
         attrs: dict[str, Any], automatic: Mapping[str, Any], where: Where | None) -> Operator:  # fmt: skip
    program = block.program
    # One attribute of a file can make its op build thousands.
    if (cost := building.get()) is not None:
        cost.step(OP)
    role = int(automatic.get("op_role", program._role))
    op = Operator(
        block,
        definition.type,
        inputs,
        outputs,
        attrs,
        role=role,
        role_var=tuple(automatic.get("op_role_var", program._role_var)),
        where=where,
        position=op_position(block.idx, block.built),
        namescope=names.NAME_SCOPE.get(program),
        device=str(automatic.get("op_device", names.DEVICE.get(program))),
        updates=program._updates if role & (OpRole.Backward | OpRole.Optimize) else (),
    )
    block._append(op)
    program._touch()
    # An operator without a gradient stops what arrives, whatever its inputs are: zeros_like, bernoulli, unique.
    ends = definition.grad is None and not definition.of
    stops = ends or all(block._var_recursive(n).stop_gradient for n in op.input_arg_names if n != EMPTY)
    for name in op.output_arg_names:
        if name != EMPTY:
            block._var_recursive(name)._infer_stop_gradient(stops)
    return op


def _check_output_meta(var: Variable, meta: Meta) -> None:
    """Checks an existing output variable against what ``infer`` found, or gives it its shape and dtype."""
    if var._dtype is not None and var._dtype is not meta.dtype and not var._dtype_is_inferred:
        raise DTypeError(
            f"the output variable '{var.name}' has another dtype than the operator gives",
            expected=var._dtype.name,
            received=meta.dtype.name,
            fix=f"convert with paddle.cast(..., '{var._dtype.name}') first",
            var=var.name,
        )
    # Temporaries take the shape of what is written; state and inputs have the one that was declared.
    declared = var._shape if (var.persistable or var.is_data) and not var._shape_is_inferred else None
    # Of one element, [1] and [] are the same here: programs from before Paddle 2.5 declare scalars as [1].
    if declared is None or same_shape(declared, meta.shape) or meta.numel == math.prod(declared) == 1:
        return
    raise ShapeError(
        f"the output variable '{var.name}' has another shape than the operator gives",
        expected=list(declared),
        received=list(meta.shape),
        fix="write to a variable of that shape, or reshape first",
        var=var.name,
    )


def _adopt(var: Variable, meta: Meta) -> None:
    """Gives a variable that an op writes the metadata that ``infer`` found; what is declared stays."""
    if var._dtype is None or var._dtype_is_inferred:
        var._dtype, var._dtype_is_inferred = meta.dtype, False
    if var._shape is None:
        # Nobody declared one (create_tensor): what is written next may have another shape.
        var._shape_is_inferred = True
    if var._shape_is_inferred or not (var.persistable or var.is_data):
        var._shape = meta.shape


def _pairs(value: Any, meta: Any) -> Iterator[tuple[Any, Meta]]:
    """Pairs of a variable in a slot, or of several, and its metadata."""
    variables = value if isinstance(value, list | tuple) else [value]
    return zip(variables, meta if isinstance(meta, list) else [meta], strict=True)


def append_op(
    block: Block,
    type: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    stop_gradient: bool | None = None,
) -> Operator:
    """Appends an op that writes to existing variables.

    Raises:
        NotFoundError: Unknown op type or variable name.
        ProgramError, ProgramTypeError, ShapeError, DTypeError: What the op's slots, attributes or ``infer`` refuse.
            Nothing is changed then.
    """
    for side, value in (("inputs", inputs), ("outputs", outputs), ("attrs", attrs if attrs is not None else {})):
        if not isinstance(value, Mapping):
            raise ProgramTypeError(
                f"'{side}' should be a dict.",
                expected="a dict",
                received=shown(value),
                fix=f"pass {side} as a dict",
                op=type,
            )
    # Before the definition, which may lack slots or attributes that Paddle's op has.
    if (builder := composed_op(type, inputs, attrs or NO_ATTRS)) is not None:
        return _append_composed(block, type, builder, inputs, outputs, attrs, stop_gradient)
    try:
        definition = op_def(type)
        own, automatic = _split_attrs(definition.attrs, attrs)
        done = _clean_attrs(definition, own)
        inputs = with_offsets(definition, block, inputs)
        ins = _slot_names(definition, block, definition.input_slots, inputs, "input")
        outs = _slot_names(definition, block, definition.output_slots, outputs, "output")
        metas = _infer(definition, block, ins, done)
        # Taken over when all outputs fit, so that a refused op leaves no trace.
        pending: list[tuple[Variable, Meta]] = []
        if metas is not None:
            for slot, meta in zip(definition.outputs, metas[1], strict=True):
                row = outs.get(slot.name)
                if not row or meta is None:
                    continue
                for name, one in _pairs(row, meta):
                    var = block._var_recursive(name)
                    _check_output_meta(var, one)
                    pending.append((var, one))
    except TstaticError as error:
        raise error.add_context(op=type, var=_names_of(inputs), where=show(user_line())) from None
    for var, meta in pending:
        _adopt(var, meta)
        if stop_gradient is not None:
            var.stop_gradient = stop_gradient
    if metas is not None:
        give_offsets(definition, block, ins, outs, done, metas)
    return _add(block, definition, ins, outs, done, automatic, user_line())


def _append_composed(
    block: Block,
    type: str,
    builder: Composed,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None,
    stop_gradient: bool | None,
) -> Operator:
    """Appends the ops that an op is built from; returns the last one, which writes the last output."""
    own, automatic = _split_attrs(builder.attrs, attrs)
    # An empty list counts as an absent slot.
    given = {
        name: value
        for name, value in inputs.items()
        if not (value is None or (isinstance(value, list | tuple) and not value))
    }
    for side, listed, present in (("input", builder.slots, given), ("attribute", builder.attrs, own)):
        for name in present:
            if name not in listed:
                raise unknown(ProgramError, type, side, name, listed, "see operators built from others in docs/ops.md")
        for name in listed:
            if name in builder.needed and name not in present:
                raise ProgramError(
                    f"{side.capitalize()} {name} not found: operator '{type}' needs it",
                    expected=f"the {side} '{name}'", received="nothing", fix=f"pass '{name}'", op=type,
                )  # fmt: skip

    def variable(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [variable(v) for v in value]
        return block._var_recursive(value) if isinstance(value, str) else value

    # A slot holds a list of one where the function takes a Variable.
    ins = {name: variable(value) for name, value in given.items()}
    ins = {n: v[0] if isinstance(v, list) and n not in builder.many else [v] if n in builder.many and not isinstance(v, list)
           else v for n, v in ins.items()}  # fmt: skip
    with _inside(block):
        if builder.writes:
            targets = {slot: [variable(v) for v in _listed(value)] for slot, value in outputs.items()}
            before = len(block.ops)
            builder.build(**ins, **own, outputs=targets)
            if len(block.ops) > before:
                return block.ops[-1]
            # Facts of the program, for which no operator stands.
            read, written = (
                {s: tuple(v.name for v in _listed(row)) for s, row in side.items()} for side in (ins, targets)
            )
            return Operator(block, type, read, written, own, where=user_line())
        found = builder.build(**ins, **own)
        last: Operator | None = None
        for name, value in outputs.items():
            if name not in found:
                raise unknown(
                    ProgramError, type, "output", name, found, "see operators built from others in docs/ops.md"
                )
            for result, target in zip(_listed(found[name]), _listed(value), strict=True):
                last = append_op(block, "assign", {"X": result}, {"Out": target}, automatic, stop_gradient)
        if last is None:
            raise ProgramError(
                f"operator '{type}' is given no output",
                expected=f"a variable in slot {' or '.join(found)}",
                received="nothing",
                fix="pass outputs={'Out': variable}",
                op=type,
            )
    return last


@contextlib.contextmanager
def _inside(block: Block) -> Iterator[None]:
    """Builds in a block; an error takes out again what was put there."""
    program, before = block.program, block.program.current_block_idx
    with undone_on_error(), program_guard(program):
        program.current_block_idx = block.idx
        yield
        program.current_block_idx = before


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _names_of(inputs: Mapping[str, Any]) -> str | None:
    found = []
    for value in inputs.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, Variable):
                found.append(item.name)
            elif isinstance(item, str):
                found.append(item)
    return ", ".join(found[:6]) or None  # a concat may have hundreds


# ----------------------------------------------------------------------------------------------------------------- emit
class LayerNamer:
    """One layer call: its generated name, and ops whose results are named after it (``fc_0.tmp_0``, ``fc_0.tmp_1``)."""

    def __init__(self, prefix: str, name: str | None = None, block: Block | None = None) -> None:
        self.prefix = prefix
        self._name = name
        self._block = block

    @property
    def name(self) -> str:
        if self._name is None:
            self._name = names.generate(self.prefix)
        return self._name

    @property
    def block(self) -> Block:
        return self._block if self._block is not None else default_main_program().current_block()

    def temp_name(self) -> str:
        # Paddle names the results of operators and slicing directly (``tmp_3``, ``x_slice_0``).
        if self.prefix == "tmp" or self.prefix.endswith("_slice"):
            name, self._name = self.name, None  # each result has a name of its own
            return name
        return names.generate(f"{self.name}.tmp")

    def variable(self, dtype: Any, shape: Sequence[int] | None = None, stop_gradient: bool = False) -> Variable:
        """Makes a result variable by hand (for ops that own blocks).

        Args:
            dtype: Element type.
            shape: Sizes, -1 for unknown ones.
            stop_gradient: No gradient flows to or through it.
        """
        block = self.block
        var = Variable(block, self.temp_name(), shape, dtype, stop_gradient=stop_gradient, where=user_line())
        block.vars[var.name] = var
        return var

    def emit(
        self,
        type: str,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any] | None = None,
        *,
        outputs: Mapping[str, Any] | None = None,
        order: Sequence[str] | None = None,
        drop: Sequence[str] = (),
    ) -> Any:
        """Appends an op and makes its output variables; see :func:`emit`.

        Args:
            type: Op type.
            inputs: Slot -> a Variable, a list of them, or ``None``.
            attrs: Attribute -> value; the others have their defaults.
            outputs: Slot -> existing Variables to write to.
            order: Slots in the order in which their variables are named; that of the op by default.
            drop: Slots that get no variable.

        Returns:
            The variable of the only output, or a tuple.

        Raises:
            TstaticError: If inputs or attributes do not fit the op; it names the op and the user's line.
        """
        block = self.block
        try:
            definition = op_def(type)
            own, automatic = _split_attrs(definition.attrs, attrs)
            done = _clean_attrs(definition, own)
            inputs = with_offsets(definition, block, inputs)
            ins = _slot_names(definition, block, definition.input_slots, inputs, "input")
            metas = _infer(definition, block, ins, done)
            assert metas is not None, f"{type} cannot be emitted without infer"
            by_slot = {slot.name: meta for slot, meta in zip(definition.outputs, metas[1], strict=True)}
            given = dict(outputs or NO_ATTRS)
            for name, value in given.items():
                for var, one in _pairs(value, by_slot[name]):
                    _check_output_meta(check_variable(var, name, type), one)
        except TstaticError as error:
            raise error.add_context(op=type, var=_names_of(inputs), where=show(user_line())) from None
        where = user_line()
        made: dict[str, Any] = {}
        for name in order if order is not None else by_slot:
            meta = by_slot[name]
            # `give_offsets` declares the row offsets.
            if meta is None or name in drop or name.endswith(LOD):
                continue
            if name in given:
                made[name] = given[name]
                for var, one in _pairs(given[name], meta):
                    _adopt(var, one)
            elif isinstance(meta, list):
                made[name] = [self._output(block, m, where) for m in meta]
            else:
                made[name] = self._output(block, meta, where)
        outs = {
            slot.name: tuple(v.name for v in (m if isinstance(m, list | tuple) else (m,)))
            for slot in definition.outputs
            if (m := made.get(slot.name)) is not None
        }
        give_offsets(definition, block, ins, outs, done, metas)
        _add(block, definition, ins, outs, done, automatic, where)
        results = [made[s.name] for s in definition.outputs if not s.intermediate and s.name in made]
        return results[0] if len(results) == 1 else tuple(results)

    def _output(self, block: Block, meta: Meta, where: Any) -> Variable:
        var = Variable(block, self.temp_name(), meta.shape, meta.dtype, where=where)
        # Whole numbers and truth values have no gradients.
        if not meta.dtype.is_inexact:
            var.stop_gradient = True
        block.vars[var.name] = var
        return var


def emit(
    type: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    prefix: str | None = None,
    outputs: Mapping[str, Any] | None = None,
    order: Sequence[str] | None = None,
    drop: Sequence[str] = (),
) -> Any:
    """Appends an op to the current block and returns its results.

    Args:
        type: Op type.
        inputs: Slot -> Variable, list of Variables, or ``None``.
        attrs: Attributes; defaults are filled in.
        name: The layer's name, instead of a generated one.
        prefix: What the generated name begins with; the op type by default.
        outputs: Slot -> existing Variable to write to.
        order: Slots in the order in which their variables are named.
        drop: Optional output slots that are not made.

    Returns:
        The single output that is not an intermediate one, or a tuple of them.
    """
    return LayerNamer(prefix or type, name).emit(type, inputs, attrs, outputs=outputs, order=order, drop=drop)
