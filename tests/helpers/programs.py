"""Generated programs, and everything that matters about a program as plain values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tstatic.formats.schema import learning_rate_of
from tstatic.ir.opdef import EMPTY, OPS, REQUIRED, OpDef
from tstatic.ir.operator import OperatorBase
from tstatic.ir.program import Block, Operator, Parameter, Program, Variable
from tstatic.ir.types import DTYPES
from tstatic.nn.regularizer import L1Decay, L2Decay

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
WILD_NAMES = st.one_of(
    st.text(min_size=1, max_size=12),
    st.sampled_from(
        ["x", "fc_0.w_0", "x@GRAD", "inf", "nan", "None", "a'b\"c", "new\nline", "#", "var x", "\ud800", "1", "}"]
    ),
)
SMALL = st.integers(0, 2**32 - 1)
FLOATS = st.floats(allow_nan=False)


def canonical(program: Program) -> list[Any]:
    """Everything that print -> parse and save -> load have to keep, types included; written without their code."""
    found: list[Any] = [
        program._seed, program._is_test, program.loss_name, learning_rate_of(program),
        program.current_block_idx, program.feed_names, program.fetch_names,
    ]  # fmt: skip
    for block in program.blocks:
        found.append((block.idx, block.parent_idx, block.forward_block_idx, block.built, block.grad_prefix))
        for name, var in block.vars.items():
            fields = {
                k: v for k, v in vars(var).items() if k not in ("block", "initializer", "regularizer", "_stop_origin")
            }
            regularizer = getattr(var, "regularizer", None)
            kind = (type(regularizer).__name__, regularizer.coeff) if regularizer is not None else None
            assert var.block is block
            found.append((name, type(var).__name__, repr(sorted(fields.items())), repr(kind)))
        for op in block.ops:
            assert op.block is block
            fields = {slot: getattr(op, slot) for slot in OperatorBase.__slots__ if slot != "block"}
            found.append(repr(sorted(fields.items())))
    return found


# ---------------------------------------------------------------------------------------------------------- strategies
def values(names: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Values of attributes of kind ``any``."""
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), names, st.binary(max_size=8),
        st.sampled_from(sorted(DTYPES.values(), key=repr)),
    )  # fmt: skip
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(names, inner, max_size=2),
        ),
        max_leaves=6,
    )


def _kinds(names: st.SearchStrategy[str]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "bool": st.booleans(),
        "int": st.integers(-(2**70), 2**70),
        "float": FLOATS,
        "number": st.one_of(st.booleans(), st.integers(), st.floats()),
        "str": names,
        "ints": st.lists(st.integers(), max_size=4).map(tuple),
        "floats": st.lists(FLOATS, max_size=4).map(tuple),
        "bools": st.lists(st.booleans(), max_size=4).map(tuple),
        "strs": st.lists(names, max_size=4).map(tuple),
        "dtype": st.sampled_from(sorted(DTYPES.values(), key=repr)),
        "function": st.integers(-1, 3),
        "any": values(names),
    }


def _attrs(draw: Any, definition: OpDef, block: int, blocks: int, kinds: dict[str, Any]) -> dict[str, Any] | None:
    """Attributes of an op, or ``None`` where none can be made up."""
    made: dict[str, Any] = {}
    for name, attr in definition.attrs.items():
        if attr.kind == "block":
            if block + 1 >= blocks:
                return None
            made[name] = draw(st.integers(block + 1, blocks - 1))
        elif attr.check is None and draw(st.booleans()):
            made[name] = draw(kinds[attr.kind])
        elif attr.default is not REQUIRED:
            made[name] = attr.default
        elif attr.check is None:
            made[name] = draw(kinds[attr.kind])
        else:
            return None
    return made


def _slots(draw: Any, slots: Any, known: list[str]) -> dict[str, tuple[str, ...]]:
    found = {}
    for slot in slots:
        if slot.optional and draw(st.booleans()):
            continue
        count = draw(st.integers(0, 3)) if slot.many else 1
        found[slot.name] = tuple(draw(st.sampled_from([*known, EMPTY])) for _ in range(count))
    return found


