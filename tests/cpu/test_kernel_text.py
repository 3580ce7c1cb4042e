"""The text of generated kernels: the same everywhere, and never a user's."""

from __future__ import annotations

import ast
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import tstatic as paddle
from tests.helpers.fusion_programs import CASES, build
from tests.helpers.soak import SOAK
from tstatic import static
from tstatic.fusion.codegen.loops.loop_nest import build as build_group
from tstatic.fusion.codegen.text import emit as emit_module
from tstatic.fusion.codegen.text import reference as reference_module
from tstatic.fusion.codegen.text import script as script_module
from tstatic.fusion.codegen.text.emit import emit
from tstatic.ir.drawn import NUMBERS
from tstatic.ir.evaluate import infer_outputs
from tstatic.ir.frozen import FrozenOp, freeze
from tstatic.ir.opdef import OPS
from tstatic.ir.types import Meta, dtype_of

F = paddle.nn.functional


def kernels(case: int, switch: str = "enable_auto_fusion") -> list[Any]:
    built = build(CASES[case])
    strategy = static.BuildStrategy()
    setattr(strategy, switch, True)
    shapes = {n: a.shape for n, a in built.feed.items()}
    found = static.CompiledProgram(built.main, strategy).explain(fetch_list=built.fetches, feed_shapes=shapes)
    return list(found.kernels)


def test_importing_a_module_runs_nothing_of_its_script() -> None:
    for kernel in kernels(25):
        tree = ast.parse(kernel.text)
        last = tree.body[-1]
        assert isinstance(last, ast.If)
        assert ast.unparse(last.test) == "__name__ == '__main__'"
        for node in tree.body[:-1]:
            assert isinstance(node, ast.Import | ast.FunctionDef | ast.Assign) or isinstance(
                getattr(node, "value", None), ast.Constant
            )
            if isinstance(node, ast.Import):
                assert {a.name for a in node.names} <= {"os", "triton", "triton.language"}


# ------------------------------------------------------------------------------------------------------------ hostile text
ALPHABET = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
COUNTED = re.compile(rf"(?:[xyavwptd]|p_y|sum_y|{'|'.join(f'{name}_' for name in NUMBERS)}|share_|launch_)\d+")
PIECES = [
    '"', "'", '"""', "'''", "\\", "\n", "\r", "\x00", "\u2028", "\ud800", "#", ";", "import os", "os.system('x')", "{", "}", "{a}",
    "%s", "tl.store", "__import__", ")", "(", ":", " ", "\t", "x0", "partial:y0", "table:blocks", "é", "漢", "0", "a", "@GRAD",
]  # fmt: skip


def hostile(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 6)))


def group_text(names: list[str], file: str, attrs: dict[str, Any]) -> str:
    """The modules of an add with leaky relu and of a gradient with a sum; names, file and attributes are given."""
    x, b, s, y, dy, db = names
    dtype = dtype_of("float32")
    metas = {x: Meta((4, 6), dtype), b: Meta((6,), dtype), dy: Meta((4, 6), dtype)}
    where = (file, 7)
    add = FrozenOp(OPS["elementwise_add"], (x, b), (s,), OPS["elementwise_add"].complete({}), where=where)
    definition = OPS["leaky_relu"]
    act = FrozenOp(definition, (s,), (y,), {**definition.complete({}), **attrs}, where=where)
    grad_definition = OPS["elementwise_add_grad"]
    slots = {"X": x, "Y": b, "Out@GRAD": dy}
    grad = FrozenOp(
        grad_definition,
        tuple(slots.get(slot.name) for slot in grad_definition.inputs),
        tuple(db if slot.name == "Y@GRAD" else None for slot in grad_definition.outputs),
        grad_definition.complete({}),
        where=where,
    )
    ops = [add, act, grad]
    for op in ops:
        found = infer_outputs(op.definition, [metas[e] if isinstance(e, str) else None for e in op.inputs], op.attrs)
        metas.update({e: m for e, m in zip(op.outputs, found, strict=True) if isinstance(e, str)})
    return "\n\n".join(emit(build_group(part, metas, kept)).text for part, kept in ((ops[:2], [s, y]), (ops[2:], [db])))


PLAIN = ["x", "b", "s", "y", "dy", "db"]


def without_lines(text: str) -> str:
    """The text without the user's lines, which stand in the docstring and in comments only."""
    kept = []
    for line in text.splitlines():
        if line.lstrip().startswith("# ") and ":7" in line:
            line = line[: line.index("#")]
        elif line.startswith("    ") and "  at " in line:
            line = ""
        kept.append(line)
    return "\n".join(kept)


