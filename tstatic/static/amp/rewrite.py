"""Mixed precision as a rewrite of the user's program: decides the precision of every op and inserts the casts."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.autodiff.paths import path_to
from tstatic.ir import names
from tstatic.ir.checks import check_type
from tstatic.ir.declare import name_scope
from tstatic.ir.edit import sub_blocks
from tstatic.ir.evaluate import infer_outputs
from tstatic.ir.opdef import EMPTY, OpDef, export
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Block, Operator, Program, Variable
from tstatic.ir.types import DType, dtype_of, float32
from tstatic.no_effect import PLACE, no_effect
from tstatic.runtime.scope import Scope, global_scope
from tstatic.static.amp.lists import AutoMixedPrecisionLists, level_of, low_dtype, marked
from tstatic.where import Where, show

GUARD = "__use_fp16__"
TRAINING = OpRole.Backward | OpRole.Optimize | OpRole.LRSched


@dataclass(frozen=True, slots=True)
class Converted:
    """What mixed precision did with one op: for ``explain``.

    Attributes:
        type: The op's type.
        outputs: The variables that it writes.
        dtype: The type that it computes in.
        reason: Why.
        casts: Inputs that a cast was inserted for, with the type they had.
        where: The user's line.
    """

    type: str
    outputs: tuple[str, ...]
    dtype: str
    reason: str
    casts: tuple[tuple[str, str], ...]
    where: Where | None

    def __str__(self) -> str:
        casts = f"; casts {', '.join(f'{name} from {old}' for name, old in self.casts)}" if self.casts else ""
        return f"{self.type} -> {', '.join(self.outputs)} in {self.dtype}: {self.reason}{casts}"

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data."""
        casts = [{"variable": name, "from": old} for name, old in self.casts]
        return {
            "type": self.type, "outputs": list(self.outputs), "dtype": self.dtype, "reason": self.reason, "casts": casts,
            "where": show(self.where),
        }  # fmt: skip


@export("static.amp.fp16_guard", "static.amp.fp16_utils.fp16_guard", "static.amp.bf16.bf16_guard")
@contextlib.contextmanager
def fp16_guard() -> Iterator[None]:
    """Marks the ops built inside as those that mixed precision may convert; ``op_namescope`` holds ``__use_fp16__``.

    The mark counts for ``decorate(level="O2", use_amp_guard=True)`` and, in the older spelling, ``use_fp16_guard=True``:
    ops that were built outside then stay in float32.

    Example:
        >>> x = static.data("x", [2, 3])
        >>> with static.amp.fp16_guard():
        ...     y = static.nn.fc(x, 4)
        >>> z = static.nn.fc(y, 4)
        >>> names = static.amp.cast_model_to_fp16(static.default_main_program())
        >>> y.dtype, z.dtype
        (tstatic.float16, tstatic.float32)
    """
    with name_scope(GUARD):
        yield


# -------------------------------------------------------------------------------------------------------------- decision
@dataclass(frozen=True)
class Precision:
    """The settings of a rewrite.

    Attributes:
        lists: The lists.
        dtype: The 16-bit type.
        level: ``O1``, ``O2`` or ``OD``.
        guard: Only ops built under ``fp16_guard`` are converted.
        promote: An op on no white or black list with a float32 input runs in float32.
    """

    lists: AutoMixedPrecisionLists
    dtype: DType
    level: str
    guard: bool = False
    promote: bool = False

    def keeps(self, op: Operator) -> str:
        """Returns why an op has to stay in float32 at any level, or an empty text."""
        lists = self.lists
        if self.guard and GUARD not in op.namescope:
            return "it was built outside of fp16_guard"
        if op.type in lists.unsupported_list:
            return (
                "it is on the custom black list" if op.type in lists.custom else f"it has no {self.dtype.name} kernel"
            )
        return ""

    def black(self, op: Operator) -> str:
        """Returns why an op stays in float32, its variables and the lists included, or an empty text."""
        lists = self.lists
        named = lists.black_varnames.intersection((*op.input_arg_names, *op.output_arg_names))
        if named:
            return f"custom_black_varnames has {min(named)}"
        if self.level == "OD":
            return "" if op.type in lists.white_list else "level OD converts the white list only"
        if op.type not in lists.black_list or (self.level == "O2" and op.type in marked("black")):
            return ""
        return "it is on the black list"


