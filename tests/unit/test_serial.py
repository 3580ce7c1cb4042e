"""The saved form of programs: exact, strict, and never a crash."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tstatic as paddle
from tests.cpu.nets import regression
from tests.helpers.programs import NAMES, canonical, programs, values
from tests.helpers.soak import SOAK
from tstatic import static
from tstatic.errors import CheckpointError, ProgramError, ProgramTypeError
from tstatic.formats import serial
from tstatic.ir.opdef import OPS
from tstatic.ir.program import Operator, Program

HEADER = b"tstatic-program 1 "


def saved(program: Program) -> bytes:
    data: bytes = program.desc.serialize_to_string()
    return data


@pytest.mark.parametrize("name", ["m.pdmodel", "net.pdmodel"])
def test_a_file_of_an_earlier_version_is_written_again_byte_for_byte(name: str) -> None:
    old = (Path(__file__).parents[1] / "data" / "format-1" / name).read_bytes()
    assert serial.unstamped(old) == (serial.decode(old).desc.serialize_to_string(), "")


def payload(data: bytes) -> Any:
    return json.loads(data.partition(b"\n")[2])


def sealed(content: Any) -> bytes:
    return serial.seal(json.dumps(content).encode())


def small() -> Program:
    """Two blocks, a parameter, ops with attributes of several kinds."""
    main = Program()
    with static.program_guard(main, Program()):
        x = static.data("x", [-1, 4])
        y = paddle.nn.functional.dropout(static.nn.fc(x, 3, activation="relu"), 0.25)
        static.nn.cond(paddle.mean(y) > 0, lambda: y * 2.0, lambda: paddle.zeros_like(y))
        paddle.assign(paddle.clip(y, 0.0))
    return main


def of_an_earlier_version(**attrs: Any) -> bytes:
    """A program with an operator that had a definition once, between variables whose names its parts would take."""
    main = Program()
    with static.program_guard(main, Program()), paddle.utils.unique_name.guard():
        x, bias = static.data("x", [-1, 3]), static.data("bias", [3])
        paddle.multiply(x, x)
        paddle.add(x, bias)
    content = payload(saved(main))
    op = content["blocks"][0]["ops"][1]
    op["type"], op["attrs"] = "affine_channel", attrs
    op["inputs"] = {"X": ["x"], "Scale": ["bias"], "Bias": ["bias"]}
    return sealed(content)


def test_an_operator_that_is_built_from_others_now_is_built_when_its_file_is_read() -> None:
    with paddle.utils.unique_name.guard():
        program = serial.decode(of_an_earlier_version())
    names = [var.name for var in program.list_vars() if not var.is_data][:2]
    x, bias = np.arange(6.0, dtype="float32").reshape(2, 3), np.array([1, 2, 3], "float32")
    found = static.Executor().run(program, feed={"x": x, "bias": bias}, fetch_list=names)
    np.testing.assert_array_equal(found[0], x * x)
    np.testing.assert_array_equal(found[1], x * bias + bias)
    assert serial.decode(saved(program)).to_string() == program.to_string()


@pytest.mark.parametrize("layout", ["NCDHW", 5, [1], None])
def test_one_whose_attributes_are_damaged_is_refused(layout: Any) -> None:
    with pytest.raises(CheckpointError, match="block 0, op 1"):
        serial.decode(of_an_earlier_version(data_layout=layout))


# --------------------------------------------------------------------------------------------------------- round trips
@pytest.mark.slow
@given(programs(NAMES))
@settings(max_examples=3000 if SOAK else 100)
def test_saving_and_reading_keep_everything(program: Program) -> None:
    data = saved(program)
    restored = Program.parse_from_string(data)
    assert canonical(restored) == canonical(program)
    assert saved(restored) == data


def test_a_training_program_comes_back() -> None:
    for program in regression(paddle.optimizer.Adam(0.1))[:2]:
        assert canonical(Program.parse_from_string(saved(program))) == canonical(program)
    assert static.default_main_program().desc.num_blocks() == 1
    assert str(small().desc).startswith("program")


def test_bytes_of_any_kind_will_do() -> None:
    data = saved(small())
    for kind in (bytearray, memoryview):
        assert Program.parse_from_string(kind(data)).num_blocks == 3


@given(values(NAMES))
def test_values_come_back_with_their_types(value: Any) -> None:
    assert repr(serial.unpack(json.loads(json.dumps(serial.pack(value))))) == repr(value)


def test_backward_ops_of_higher_order_are_derived_anew() -> None:
    x = static.data("x", [2])
    x.stop_gradient = False
    y = paddle.tanh(x)
    for _ in range(3):
        (y,) = static.gradients([paddle.sum(y)], [x])
    data = saved(static.default_main_program())
    assert b"tanh_grad_grad_grad" in data
    found = OPS.pop("tanh_grad_grad_grad"), OPS.pop("tanh_grad_grad")
    assert all(found)
    assert canonical(Program.parse_from_string(data)) == canonical(static.default_main_program())


# ------------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize("data", [
    b"", b"\x80\x04\x95", b"garbage", b"\x08\x00\x12\x00", HEADER, HEADER + b"0" * 64 + b" 0\n", b"\x00" * 1000,
    b"tstatic-program x\n", HEADER.replace(b"1", b"0") + b"0" * 64 + b" 2\n{}",
])  # fmt: skip
def test_what_is_no_program_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError) as caught:
        Program.parse_from_string(data)
    assert caught.value.fix
    assert caught.value.expected


def test_only_bytes_are_read() -> None:
    with pytest.raises(ProgramTypeError, match="bytes"):
        Program.parse_from_string("program")  # type: ignore[arg-type]


def test_a_newer_version_says_update() -> None:
    data = serial.seal(b"[]", version=serial.FORMAT + 1)
    with pytest.raises(CheckpointError, match="update tstatic"):
        Program.parse_from_string(data)


def test_a_message_names_the_file() -> None:
    with pytest.raises(CheckpointError, match=r"model\.pdmodel"):
        serial.decode(b"x", "model.pdmodel")


def test_every_truncation_and_every_flipped_bit_is_refused() -> None:
    data = saved(regression()[1])
    for end in range(len(data)):
        with pytest.raises(CheckpointError):
            serial.decode(data[:end])
    for extra in (b"\n", b" ", b"\x00"):
        with pytest.raises(CheckpointError, match="cut off or has something behind it"):
            serial.decode(data + extra)
    picked = random.Random(0).sample(range(8 * len(data)), 2000)
    for bit in [*range(8 * 100), *picked]:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointError):
            serial.decode(bytes(damaged))


def _path(content: Any, path: str) -> tuple[Any, Any]:
    """Container and key of ``blocks/0/ops/1`` and the like."""
    *parts, last = [int(p) if p.lstrip("-").isdigit() else p for p in path.split("/")]
    for part in parts:
        content = content[part]
    return content, last


# What is changed in a good program, and a word of the message.
CHANGES: dict[str, tuple[str, Any, str]] = {
    "no blocks": ("blocks", [], "length"),
    "unknown field of the program": ("extra", 1, "extra"),
    "unknown field of a block": ("blocks/0/extra", 1, "extra"),
    "unknown field of an op": ("blocks/0/ops/0/extra", 1, "extra"),
    "unknown field of a variable": ("blocks/0/vars/0/extra", 1, "extra"),
    "unknown field of a parameter": ("blocks/0/vars/1/parameter/extra", 1, "extra"),
    "unknown op": ("blocks/0/ops/0/type", "mull", "'mul'"),
    "op of an absurd order": ("blocks/0/ops/0/type", "mish" + "_grad" * 10_000, "is not one of"),
    "unknown attribute": ("blocks/0/ops/0/attrs/nosuch", 1, "no attribute"),
    "attribute of a wrong kind": ("blocks/0/ops/0/attrs/x_num_col_dims", "one", "wrong type"),
    "attribute as a float": ("blocks/0/ops/0/attrs/x_num_col_dims", 1.5, "wrong type"),
    "attribute as null": ("blocks/0/ops/0/attrs/x_num_col_dims", None, "wrong type"),
    "attribute that is not packed": ("blocks/0/ops/0/attrs/x_num_col_dims", {"a": 1, "b": 2}, "not packed"),
    "attribute of an unknown packing": ("blocks/0/ops/0/attrs/x_num_col_dims", {"code": "1"}, "not packed"),
    "attribute that nests too deep": ("blocks/0/ops/0/attrs/x_num_col_dims", json.loads("[" * 60 + "]" * 60), "deep"),
    "dtype that does not exist": ("blocks/0/ops/0/attrs/x_num_col_dims", {"dtype": "float7"}, "not packed"),
    "bad base64": ("blocks/0/ops/0/attrs/x_num_col_dims", {"bytes": "a"}, "base64"),
    "slot that does not exist": ("blocks/0/ops/0/inputs/Z", ["x"], "no input"),
    "slot with two values": ("blocks/0/ops/0/inputs/X", ["x", "x"], "one variable"),
    "empty slot": ("blocks/0/ops/0/inputs/X", [], "one variable"),
    "variable that is not declared": ("blocks/0/ops/0/inputs/X", ["nosuch"], "not declared"),
    "empty name": ("blocks/0/ops/0/inputs/X", [""], "length"),
    "no inputs": ("blocks/0/ops/0/inputs", {}, "needs input"),
    "slots as a list": ("blocks/0/ops/0/inputs", [], "Expected `object`"),
    "negative role": ("blocks/0/ops/0/role", -1, ">= 0"),
    "position beyond 32 bits": ("blocks/0/ops/0/position", 2**32, "position"),
    "unknown file": ("blocks/0/ops/0/where", [99, 1], "list of files"),
    "line below 0": ("blocks/0/ops/0/where", [0, -1], ">= 0"),
    "parent of block 0": ("blocks/0/parent", 0, "parent"),
    "block that is its own parent": ("blocks/1/parent", 1, "parent"),
    "blocks around each other": ("blocks/1/parent", 2, "parent"),
    "parent below 0": ("blocks/1/parent", -7, ">= -1"),
    "forward block that is none": ("blocks/1/forward", 9, "not a block"),
    "count of ops below 0": ("blocks/0/built", -1, ">= 0"),
    "variable twice": ("blocks/0/vars/1/name", "x", "cannot be declared"),
    "reserved name": ("blocks/0/vars/0/name", "@EMPTY@", "cannot be declared"),
    "dtype of a variable": ("blocks/0/vars/0/dtype", "float33", "'float32'"),
    "size below -1": ("blocks/0/vars/0/shape", [-2], ">= -1"),
    "size beyond 2**62": ("blocks/0/vars/0/shape", [2**63], "4611686018427387904"),
    "more than 2**60 elements": ("blocks/0/vars/0/shape", [2**30, -1, 2**30], "addressed"),
    "shape of 65 sizes": ("blocks/0/vars/0/shape", [1] * 65, "64"),
    "parameter of unknown size": ("blocks/0/vars/1/shape", [-1, 3], "known sizes"),
    "parameter without shape": ("blocks/0/vars/1/shape", None, "known sizes"),
    "regularizer that is none": ("blocks/0/vars/1/parameter/regularizer", ["os.system", 1.0], "regularizer"),
    "coefficient that is no number": ("blocks/0/vars/1/parameter/regularizer", ["L2Decay", "one"], "number"),
    "flag that is no bool": ("blocks/0/vars/0/persistable", 1, "bool"),
    "current block that is none": ("current_block", 3, "not a block"),
    "feed that is not declared": ("feeds", ["nosuch"], "not declared"),
    "fetch that is not declared": ("fetches", ["nosuch"], "not declared"),
    "learning rate that is not declared": ("learning_rate", "nosuch", "not declared"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_program_that_cannot_be_is_refused(name: str) -> None:
    path, value, word = CHANGES[name]
    content = payload(saved(small()))
    where, key = _path(content, path)
    where[key] = value
    with pytest.raises(CheckpointError) as caught:
        Program.parse_from_string(sealed(content))
    assert word in str(caught.value)
    assert caught.value.fix


def test_missing_fields_are_refused() -> None:
    for path in ("blocks", "blocks/0/ops", "blocks/0/vars/0/name", "blocks/0/ops/0/type", "blocks/0/ops/0/attrs"):
        content = payload(saved(small()))
        where, key = _path(content, path)
        del where[key]
        if path.endswith("attrs"):
            # Attributes have defaults.
            assert (
                Program.parse_from_string(sealed(content)).global_block().ops[0].attrs
                == small().global_block().ops[0].attrs
            )
            continue
        with pytest.raises(CheckpointError, match=key):
            Program.parse_from_string(sealed(content))


def _owner(content: Any) -> list[tuple[int, int]]:
    return [
        (b, o)
        for b, block in enumerate(content["blocks"])
        for o, op in enumerate(block["ops"])
        if "sub_block" in op.get("attrs", {})
    ]


@pytest.mark.parametrize("value", [-1, 3, 10**9, True, 1.0, "1", None, [1]])
def test_a_block_that_is_none_is_refused(value: Any) -> None:
    content = payload(saved(small()))
    b, o = _owner(content)[0]
    content["blocks"][b]["ops"][o]["attrs"]["sub_block"] = value
    with pytest.raises(CheckpointError, match="not a block of the program"):
        Program.parse_from_string(sealed(content))


def test_an_op_inside_its_own_block_is_refused() -> None:
    for inner in (0, 1):
        content = payload(saved(small()))
        (b, o), *_ = _owner(content)
        op = content["blocks"][b]["ops"][o]
        if inner:
            content["blocks"][1]["ops"].append({**op, "attrs": {**op["attrs"], "sub_block": 1}})
        else:
            op["attrs"]["sub_block"] = 0
        with pytest.raises(CheckpointError, match="owns a block that holds it"):
            Program.parse_from_string(sealed(content))


def test_bombs_are_refused() -> None:
    for body in (
        b"[" * 10**6,
        b'{"blocks":' * 10**5,
        b'{"blocks": [' + b"{}," * 10**5 + b"{}]}",
        b'{"random_seed": 1e400}',
    ):
        with pytest.raises(CheckpointError):
            Program.parse_from_string(serial.seal(body))
    deep = {"blocks": [{"vars": [], "ops": [], "built": 0, "parent": i - 1} for i in range(5000)]}
    with pytest.raises(CheckpointError, match="nested too deep"):
        Program.parse_from_string(sealed(deep))


def test_functions_of_another_process_are_refused() -> None:
    out = static.default_main_program().global_block().create_var(name="out", shape=[1], dtype="float32")
    static.py_func(lambda: 1.0, None, out)
    data = saved(static.default_main_program())
    assert canonical(Program.parse_from_string(data)) == canonical(static.default_main_program())
    for process in ("another", ""):
        with pytest.raises(CheckpointError, match="calls Python functions"):
            Program.parse_from_string(sealed({**payload(data), "process": process}))


def test_what_cannot_be_saved_says_so() -> None:
    program = small()
    program.global_block().ops[0]._attrs.put("x_num_col_dims", object())
    with pytest.raises(ProgramError, match="attribute 'x_num_col_dims' of operator 'mul' cannot be saved"):
        saved(program)
    for name in ("a\ud800", "n" * 70_000):
        program = Program()
        program.global_block().create_var(name=name, shape=[1], dtype="float32")
        with pytest.raises(ProgramError, match="cannot be saved"):
            saved(program)
    nested: Any = ()
    for _ in range(40):
        nested = (nested,)
    program = small()
    block = program.global_block()
    block.ops.append(Operator(block, "assign_value", {}, {"Out": ("x",)}, {"values": nested}))
    with pytest.raises(ProgramError, match="nested deeper"):
        saved(program)


# ------------------------------------------------------------------------------------------------------------- mutation
BASE = saved(small())
JUNK: list[Any] = [
    None, True, False, -2, -1, 0, 1, 2, 3, 2**31, 2**32, 2**63, 2**80, 0.5, 1e300, -0.0, "", "x", "0", "mul", "cast", "while",
    "Out", "float32", "@EMPTY@", "a\ud800", [], {}, [0, 1], [[]], ["x"], {"int": "0x1"}, {"float": "inf"}, {"list": [1]},
    {"dtype": "bool"}, {"dict": [["a", 1]]}, {"X": ["x"]}, [["L2Decay", 1.0]],
]  # fmt: skip


def _containers(content: Any) -> list[Any]:
    found, stack = [], [content]
    while stack:
        item = stack.pop()
        if isinstance(item, dict | list):
            if item:
                found.append(item)
            stack.extend(item.values() if isinstance(item, dict) else item)
    return found


def _survives(data: bytes) -> bool:
    """Whether it is a program, which then prints, saves and reads back; anything but CheckpointError gets through."""
    try:
        program = Program.parse_from_string(data)
    except CheckpointError:
        return False
    assert canonical(Program.parse_from_text(str(program))) == canonical(program)
    assert canonical(Program.parse_from_string(saved(program))) == canonical(program)
    return True


def _changed(rng: random.Random) -> Any:
    """The base program with one to three changes anywhere in its structure."""
    content = payload(BASE)
    for _ in range(rng.randint(1, 3)):
        places = _containers(content)
        if not places:
            break
        item = rng.choice(places)
        key = rng.choice(list(item) if isinstance(item, dict) else range(len(item)))
        what = rng.randrange(5)
        if what == 0:
            del item[key]
        elif what == 1 and isinstance(item, list):
            item.insert(key, copy.deepcopy(rng.choice(item)))
        elif what == 2:
            # A copy: what is saved as JSON is a tree.
            item[key] = copy.deepcopy(rng.choice(places))
        elif what == 3 and isinstance(item, dict):
            item[rng.choice(["extra", *item])] = item.pop(key)
        else:
            item[key] = copy.deepcopy(rng.choice(JUNK))
    return content


@pytest.mark.parametrize("seed", range(6))
def test_changed_structures_are_programs_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    assert sum(_survives(sealed(_changed(rng))) for _ in range(1000)) > 20


@pytest.mark.parametrize("seed", range(2))
def test_changed_bytes_are_programs_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    body = BASE.partition(b"\n")[2]
    for _ in range(1000):
        damaged = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.choice([rng.randrange(256), *b'0123456789[]{},:"-'])
        _survives(serial.seal(bytes(damaged)))