def check_names(count: int, seed: int) -> None:
    rng = random.Random(seed)
    plain = without_lines(group_text(PLAIN, "file.py", {"alpha": 0.25}))
    for _ in range(count):
        names: list[str] = []
        while len(names) < 6:
            name = hostile(rng)
            if name not in names:
                names.append(name)
        file = hostile(rng)
        text = group_text(names, file, {"alpha": 0.25, hostile(rng): hostile(rng), "note": hostile(rng)})
        text.encode("ascii")
        assert len(text.splitlines()) == len(plain.splitlines()), (names, file)
        assert without_lines(text) == plain, (names, file)


def test_hostile_names_never_reach_the_code() -> None:
    check_names(10_000 if SOAK else 400, 1)


class Hostile(float):
    """A number whose text is code."""

    def __repr__(self) -> str:
        return "__import__('os').system('x')"

    __str__ = __repr__


def test_attributes_are_numbers_of_ours() -> None:
    plain = group_text(PLAIN, "file.py", {"alpha": 0.25})
    assert group_text(PLAIN, "file.py", {"alpha": Hostile(0.25)}) == plain
    assert "0.25" in plain
    for alpha in (float("inf"), float("-inf"), float("nan"), -0.0, 1e300, -1e-300, 3, True, 2**70, -(2**70)):
        text = group_text(PLAIN, "file.py", {"alpha": alpha})
        assert identifiers(text) == identifiers(plain)
        assert strings(text) <= strings(plain) | {"inf", "-inf", "nan"}


def identifiers(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        for field in ("id", "attr", "arg", "name", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                found.update(value.split("."))
    return found


def strings(text: str) -> set[str]:
    """Constants that are texts, docstrings left out."""
    tree = ast.parse(text)
    documents = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, ast.Module | ast.FunctionDef) and isinstance(n.body[0], ast.Expr)
    }
    return {
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in documents
    }


# Names of the templates; those of the prelude and of the fixed parts of the script are read from there.
WORDS = """
    __name__ __main__
    BLOCK COLUMNS ROWS INPUTS OUTPUTS ALLOWED STEP JUMPS BYTES INTERPRETED kernel finish finish_two q z sums reference launch
    memory kernels WAYS SHORT LIKE near
    offsets mask n columns rows start inside strip strips total kept p y s terms other axis keepdims num_warps element_ty
    to dtype range float jit tl triton language constexpr program_id arange load store where sum zeros exp log log2 sqrt
    erf abs sin cos floor ceil float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 int1 bool np torch broadcast_to
    absolute square maximum minimum sign trunc expm1 log1p tanh isnan isinf isfinite logical_and logical_or logical_not
    logical_xor divide add subtract multiply reshape full whole rounded environ get os rng draws RNG
    enable_fp_fusion
"""

PRELUDE = Path(emit_module.__file__).with_name("prelude.py")


def known() -> set[str]:
    helpers = reference_module.WORDS, reference_module.NORMAL, reference_module.WITHIN, reference_module.BELOW_SPAN
    fixed = (PRELUDE.read_text("utf-8"), *helpers, script_module._BEFORE + script_module._AFTER)
    return set(WORDS.split()).union(*map(identifiers, fixed))


def test_names_are_counted_or_of_a_fixed_set() -> None:
    allowed = known()
    fixed = strings(script_module._BEFORE + script_module._AFTER) | strings(PRELUDE.read_text("utf-8"))
    texts = {
        *["0", "1", "TRITON_INTERPRET", "__main__", "inf", "nan", "rng", "interpreter", "sm_80", "sm_90", "sm_100"],
        *fixed,
    }
    for case in range(len(CASES)):
        for kernel in kernels(case):
            for name in identifiers(kernel.text):
                assert ALPHABET.fullmatch(name), name
                assert COUNTED.fullmatch(name) or name in allowed, name
            for one in strings(kernel.text):
                assert COUNTED.fullmatch(one) or one in texts or re.fullmatch(r"torch\.b?float\d\d", one), one


def test_a_name_does_not_depend_on_the_users_lines() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [3, 4], "float32")
        a = F.relu(x + 1.0)
        b = F.relu(x + 1.0)
    first, second = (
        next(k for k in made(main, out).kernels) for out in (a, b)
    )  # fmt: skip
    assert first.text != second.text, "the text says the lines"
    assert first.name == second.name


def made(main: Any, out: Any) -> Any:
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    return static.CompiledProgram(main, strategy).explain(fetch_list=[out])


def test_a_hostile_file_name_stays_a_comment() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        out = F.relu(static.data("x", [3, 4], "float32") + 1.0)
    frozen = freeze(main, ["x"], [out.name])
    evil = 'a\nimport os; os.abort()\n"""\nos.abort()\n#'
    ops = [replace(op, where=(evil, 3)) for op in frozen.ops]
    metas = {n: Meta((3, 4), dtype_of("float32")) for n in frozen.names}
    text = emit(build_group(ops, metas, [out.name])).text
    assert "abort" in text
    tree = ast.parse(text)
    assert "abort" not in identifiers(text)
    assert "abort" in (ast.get_docstring(tree) or "")