# --------------------------------------------------------------------------------------------------------------- rewrite
def _built_before(program: Program) -> set[Operator]:
    """Returns the ops that the loss of an earlier ``minimize`` depends on: its backward ops fit them as they are."""
    ops = program.global_block().ops
    training = [op for op in ops if op.role & OpRole.Optimize or (op.updates and op.role & OpRole.Backward)]
    found = {ops[i] for i in path_to(ops, {n for op in training for n in op.input_arg_names})}
    stack = [*found]
    while stack:
        inner = [op for index in sub_blocks(stack.pop()) for op in program.blocks[index].ops]
        found.update(inner)
        stack += inner
    return found


class Rewrite:
    """One rewrite of a program.

    Attributes:
        low: Names of the variables that an op reads through a cast to 16 bits.
    """

    def __init__(self, program: Program, precision: Precision) -> None:
        self.program = program
        self.precision = precision
        self.low: set[str] = set()
        self._notes: list[Converted] = []
        self._original: dict[str, DType] = {}
        self._low: dict[str, bool] = {}  # variable -> whether the op that wrote it last runs in 16 bits
        self._built = _built_before(program)
        self._writers = Counter(n for b in program.blocks for op in b.ops for n in op.output_arg_names)

    def run(self) -> None:
        """Rewrites all blocks, those of control flow after the ops that own them."""
        # Before the blocks: which casts an op needs depends on the types that parameters have then.
        if self.precision.level == "O2":
            self._parameters()
        for block in self.program.blocks:
            self._block(block)
        # Of ops that an earlier rewrite converted, what that one says is the whole story.
        before = self.program.mixed_precision
        known = {note.outputs for note in before}
        self.program.mixed_precision = (*before, *(note for note in self._notes if note.outputs not in known))
        self.program._touch()

    def _parameters(self) -> None:
        """Gives parameters the 16-bit type, but for those that an op needs in float32."""
        kept: set[str] = set()
        for block in self.program.blocks:
            for op in block.ops:
                # Level O2 runs these in float32, too: they read 16-bit parameters through casts.
                if op.role & TRAINING or op.type in self.precision.lists.black_list - marked("black"):
                    continue
                slots = op.inputs if op in self._built or self.precision.keeps(op) else op.definition.float32_inputs
                kept.update(n for slot in slots for n in op.inputs.get(slot, ()))
        for parameter in self.program.all_parameters():
            if parameter.dtype is float32 and parameter.name not in kept:
                parameter._dtype = self.precision.dtype

    def _block(self, block: Block) -> None:
        ops: list[Operator] = []
        casts: dict[tuple[str, DType], str] = {}
        # A copy: making a cast appends it to the block, and takes it out again.
        for op in block.ops[:]:
            after: list[Operator] = []
            if not op.role & TRAINING and op not in self._built:
                self._op(block, op, casts, ops, after)
            else:
                # What it overwrites is no longer what an op of this rewrite made.
                for name in op.output_arg_names:
                    self._low.pop(name, None)
            ops += [op, *after]
            # A cast of what was overwritten is of no use any more; an op may write through a cast behind it.
            for name in [n for one in (op, *after) for n in one.output_arg_names]:
                for key in [k for k in casts if k[0] == name]:
                    del casts[key]
        block.ops[:] = ops

    def _op(
        self,
        block: Block,
        op: Operator,
        casts: dict[tuple[str, DType], str],
        before: list[Operator],
        after: list[Operator],
    ) -> None:
        definition = op.definition
        dtype, reason = self._decide(block, op)
        added: list[tuple[str, str]] = []
        changes: dict[str, str] = {}
        # Norms take scale and statistics in float32 beside 16-bit values.
        for slot, row in op.inputs.items():
            if slot in definition.float32_inputs and dtype is not float32:
                continue
            for name in row:
                var = None if name == EMPTY else block._var_recursive(name)
                # An op that keeps its types reads what this rewrite converted in the type that it was built with.
                wanted = dtype if dtype is not None or op.type == "cast" else self._original.get(name)
                if var is None or wanted is None or var.dtype is wanted or not _converts(var.dtype):
                    continue
                # One cast serves all readers in the block until the variable is written again.
                if (name, wanted) not in casts:
                    casts[name, wanted] = self._cast(block, op, name, wanted, before)
                    added.append((name, var.dtype.name))
                changes[f"{slot}/{name}"] = casts[name, wanted]
                if wanted.is_low:
                    self.low.add(name)
        if changes:
            op.inputs = {s: tuple(changes.get(f"{s}/{n}", n) for n in row) for s, row in op.inputs.items()}
        # After the inputs: output types follow from the types that the op reads now.
        self._outputs(block, op, after)
        for name in op.output_arg_names:
            self._low.pop(name, None)
            if dtype is not None:
                self._low[name] = dtype.is_low
        if dtype is not None or added:
            shown = (dtype or float32).name
            self._notes.append(Converted(op.type, tuple(op.output_arg_names), shown, reason, tuple(added), op.where))

    def _decide(self, block: Block, op: Operator) -> tuple[DType | None, str]:
        """Returns the type that an op runs in, ``None`` for as the user built it; and why."""
        definition, precision = op.definition, self.precision
        variables = {n: block._var_recursive(n) for n in op.input_arg_names if n != EMPTY}
        floats = [v for v in variables.values() if v.dtype.is_float]
        if not floats or definition.infer is None or definition.update or op.type == "cast" or _owns_dtype(op):
            return None, "it keeps the types that it was built with"
        if any(not _converts(v.dtype) for v in floats):
            return None, "it computes in float64"
        reason = precision.keeps(op) or precision.black(op)
        if reason:
            return float32, reason
        if op.type in precision.lists.white_list:
            custom = "custom " if op.type in precision.lists.custom else ""
            return precision.dtype, f"it is on the {custom}white list"
        read = [n for s, row in op.inputs.items() if s not in definition.float32_inputs for n in row if n != EMPTY]
        if precision.promote:
            wide = next((n for n in read if variables[n].dtype is float32), None)
            return (precision.dtype, "all of its inputs are") if wide is None else (float32, f"its input {wide} is")
        if precision.level == "O2":
            return precision.dtype, "level O2 converts all that it can"
        if op.type not in precision.lists.gray_list:
            return float32, "it is on no list"
        # As in Paddle the last input that an op has made decides; data and parameters have no say.
        made = [n for slot in op.inputs.values() for n in slot if n in self._low]
        if not made:
            return precision.dtype, "it reads data and parameters only"
        return precision.dtype if self._low[made[-1]] else float32, f"it follows its input {made[-1]}"

    def _cast(self, block: Block, op: Operator, name: str, dtype: DType, before: list[Operator]) -> str:
        """Makes the cast of a variable; returns the name of the result."""
        var = block._var_recursive(name)
        stem = f"{name}.cast_{dtype.short.lower()}"
        free = stem if not block.has_var_recursive(stem) else names.generate(stem)
        block.create_var(name=free, shape=var.shape, dtype=dtype, stop_gradient=var.stop_gradient)
        before.append(_append_cast(block, op, name, free, var.dtype, dtype))
        return free

    def _outputs(self, block: Block, op: Operator, after: list[Operator]) -> None:
        """Gives the variables that an op writes the types that it has now; those with a type of their own are cast to."""
        definition = op.definition
        if definition.infer is None:
            return
        metas = infer_outputs(definition, _metas(definition, block, op), op.attrs)
        for slot, meta in zip(definition.outputs, metas, strict=True):
            row = op.outputs.get(slot.name, ())
            for name, one in zip(row, meta if isinstance(meta, list) else [meta] * len(row), strict=True):
                if name == EMPTY or one is None:
                    continue
                var = block._var_recursive(name)
                if var.dtype is one.dtype:
                    continue
                # Scopes, feeds, other blocks and second writers know these under the declared type.
                fixed = var.persistable or var.is_data or var.block is not block or self._writers[name] > 1
                if not fixed:
                    self._original.setdefault(name, var.dtype)
                    var._dtype = one.dtype
                    continue
                made = names.generate(f"{name}.{one.dtype.short.lower()}")
                block.create_var(name=made, shape=one.shape, dtype=one.dtype, stop_gradient=var.stop_gradient)
                op._rename_output(name, made)
                after.append(_append_cast(block, op, made, name, one.dtype, var.dtype))


