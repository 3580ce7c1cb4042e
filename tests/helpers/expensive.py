"""Files that try to cost far more than their size: pickles, programs, texts and values, drawn from a seed."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import tstatic as paddle
from tstatic import static
from tstatic.formats import checkpoint, serial
from tstatic.formats import paddle_proto as proto

HEAD = b"\x80\x04"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
FLOAT64 = b"cnumpy\ndtype\nX\x02\x00\x00\x00f8\x85R"
Draw = random.Random


def text(content: bytes) -> bytes:
    """The opcode of a text."""
    return b"X" + struct.pack("<I", len(content)) + content


def whole(number: int) -> bytes:
    """The opcode of an int of any size."""
    data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


# ---------------------------------------------------------------------------------------------------------------- pickles
def build(draw: Draw, size: int) -> bytes:
    """An array without content under many memo numbers, which BUILD fills again and again."""
    state = b"(K\x01K\x00\x85" + FLOAT64 + b"\x89C\x00t" + b"r\xff\xff\xff\x7f0"
    part = size // 8
    return HEAD + ARRAY + b"\x94" * (2 * part) + b"h\x00" * part + state + b"j\xff\xff\xff\x7fb0" * part + b"N."


def memo(draw: Draw, size: int) -> bytes:
    return HEAD + b"N" + draw.choice((b"\x94", b"q\x00", b"r\x00\x00\x00\x7f")) * size + b"."


def laughs(draw: Draw, size: int) -> bytes:
    """Lists or tuples of the one before, each several times."""
    made, times = HEAD + b"]\x94", draw.choice((2, 10, 200))
    for i in range(min(size // (times * 5 + 2), 90)):
        made += b"(" + b"j" + struct.pack("<I", i) + (b"j" + struct.pack("<I", i)) * (times - 1) + draw.choice(
            (b"l", b"t")) + b"\x94"  # fmt: skip
    return made + draw.choice((b".", b"h\x00\x93.", text(b"x") + b"\x93.", b"(K\x00" + ARRAY + b"tb."))


def frames(draw: Draw, size: int) -> bytes:
    return HEAD + (b"\x95" + draw.randbytes(8)) * (size // 9) + b"N."


def longs(draw: Draw, size: int) -> bytes:
    count = draw.choice((1, 200, 1024, 2**31 - 1))
    one = b"\x8b" + struct.pack("<I", count) + b"\x7f" * min(count, 1024)
    return HEAD + b"(" + one * (size // len(one) + 1) + b"l."


def colliding(draw: Draw, size: int) -> bytes:
    """A dict whose keys look for their place at the same positions."""
    shift = draw.choice((17, 20, 25, 30, 45))
    if draw.random() < 0.5:
        keys = [whole(i << shift) for i in range(size // 10)]
    else:
        keys = [b"G" + struct.pack(">d", i * 2.0**-shift) for i in range(size // 10)]
    return HEAD + b"}(" + b"".join(key + b"N" for key in keys) + b"u."


def copied_tuples(draw: Draw, size: int) -> bytes:
    one = b"cbuiltins\ntuple\nh\x00\x85R"
    return HEAD + b"(" + b"N" * (size // 2) + b"t\x940(" + one * (size // 2 // len(one)) + draw.choice((b"l.", b"1N."))


def long_dtypes(draw: Draw, size: int) -> bytes:
    """A dtype or its order of a hundred thousand characters, made again and again."""
    head = HEAD + draw.choice((b"B" + struct.pack("<I", size // 2) + b"f" * (size // 2), text(b"f" * (size // 2))))
    head += b"\x94\x85\x940cnumpy\ndtype\n\x940("
    order = FLOAT64 + b"K\x03h\x00\x86b"
    one = draw.choice((b"h\x02h\x01R", order))
    return head + one * (size // 2 // len(one)) + b"l."


def encoded(draw: Draw, size: int) -> bytes:
    one = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    return HEAD + text(b"x" * (size // 2)) + b"\x940(" + one * (size // 2 // len(one)) + draw.choice((b"l.", b"1N."))


def wide_texts(draw: Draw, size: int) -> bytes:
    """Texts of plain letters and one character that makes each of them four bytes wide."""
    one = text(b"x" * draw.choice((1, 100, size // 2)) + draw.choice(("\u0100", "\U0001f600")).encode())
    return HEAD + b"(" + one * (size // len(one) + 1) + b"l."


def many_sizes(draw: Draw, size: int) -> bytes:
    """Empty arrays of thirty-two dimensions."""
    head = (
        HEAD
        + b"cnumpy.core.numeric\n_frombuffer\n\x940"
        + b"(C\x00"
        + FLOAT64
        + b"("
        + b"K\x00" * 32
        + b"tU\x01Ct\x940("
    )
    return head + b"h\x00h\x01R" * (size // 5) + draw.choice((b"l.", b"1N."))


def ordered(draw: Draw, size: int) -> bytes:
    one = draw.choice((b"h\x00)\x81", b"h\x00)R", b"h\x00]\x85R"))
    return HEAD + b"ccollections\nOrderedDict\n\x940(" + one * (size // len(one)) + b"l."


def empties(draw: Draw, size: int) -> bytes:
    return (
        HEAD
        + b"("
        + draw.choice((b"]", b"}", b")", b"]]a", b"}K\x00]s", b"(", b"(l", b"(t", b"]\x94")) * (size // 2)
        + b"l."
    )


def one_array(draw: Draw, size: int) -> bytes:
    """A pair of name and array, as Paddle writes a tensor, in thousands of places."""
    pair = text(b"w") + b"cnumpy.core.numeric\n_frombuffer\n(B" + struct.pack("<I", size // 2) + bytes(size // 2)
    pair += b"cnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R" + whole(size // 2) + b"\x85X\x01\x00\x00\x00CtR\x86\x94"
    return HEAD + b"(" + pair + b"h\x00" * (size // 4) + draw.choice((b"l.", b"t."))


def nested(draw: Draw, size: int) -> bytes:
    depth = draw.choice((50, 99, 101, size // 2))
    return HEAD + b"]" * depth + b"a" * (depth - 1) + b"."


def soup(draw: Draw, size: int) -> bytes:
    """Opcodes in any order."""
    parts = [
        b"N", b"(", b"]", b"}", b")", b"K\x01", b"h\x00", b"h\x01", b"\x94", b"l", b"t", b"a", b"s", b"u", b"e", b"\x85", b"\x86",
        b"0", b"R", b"b", b"C\x03abc", ARRAY, FLOAT64, text(b"w" * 50), b"\x93", b"\x81",
    ]  # fmt: skip
    return HEAD + b"]\x94K\x01\x94" + b"".join(draw.choices(parts, k=size // 3)) + b"."


def load_pickle(data: bytes) -> None:
    """Loads a pickle by the calls that take one."""
    paddle.load(io.BytesIO(data))
    paddle.load(io.BytesIO(data), return_numpy=True)


def load_program(data: bytes) -> None:
    """Loads a program in either form."""
    serial.decode(data)


def load_text(data: bytes) -> None:
    static.Program.parse_from_text(data.decode())


def load_header(data: bytes) -> None:
    checkpoint.decode(data, "these bytes")


# --------------------------------------------------------------------------------------------------------------- programs
def _block(ops: list[proto.OpDesc], names: list[str], index: int = 0) -> proto.BlockDesc:
    tensor = proto.TensorDesc(5, [2])
    made = [proto.VarDesc(name, proto.VarType(7, lod_tensor=proto.LoDTensorDesc(tensor))) for name in names]
    return proto.BlockDesc(index, index - 1, made, ops)


def _written(*blocks: proto.BlockDesc) -> bytes:
    return proto.write_program(proto.ProgramDesc(list(blocks)))


def constants(draw: Draw, size: int) -> bytes:
    """One long constant that an input names thousands of times."""
    values = proto.Attr("values", 11, longs=[5] * (size // 4))
    shape = [proto.Attr("dtype", 0, i=3), proto.Attr("shape", 3, ints=[size // 4])]
    ops = [proto.OpDesc([], [proto.Slot("Out", ["c"])], "assign_value", [*shape, values])]
    slot = proto.Slot(draw.choice(("ShapeTensorList", "ShapeTensor")), ["c"] * (size // 8))
    ops.append(
        proto.OpDesc(
            [proto.Slot("X", ["x"]), slot], [proto.Slot("Out", ["y"])], draw.choice(("reshape2", "fill_constant"))
        )
    )
    return _written(_block(ops, ["c", "x", "y"]))


def gradients(draw: Draw, size: int) -> bytes:
    """One forward op with a long attribute, and thousands of backward ops that need it."""
    forward = proto.OpDesc(
        [proto.Slot("X", ["x"])], [proto.Slot("Out", ["y"])], draw.choice(("tanh", "squeeze", "l1_norm", "reverse")),
        [proto.Attr("axes", 3, ints=[0] * (size // 4)), proto.Attr("axis", 3, ints=[0] * (size // 8))],
    )  # fmt: skip
    back = proto.OpDesc(
        [proto.Slot("Out@GRAD", ["y@GRAD"])], [proto.Slot("X@GRAD", ["x@GRAD"])], f"{forward.type}_grad",
        [proto.Attr("axes", 3, ints=[0])] * 2,
    )  # fmt: skip
    return _written(_block([forward, *[back] * (size // 60)], ["x", "y", "x@GRAD", "y@GRAD"]))


def derived(draw: Draw, size: int) -> bytes:
    """Thousands of backward ops that follow from a forward op, each of which is looked for among all ops; or of unknown types."""
    x, grads = proto.Slot("X", ["x"]), proto.Slot("Out@GRAD", ["y@GRAD"])
    forward = proto.OpDesc([x], [proto.Slot("Out", ["y"])], draw.choice(("squeeze", "reverse", "l1_norm")))
    unknown = draw.random() < 0.5
    back = [
        proto.OpDesc(
            [x, grads], [proto.Slot("X@GRAD", ["x@GRAD"])], f"op_{i}_grad" if unknown else f"{forward.type}_grad"
        )
        for i in range(size // 60)
    ]
    block = _block([forward, *back], ["x", "y", "x@GRAD", "y@GRAD"])
    for var in block.vars:
        assert var.type is not None
        var.type.lod_tensor = proto.LoDTensorDesc(proto.TensorDesc(5, [1]))
    return _written(block)


def deep_blocks(draw: Draw, size: int) -> bytes:
    """Thousands of names that are looked up through hundreds of blocks."""
    names = [f"v{i}" for i in range(size // 80)]
    depth = min(size // 20, draw.choice((10, 900, 5000)))
    ops = [proto.OpDesc([proto.Slot("X", [name])], [proto.Slot("Out", [name])], "relu") for name in names]
    inner = [_block([], [], i) for i in range(1, depth)]
    return _written(_block([], names), *inner, _block(ops, [], depth))


def packed(draw: Draw, size: int) -> bytes:
    """Attributes of numbers that take one byte in the file."""
    number = draw.choice((6, 15, 11))
    name = proto.FIELDS[proto.Attr][number][0]
    attr = bytearray(b"\x0a\x01a\x10" + bytes([{"ints": 3, "longs": 11, "bools": 7}[name]]))
    proto._sized(attr, number, draw.choice((b"\x01", b"\xac\x02")) * (size // 2))
    op, block, out = bytearray(), bytearray(), bytearray()
    proto._sized(op, 3, b"relu")
    proto._sized(op, 4, attr)
    proto._sized(block, 4, op)
    proto._sized(out, 1, block)
    return bytes(out)


def parts(draw: Draw, size: int) -> bytes:
    """Empty messages, of two bytes each: blocks, variables, ops, slots, attributes."""
    path, one = draw.choice(
        (((1,), 2), ((1, 3), 2), ((1, 4), 2), ((1, 4, 1), 2), ((1, 4, 4), 2), ((1, 9), 2), ((7,), 2))
    )
    out = bytes([path[-1] << 3 | one, 0]) * (size // 2)
    for number in reversed(path[:-1]):
        around = bytearray()
        proto._sized(around, number, out)
        out = bytes(around)
    return out


def sealed(draw: Draw, size: int) -> bytes:
    """A program of our own under the right checksum: values without end, keys that collide, names that are alike."""
    blocks: list[dict[str, Any]] = [{"vars": [], "ops": [], "built": 0}]
    kind = draw.randrange(5)
    op: dict[str, Any] = {"type": "relu", "inputs": {}, "outputs": {}, "position": 0}
    if kind == 0:
        op["attrs"] = {"a": {"dict": [[{"int": hex(i * (2**61 - 1))}, 0] for i in range(size // 40)]}}
    elif kind == 1:
        op["attrs"] = {"a": draw.choice(([[]], [{}], [""], [0])) * (size // 3)}
    elif kind == 2:
        letters = "".join(map(chr, range(200, 400)))
        names = ["".join(draw.sample(letters, 200)) for _ in range(size // 500)]
        blocks[0]["vars"] = [{"name": name, "shape": [2], "dtype": "float32"} for name in names]
        op["inputs"] = {"X": ["".join(draw.sample(letters, 200))]}
    elif kind == 3:
        blocks[0]["vars"] = [{"name": f"v{i}", "shape": [], "dtype": None} for i in range(size // 40)]
    else:
        blocks += [{"vars": [], "ops": [], "built": 0, "parent": i} for i in range(min(size // 60, 900))]
        names = [f"v{i}" for i in range(size // 100)]
        blocks[0]["vars"] = [{"name": name, "shape": [2], "dtype": "float32"} for name in names]
        blocks[-1]["ops"] = [{**op, "inputs": {"X": [n]}, "outputs": {"Out": [n]}} for n in names]
    if kind < 3:
        blocks[0]["ops"] = [op]
    return serial.seal(json.dumps({"blocks": blocks}, separators=(",", ":")).encode())


def written(draw: Draw, size: int) -> bytes:
    """A program's text: brackets, spaces, colons, texts and keys without end."""
    start = "program\nblock 0 {\n"
    line = "    {Out=['y']} = relu(inputs={X=['x']}, a = "
    return (start + draw.choice((
        "#" + " " * size, "#" + ":" * size, "#" + " :1" * (size // 3), line + "(" * size, line + "[1, " * (size // 4),
        line + "'" + "\\a" * (size // 2), line + "b'" + "x" * size, line + "1" * size, line + "0x" + "f" * size + ")",
        line + "{" + ", ".join(f"{hex(i * (2**61 - 1))}: 0" for i in range(size // 25)) + "})",
        line + "[" + "(), " * (size // 4) + "])", "    var x" + "\n" * size, "    var " + "a" * size + ": float32[2]",
        line + "1." + "1" * size + ")", line + "[" + "1, " * (size // 3) + "])",
    ))).encode()  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------- values
def header(draw: Draw, size: int) -> bytes:
    """A header of safetensors with lists, keys or texts without end."""
    made = draw.choice((
        b'{"a":' + b"[" * (size // 2), b'{"a":[' + b"[]," * (size // 3) + b"[]]}", b"{" + b'"a":0,' * (size // 6) + b'"b":0}',
        b'{"' + b'\\"' * (size // 2) + b'":0}', b'{"__metadata__":{' + b'"a":"",' * (size // 7) + b'"b":""}}',
        b'{"a":{"dtype":"F32","shape":[' + b"1," * (size // 2) + b'1],"data_offsets":[0,4]}}', b'{"a"' + b" " * size + b":0}",
        b"{" + b",".join(b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(size // 50)) + b"}",
    ))  # fmt: skip
    return len(made).to_bytes(8, "little") + made


def tensors(draw: Draw, size: int) -> bytes:
    """Paddle's tensors: empty, with levels that span the file, with sizes that multiply to nothing or to more than there is."""
    levels = draw.choice((b"", struct.pack("<Q", size // 2) + bytes(size // 2)))
    desc = proto.write_message(proto.TensorDesc(5, draw.choice(([0] * 60, [2**62] * 3 + [0], [2**31, 2**31], []))))
    one = bytes(4) + struct.pack("<Q", bool(levels)) + levels + bytes(4) + struct.pack("<I", len(desc)) + desc
    return one * max(1, size // len(one)) + bytes(4)


Kind = tuple[Callable[[Draw, int], bytes], Callable[[bytes], Any]]
KINDS: dict[str, Kind] = {
    **{f"pickle: {make.__name__}": (make, load_pickle) for make in (
        build, memo, laughs, frames, longs, colliding, copied_tuples, long_dtypes, encoded, wide_texts, many_sizes, ordered,
        empties, one_array, nested, soup,
    )},
    **{f"program of Paddle: {make.__name__}": (make, load_program) for make in (
        constants, gradients, derived, deep_blocks, packed, parts,
    )},
    "program": (sealed, load_program),
    "text": (written, load_text),
    "header": (header, load_header),
    "tensors": (tensors, load_pickle),
}  # fmt: skip
"""Kind -> how a file of about so many bytes is made, and how it is loaded."""