def _variable(draw: Any, block: Block, name: str, wheres: st.SearchStrategy[Any]) -> Variable:
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    common: dict[str, Any] = {
        "stop_gradient": draw(st.booleans()), "is_data": draw(st.booleans()), "need_check_feed": draw(st.booleans()),
        "lod_level": draw(st.integers(0, 2)), "type": draw(st.sampled_from(["dense_tensor", "step_scopes"])),
        "where": draw(wheres),
    }  # fmt: skip
    var: Variable
    if draw(st.booleans()):
        var = Parameter(
            block, name, draw(st.lists(st.integers(1, 9), max_size=3)), dtype,
            trainable=draw(st.booleans()), need_clip=draw(st.booleans()), is_distributed=draw(st.booleans()),
            optimize_attr=draw(st.dictionaries(NAMES, FLOATS, max_size=2)),
            do_model_average=draw(st.sampled_from([None, True, False])),
            regularizer=draw(st.sampled_from([None, L1Decay(0.5), L2Decay(1e-4), L2Decay(float("inf"))])), **common,
        )  # fmt: skip
    else:
        sizes = st.lists(st.integers(-1, 2**40), max_size=1) | st.lists(st.integers(-1, 2**19), max_size=3)
        shape = draw(st.one_of(st.none(), sizes))
        var = Variable(block, name, shape, draw(st.sampled_from([None, dtype])), **common)
    var._persistable = draw(st.booleans())
    var.initialised = draw(st.booleans())
    return var


@st.composite
def programs(draw: Any, names: st.SearchStrategy[str] = NAMES) -> Program:
    """Programs of any shape that the data structure allows; most would make no sense to run."""
    wheres = st.one_of(st.none(), st.tuples(names, st.integers(0, 10**6)))
    kinds = _kinds(names)
    program = Program()
    program._seed = draw(st.integers(-(2**70), 2**70))
    program._is_test = draw(st.booleans())
    program.loss_name = draw(st.one_of(st.none(), names))
    count = draw(st.integers(1, 3))
    program.blocks = []
    for index in range(count):
        block = Block(
            program, index, draw(st.integers(0, index - 1)) if index else -1, draw(st.integers(-1, count - 1))
        )
        program.blocks.append(block)
        block.built = draw(SMALL)
        block.grad_prefix = draw(st.sampled_from(["", "grad/", "'"]))
        for name in draw(st.lists(names.filter(lambda n: n != EMPTY), max_size=4, unique=True)):
            block.vars[name] = _variable(draw, block, name, wheres)
        known = list(block.vars) + list(block.parent.vars if block.parent is not None else ())
        for _ in range(draw(st.integers(0, 3))):
            definition = OPS[draw(st.sampled_from(sorted(OPS)))]
            attrs = _attrs(draw, definition, index, count, kinds)
            if attrs is None:
                continue
            op = Operator(
                block, definition.type, _slots(draw, definition.inputs, known), _slots(draw, definition.outputs, known), attrs,
                role=draw(st.sampled_from([0, 1, 2, 16, 256, 257, 4096, 32, 33])),
                role_var=tuple(draw(st.lists(names, max_size=2))), where=draw(wheres), position=draw(SMALL),
                namescope=draw(st.sampled_from(["", "a/b/"])), device=draw(st.sampled_from(["", "gpu:0"])),
                updates=tuple(draw(st.lists(SMALL, max_size=2))),
            )  # fmt: skip
            block.ops.append(op)
    program.current_block_idx = draw(st.integers(0, count - 1))
    outer = program.blocks[0].vars
    if outer:
        program.learning_rates = dict.fromkeys(draw(st.lists(st.sampled_from(list(outer)), max_size=2, unique=True)))
        program.feed_names = tuple(draw(st.lists(st.sampled_from(list(outer)), max_size=2)))
        program.fetch_names = tuple(draw(st.lists(st.sampled_from(list(outer)), max_size=2)))
    return program