def _append_cast(block: Block, op: Operator, source: str, target: str, old: DType, new: DType) -> Operator:
    """Makes a cast with the facts of the op that it is for; the caller puts it into its place."""
    # Without the mark of the loss: gradients start from the op itself, not from a cast beside it.
    attrs = {"in_dtype": old, "out_dtype": new, "op_role": op.role & ~OpRole.Loss}
    cast = block.append_op("cast", {"X": source}, {"Out": target}, attrs)
    block.ops.pop()
    cast.where, cast.namescope, cast.device = op.where, op.namescope, op.device
    return cast


def _converts(dtype: DType) -> bool:
    return dtype is float32 or dtype.is_low


def _owns_dtype(op: Operator) -> bool:
    """Whether an attribute says in which float type the op's result is; control flow leaves that to the ops inside."""
    given = (op.attrs.get(n) for n in ("dtype", "out_dtype"))
    return bool(sub_blocks(op)) or any(d is not None and dtype_of(d).is_float for d in given)


def _metas(definition: OpDef, block: Block, op: Operator) -> list[Any]:
    found: list[Any] = []
    for slot in definition.inputs:
        row = [block._var_recursive(n).meta for n in op.inputs.get(slot.name, ())]
        found.append(row if slot.many else row[0] if row else None)
    return found


