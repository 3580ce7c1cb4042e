"""Programs as text: what is printed reads back exactly, and what is no program is refused with its line."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tstatic as paddle
from tests.cpu.nets import regression
from tests.helpers.programs import WILD_NAMES, canonical, programs
from tests.helpers.soak import SOAK
from tstatic import static
from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.formats.parse import parse
from tstatic.formats.schema import BlockDesc, OpDesc, ParameterDesc, ProgramDesc, VarDesc
from tstatic.formats.text import name_text, role_text, value_text
from tstatic.ir.opdef import OPS, REQUIRED, OpDef
from tstatic.ir.program import Operator, Program
from tstatic.nn.regularizer import L2Decay, WeightDecayRegularizer

SAMPLES = {
    "bool": True, "int": -3, "float": 0.1, "number": 2, "str": "it's \"a\"\n", "ints": (2, 1), "floats": (0.5, float("-inf")),
    "bools": (False,), "strs": ("a", ""), "dtype": paddle.bfloat16, "function": 0, "any": ((1, [2.5, None]), b"\x00'"),
}  # fmt: skip


# -------------------------------------------------------------------------------------------------------- round trips
@pytest.mark.slow
@given(programs(WILD_NAMES), st.booleans())
@settings(max_examples=3000 if SOAK else 100)
def test_print_and_parse_keep_everything(program: Program, with_details: bool) -> None:
    text = program.to_string(True, with_details)
    restored = Program.parse_from_text(text)
    assert canonical(restored) == canonical(program)
    assert restored.to_string(True, with_details) == text


@pytest.mark.parametrize("given", [True, False], ids=["given", "default"])
def test_every_op_reads_back(given: bool) -> None:
    assert [type for type, definition in OPS.items() if not _reads_back(definition, given)] == []


def _reads_back(definition: OpDef, given: bool) -> bool:
    """Returns whether a program with one op is as it was, as text and as a file."""
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[2], dtype="float32")
    if any(attr.kind == "block" for attr in definition.attrs.values()):
        program._create_block(0)
        program.current_block_idx = 0
    attrs = {}
    for name, attr in definition.attrs.items():
        usual: Any = 1 if attr.kind == "block" else SAMPLES[attr.kind]
        if attr.check is not None and isinstance(usual, int):
            usual = abs(usual)
        attrs[name] = usual if attr.default is REQUIRED or (given and attr.check is None) else attr.default
    inputs = {s.name: ("x", "x") if s.many else ("x",) for s in definition.inputs}
    outputs = {s.name: ("x",) for s in definition.outputs}
    block.ops.append(Operator(block, definition.type, inputs, outputs, attrs))
    again = parse(str(program)), Program.parse_from_string(program.desc.serialize_to_string())
    return all(canonical(one) == canonical(program) for one in again)


def test_a_training_program_reads_back() -> None:
    main, startup, _ = regression(paddle.optimizer.Adam(paddle.optimizer.lr.StepDecay(0.1, 3)))
    for program in (main, startup, main.clone(for_test=True)):
        assert canonical(parse(str(program))) == canonical(program)
        assert canonical(parse(program.to_string(True, with_details=True))) == canonical(program)


def test_control_flow_reads_back() -> None:
    main = Program()
    with static.program_guard(main, Program()):
        x = static.data("x", [3])
        x.stop_gradient = False
        i, n = paddle.zeros([1], "int64"), paddle.full([1], 3, "int64")
        _, y = static.nn.while_loop(
            lambda i, y: i < n,
            lambda i, y: [i + 1, static.nn.cond(paddle.mean(y) > 0, lambda: y * x, lambda: y - 1.0)],
            [i, x],
        )
        static.gradients([paddle.sum(y)], [x])
    assert main.num_blocks > 6
    restored = parse(str(main))
    assert canonical(restored) == canonical(main)
    assert [b.parent_idx for b in restored.blocks] == [b.parent_idx for b in main.blocks]


BLOCK_CHANGES = {"built": 99, "grad_prefix": "g/", "forward_block_idx": 0, "parent_idx": 0}
VARIABLE_CHANGES = {
    "name": "z", "made_at": None, "_shape": None, "_dtype": None, "type": "step_scopes", "lod_level": 1, "stop_gradient": False,
    "is_data": False, "need_check_feed": False, "_persistable": True, "initialised": True,
}  # fmt: skip
PARAMETER_CHANGES = {
    "trainable": False, "optimize_attr": {}, "regularizer": L2Decay(1.0), "need_clip": False, "is_distributed": True,
    "do_model_average": None,
}  # fmt: skip
OP_CHANGES = {
    "type": "relu", "inputs": {}, "outputs": {}, "attrs": {"x_num_col_dims": 2}, "role": 1, "role_var": ("x",), "where": None,
    "position": 9, "namescope": "a/", "device": "cpu",
}  # fmt: skip


def test_the_oracle_sees_every_lost_field() -> None:
    main, _, _ = regression(paddle.optimizer.SGD(0.1))

    def part(program: Program, kind: str) -> Any:
        block = program.global_block()
        parts = {
            "block": block,
            "op": block.ops[0],
            "variable": block.vars["x"],
            "parameter": program.all_parameters()[0],
        }
        return parts[kind]

    for kind, changes in (
        ("block", BLOCK_CHANGES), ("op", OP_CHANGES), ("variable", VARIABLE_CHANGES), ("parameter", PARAMETER_CHANGES),
    ):  # fmt: skip
        for field, value in changes.items():
            twin = main.clone()
            assert canonical(twin) == canonical(main)
            setattr(part(twin, kind), field, value)
            assert canonical(twin) != canonical(main), (kind, field)


def test_a_text_has_every_field_of_a_file() -> None:
    syntax: dict[type[Any], set[str]] = {
        ProgramDesc: {"blocks", "files"},
        BlockDesc: {"vars", "ops"},
        VarDesc: {"name", "shape", "dtype", "where"},
        ParameterDesc: set(),
        OpDesc: {"type", "inputs", "outputs", "attrs", "where"},
    }
    for description, without_a_mark in syntax.items():
        assert {f.name for f in fields(description)} == without_a_mark | set(description.MARKS)


# --------------------------------------------------------------------------------------------------------- what it says
TINY = """\
program (random_seed = 7, loss = 'y')
file 'train.py' = '/home/me/train.py'
block 0 {
    var x: float32[-1, 3] (feed, stop_gradient)  # train.py:1
    param w: float32[3] (trainable = False, L2Decay = 0.01)
    var y: float32[]

    {Out=['x']} = scale(inputs={X=['x']}, scale = 2.0, bias = 0.0, bias_after_scale = True, op_role = Backward | Loss)  # train.py:2
}"""


def test_the_form_of_the_text() -> None:
    program = parse(TINY)
    assert str(program) == TINY
    x, w, _ = program.global_block().vars.values()
    assert (x.is_data, x.need_check_feed, x.stop_gradient, x.shape, x.made_at) == (
        True,
        True,
        True,
        (-1, 3),
        ("/home/me/train.py", 1),
    )
    assert isinstance(w, static.Parameter)
    assert (w.trainable, w.stop_gradient, w.persistable) == (False, True, True)
    assert isinstance(w.regularizer, L2Decay)
    op = program.global_block().ops[0]
    assert (op.role, op.where, op.attr("scale")) == (257, ("/home/me/train.py", 2), 2.0)
    assert str(op) == TINY.splitlines()[-2].strip().replace("train.py:2", "/home/me/train.py:2")
    assert str(program.global_block()).splitlines()[0] == "block 0 {"


def test_attributes_may_be_left_out_and_comments_put_in() -> None:
    text = TINY.replace("scale = 2.0, bias = 0.0, bias_after_scale = True, ", "bias = 3, ").replace(
        "block 0", "# a remark: 3\n\nblock 0"
    )
    op = parse(text).global_block().ops[0]
    assert op.attrs == {"bias": 3, "scale": 1.0, "bias_after_scale": True}
    assert parse(text.replace("\n", "\r\n")).global_block().ops[0].attrs == op.attrs


def test_with_details_says_what_is_at_its_default() -> None:
    text = parse(TINY).to_string(True, with_details=True)
    for words in (
        "need_clip",
        "op_position = 0",
        "lod_level = 0",
        "built = 1",
        "random_seed = 7",
        "initialised = False",
    ):
        assert words in text
        assert words not in TINY or words == "random_seed = 7"


@pytest.mark.parametrize(("value", "text"), [
    (None, "None"), (True, "True"), (3, "3"), (2**64, "0x10000000000000000"), (-(2**80), "-0x100000000000000000000"),
    (1e-05, "1e-05"), (-0.0, "-0.0"), (float("-inf"), "-inf"), ("a'b", '"a\'b"'), (b"\x00", "b'\\x00'"), ((1,), "(1,)"),
    ((), "()"), ([1, [2.0]], "[1, [2.0]]"), (paddle.float32, "float32"), ({"a": 1}, "{'a': 1}"),
])  # fmt: skip
def test_values(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_names_and_roles() -> None:
    assert [name_text(n) for n in ("fc_0.w_0@GRAD", "a b", "grad/x", "1x", "é")] == [
        "fc_0.w_0@GRAD", "'a b'", "grad/x", "'1x'", "'é'",
    ]  # fmt: skip
    assert [role_text(r) for r in (0, 1, 257, 32)] == ["0", "Backward", "Backward | Loss", "32"]


def test_files_of_one_name_are_kept_apart() -> None:
    program = Program()
    block = program.global_block()
    paths = ["/a/train.py", "/b/train.py", "train.py", "", "odd:name#\n", "C:\\x\\train.py", " spaced "]
    for i, path in enumerate(paths):
        block.create_var(name=f"v{i}", shape=[1], dtype="float32").made_at = (path, i)
    assert [v.made_at for v in parse(str(program)).global_block().vars.values()] == [
        (p, i) for i, p in enumerate(paths)
    ]
    assert "# b/train.py:1" in str(program)


def test_a_regularizer_of_your_own_stays_behind_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Mine(WeightDecayRegularizer):
        coeff = 0.5

    program = Program()
    program.global_block().create_parameter(name="w", shape=[2], dtype="float32", regularizer=Mine())
    restored = parse(str(program))
    assert restored.all_parameters()[0].regularizer is None
    assert "Mine" in caplog.text


@pytest.mark.parametrize("read_back", [lambda p: parse(str(p)), lambda p: parse(p.to_string(True, True)),
                                       lambda p: Program.parse_from_string(p.desc.serialize_to_string())],
                         ids=["text", "details", "file"])  # fmt: skip
@pytest.mark.parametrize(
    ("field", "stored", "plain"),
    [
        ("do_model_average", 1, True), ("do_model_average", 0, False), ("do_model_average", None, None), ("trainable", 1, True),
        ("trainable", None, False), ("need_clip", np.False_, False), ("need_clip", "yes", True), ("is_distributed", 0.0, False),
        ("is_distributed", 2, True), ("stop_gradient", 1, True), ("stop_gradient", np.True_, True), ("is_data", 1, True),
        ("need_check_feed", 1, True), ("initialised", 1, True), ("lod_level", False, 0), ("lod_level", np.int64(2), 2),
        ("lod_level", 1.0, 1), ("optimize_attr", {"learning_rate": np.float32(0.5)}, {"learning_rate": 0.5}),
        ("optimize_attr", {"learning_rate": 1}, {"learning_rate": 1.0}),
    ],
)  # fmt: skip
def test_a_flag_of_another_type_is_written_as_the_bool_it_means(
    field: str, stored: Any, plain: Any, read_back: Any
) -> None:
    def made(value: Any) -> Program:
        program = Program()
        w = program.global_block().create_parameter(name="w", shape=[2], dtype="float32")
        setattr(w, field, value)
        return program

    assert canonical(read_back(made(stored))) == canonical(made(plain))
    assert str(made(stored)) == str(made(plain))


def test_names_and_numbers_of_numpy_are_written_as_those_of_python() -> None:
    program = Program()
    with static.program_guard(program, Program()):
        x = static.data(np.str_("a b"), [2])
        paddle.scale(x, np.float32(2), name=np.str_("s"))
    text = str(program)
    assert "var 'a b': float32[2]" in text
    assert "inputs={X=['a b']}" in text
    assert str(parse(text)) == text == str(Program.parse_from_string(program.desc.serialize_to_string()))


def test_a_long_double_prints() -> None:
    assert value_text(np.longdouble(1)) == "<longdouble>"


def test_printing_never_fails_and_such_text_is_refused() -> None:
    program = parse(TINY)
    program.global_block().ops[0]._attrs.put("bias", object())
    assert "bias = <object>" in str(program)
    with pytest.raises(ProgramError, match="line 8"):
        parse(str(program))


def test_functions_of_another_process_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    out = static.default_main_program().global_block().create_var(name="out", shape=[1], dtype="float32")
    static.py_func(lambda: 1.0, None, out)
    text = str(static.default_main_program())
    assert canonical(parse(text)) == canonical(static.default_main_program())
    monkeypatch.setattr("tstatic.formats.restore.this_process", lambda: "another")
    monkeypatch.setattr("tstatic.formats.schema.this_process", lambda: "another")
    with pytest.raises(ProgramError, match="calls Python functions"):
        parse(text)


def test_the_arguments_of_to_string_must_be_bool() -> None:
    for arguments in ((1, False), (True, 0)):
        with pytest.raises(AssertionError, match="expected bool"):
            Program().to_string(*arguments)


# ------------------------------------------------------------------------------------------------------------- refusals
REFUSED = {
    "nothing": ("", 1, "program"),
    "words": ("hello", 1, "program"),
    "no block": ("program", 1, "no block"),
    "unknown mark of the program": (TINY.replace("random_seed", "random_sed"), 1, "random_seed"),
    "mark of a wrong kind": (TINY.replace("random_seed = 7", "random_seed = 'x'"), 1, "kind"),
    "two files of one name": (TINY.replace("block 0", "file 'train.py' = 'b'\nblock 0"), 3, "short name"),
    "file after a block": (TINY + "\nfile 'b' = 'b'", 10, "block"),
    "wrong number of a block": (TINY.replace("block 0", "block 1"), 3, "block 0"),
    "parent that is no block before": (TINY + "\nblock 1 (parent = 1) {\n}", 10, "parent"),
    "parent that is missing": (TINY + "\nblock 1 {\n}", 10, "parent"),
    "block that never ends": (TINY[:-2], 8, "no end"),
    "unknown dtype": (TINY.replace("y: float32", "y: float33"), 6, "float32"),
    "shape of a wrong kind": (TINY.replace("[3] (", "[3.5] ("), 5, "kind"),
    "shape below -1": (TINY.replace("-1, 3", "-2, 3"), 4, "kind"),
    "parameter without shape": (TINY.replace("[3] (", "[?] ("), 5, "known sizes"),
    "same name twice": (TINY.replace("var y", "var x"), 6, "declared before"),
    "reserved name": (TINY.replace("var y", "var '@EMPTY@'"), 6, "reserved"),
    "mark of a parameter on a variable": (TINY.replace("(feed,", "(trainable,"), 4, "trainable"),
    "mark twice": (TINY.replace("(feed,", "(feed, feed,"), 4, "once"),
    "unknown op": (TINY.replace("scale(", "scael("), 8, "'scale'"),
    "unknown attribute": (TINY.replace("bias =", "biass ="), 8, "'bias'"),
    "attribute twice": (TINY.replace("bias =", "scale ="), 8, "once"),
    "attribute of a wrong kind": (TINY.replace("scale = 2.0", "scale = 'two'"), 8, "number"),
    "unknown input": (TINY.replace("{X=", "{Z="), 8, "no input"),
    "missing input": (TINY.replace("{X=['x']}", "{}"), 8, "needs input"),
    "two values in a slot for one": (TINY.replace("{X=['x']}", "{X=['x', 'y']}"), 8, "one"),
    "undeclared variable": (TINY.replace("{X=['x']}", "{X=['xx']}"), 8, "not declared"),
    "number as a name": (TINY.replace("{X=['x']}", "{X=[1]}"), 8, "kind"),
    "unknown role": (TINY.replace("Backward |", "Backwards |"), 8, "Backward"),
    "unknown word": (TINY.replace("= True", "= true"), 8, "True"),
    "string that never ends": (TINY.replace("['x']}, scale", "['x]}, scale"), 8, "no end"),
    "bad escape": (TINY.replace("loss = 'y'", "loss = '\\q'"), 1, "escape"),
    "bytes beyond 255": (TINY.replace("scale = 2.0", "scale = b'€'"), 8, "bytes"),
    "stray character": (TINY.replace("scale = 2.0", "scale = 2.0 $"), 8, "no meaning"),
    "tuple without comma": (TINY.replace("scale = 2.0", "scale = (2.0)"), 8, "(1,)"),
    "something behind an op": (TINY.replace("Loss)", "Loss) x"), 8, "end of the line"),
    "something behind a block": (TINY + " }", 9, "end of the line"),
    "brackets nested too deep": (TINY.replace("scale = 2.0", "scale = " + "[" * 50_000), 8, "deep"),
    "dicts nested too deep": (TINY.replace("scale = 2.0", "scale = " + "{1:" * 5_000), 8, "deep"),
    "int of a million digits": (TINY.replace("scale = 2.0", "scale = " + "9" * 1_000_000), 8, "400 digits"),
    "int too large for a float": (TINY.replace("scale(", "leaky_relu(").replace("scale = 2.0, bias = 0.0, bias_after_scale = True",
                                  "alpha = 0x1" + "0" * 300), 8, "large"),
    "loss rate that is no variable": (TINY.replace("loss = 'y'", "learning_rate = 'z'"), 1, "not declared"),
    "current block that is none": (TINY.replace("random_seed = 7", "current_block = 3"), 1, "not a block"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_text_is_refused_with_its_line(name: str) -> None:
    text, line, word = REFUSED[name]
    assert text != TINY
    with pytest.raises(ProgramError) as caught:
        parse(text)
    error = caught.value
    assert f"line {line}: " in error.what
    assert error.expected
    assert error.received is not None
    assert error.fix
    assert word in str(error)


def test_only_text_is_parsed() -> None:
    with pytest.raises(ProgramTypeError, match="text"):
        parse(b"program")  # type: ignore[arg-type]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=400)
def test_a_damaged_text_is_a_program_or_refused(data: Any) -> None:
    text = TINY
    for _ in range(data.draw(st.integers(1, 3))):
        at, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        new = data.draw(
            st.one_of(
                st.just(""), st.just(text[at:end] * 2), st.text(max_size=3), st.sampled_from(list("'\"{}[]()=,#:|?"))
            )
        )
        text = text[:at] + new + text[min(end, at + 8) :]
    try:
        program = parse(text)
    except ProgramError as error:
        problem = error.what
    else:
        problem = ""
        assert canonical(parse(str(program))) == canonical(program)
    assert not problem or re.match(r"line \d+: ", problem)