# ------------------------------------------------------------------------------------------------------------- functions
def convert(program: Program, precision: Precision) -> set[str]:
    """Rewrites a program; returns the names of the parameters that ops read in 16 bits."""
    check_type(program, Program, "program", "cast_model_to_fp16")
    rewrite = Rewrite(program, precision)
    rewrite.run()
    return {p.name for p in program.all_parameters() if p.dtype is precision.dtype or p.name in rewrite.low}


@export("static.amp.cast_model_to_fp16", "static.amp.fp16_utils.cast_model_to_fp16")
def cast_model_to_fp16(
    program: Program,
    amp_lists: AutoMixedPrecisionLists | None = None,
    use_fp16_guard: bool = True,
    dest_type: Any = "float16",
    level: str = "O2",
    use_promote: bool = False,
) -> set[str]:
    """Converts a program without gradients to mixed precision, in place; :func:`decorate` does so for programs that train.

    Args:
        program: The program. At level O2 its parameters become 16-bit, but for scale and shift of norms; cast their values with
            :func:`cast_parameters_to_fp16`.
        amp_lists: Which ops are converted; the defaults without it.
        use_fp16_guard: Convert only ops built under :func:`fp16_guard`.
        dest_type: The 16-bit type.
        level: ``"O1"``, ``"O2"`` or ``"OD"``.
        use_promote: Let ops with a float32 input run in float32, unless they are on the white list.

    Returns:
        The names of the parameters that ops read in 16 bits.

    Raises:
        ProgramError: For another type or level.

    Example:
        >>> y = static.nn.fc(static.data("x", [None, 3]), 2)
        >>> main = static.default_main_program()
        >>> sorted(static.amp.cast_model_to_fp16(main, use_fp16_guard=False, dest_type="bfloat16"))
        ['fc_0.b_0', 'fc_0.w_0']
        >>> [op.type for op in main.global_block().ops], y.dtype
        (['cast', 'mul', 'elementwise_add'], tstatic.bfloat16)
    """
    dtype = low_dtype(dest_type)
    lists = amp_lists if amp_lists is not None else AutoMixedPrecisionLists(dtype=dtype.name)
    return convert(program, Precision(lists, dtype, level_of(level), bool(use_fp16_guard), bool(use_promote)))


@export("static.amp.fp16_utils.rewrite_program")
def rewrite_program(main_prog: Program, amp_lists: AutoMixedPrecisionLists) -> None:
    """Converts a program without gradients to mixed precision of level O1, in place: parameters stay float32.

    Args:
        main_prog: The program.
        amp_lists: Which ops are converted, and to which type.

    Example:
        >>> y = static.nn.fc(static.data("x", [None, 3]), 2)
        >>> main = static.default_main_program()
        >>> static.amp.fp16_utils.rewrite_program(main, static.amp.CustomOpLists(dtype="bfloat16"))
        >>> [op.type for op in main.global_block().ops]
        ['cast', 'cast', 'mul', 'cast', 'elementwise_add']
    """
    convert(main_prog, Precision(amp_lists, dtype_of(amp_lists.amp_dtype), "O1"))


@export("static.amp.cast_parameters_to_fp16", "static.amp.fp16_utils.cast_parameters_to_fp16")
@no_effect(place=PLACE)
def cast_parameters_to_fp16(
    place: Any,
    program: Program,
    scope: Scope | None = None,
    to_fp16_var_names: Any = None,
    dest_type: Any = "float16",
    rewrite_master_weight: bool = False,
    master_weights: Mapping[str, Variable] | None = None,
) -> None:
    """Rounds the values of parameters in a scope to a 16-bit type.

    Args:
        place: Where the values are.
        program: The program, after :func:`cast_model_to_fp16`.
        scope: Holds the values; the global scope by default.
        to_fp16_var_names: Which parameters; what :func:`cast_model_to_fp16` returned.
        dest_type: The 16-bit type.
        rewrite_master_weight: Set the float32 copies to the rounded values.
        master_weights: Parameter -> its float32 copy.

    Example:
        >>> w = paddle.create_parameter([2], "float32", name="w", default_initializer=paddle.nn.initializer.Constant(0.1))
        >>> y = w + 1.0
        >>> exe, main = static.Executor(), static.default_main_program()
        >>> _ = exe.run(static.default_startup_program())
        >>> names = static.amp.cast_model_to_fp16(main, use_fp16_guard=False)
        >>> static.amp.cast_parameters_to_fp16(paddle.CPUPlace(), main, to_fp16_var_names=names)
        >>> exe.run(main, fetch_list=[y])[0]
        array([1.1, 1.1], dtype=float16)
    """
    dtype = low_dtype(dest_type)
    values = scope if scope is not None else global_scope()
    chosen = set(to_fp16_var_names or ())
    for parameter in program.all_parameters():
        found = values.find_var(parameter.name) if parameter.name in chosen else None
        if found is None or not found.get_tensor()._is_initialized():
            continue
        rounded = np.asarray(found.get_tensor()).astype(dtype.np)
        found.get_tensor().set(rounded)
        master = (master_weights or {}).get(parameter.name)
        # Else the first update would put the unrounded value back.
        if rewrite_master_weight and master is not None:
            values.var(master.name).get_tensor().set(rounded.astype(np.float32))
