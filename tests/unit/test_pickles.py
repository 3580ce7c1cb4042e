"""The reader of pickles runs no code and keeps to its budget; the writer gives what Python's own reader takes."""

from __future__ import annotations

import math
import pickle
import tracemalloc
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tstatic as paddle
from tstatic.errors import CheckpointError, LoadLimitError, ProgramError, ProgramTypeError
from tstatic.formats.pickle_writer import dump_pickle
from tstatic.formats.pickles import load_pickle

NEST: dict[str, Any] = {
    "a": np.arange(3, dtype="float32"),
    "b": [1, 2.5, "\ud800x", None, True, (1, (2,)), -5, 2**40, -(2**70), b"\xff\x00", math.inf],
    "number": np.float32(3),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "ordered": OrderedDict(z=1, y=[{}]),
    "texts": np.array(["ab", "c"]),
    "bytes": np.array([b"x", b"yy"]),
    "empty": np.zeros((0, 3)),
    "no axis": np.array(5),
    3: (),
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | np.generic):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_python_writes_is_read(protocol: int) -> None:
    assert same(load_pickle(pickle.dumps(NEST, protocol)), NEST)
    big = np.arange(3, dtype=">i4")
    assert load_pickle(pickle.dumps(big, protocol)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("protocol", [1, 5, -1, True, "4", 2.0])
def test_protocols_that_paddle_refuses_are_refused_and_nothing_is_written(protocol: Any, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="Expected 1<'protocol'<5"):
        paddle.save({"a": 1}, str(tmp_path / "saved"), protocol=protocol)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_what_is_written_python_reads(protocol: int) -> None:
    data = dump_pickle(NEST, protocol)
    assert same(pickle.loads(data), NEST)
    assert same(load_pickle(data), NEST)
    assert data[1] == protocol


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(-9, 9), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(PLAIN, st.sampled_from([2, 3, 4]))
def test_any_plain_nest_is_the_same_afterwards(value: Any, protocol: int) -> None:
    assert same(load_pickle(dump_pickle(value, protocol)), value)
    assert same(load_pickle(pickle.dumps(value, protocol)), value)


def test_texts_of_python_2_are_bytes_or_latin1() -> None:
    # {'data': array, 'labels': [1]} as Python 2 writes it, which is the form of the CIFAR files.
    data = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
        b"(K\x01K\x02K\x02\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        b"K\x00tb\x89U\x04\x01\x02\x03\xfftbU\x06labels]K\x01au."
    )
    for strings, kind in (("bytes", bytes), ("latin1", str)):
        found = load_pickle(data, strings=strings)  # type: ignore[arg-type]
        assert [type(key) for key in found] == [kind, kind]
        assert [value.tolist() if isinstance(value, np.ndarray) else value for value in found.values()] == [
            [[1, 2], [3, 255]],
            [1],
        ]


def test_a_tensor_of_paddle_is_its_array(tmp_path: Path) -> None:
    class Tensor:
        def __init__(self, text: str, others: int = 0) -> None:
            self.text, self.others = text, others

        def __reduce__(self) -> Any:
            values: dict[str, Any] = {"data": np.ones(2)}
            return eval, (self.text, values | {str(i): 0 for i in range(self.others)})

    assert load_pickle(pickle.dumps([Tensor("data")], 4))[0].tolist() == [1, 1]
    mark = tmp_path / "run"
    for trap in (Tensor(f"open({str(mark)!r}, 'w')"), Tensor("data", 1)):
        with pytest.raises(CheckpointError, match="another use of eval"):
            load_pickle(pickle.dumps([trap], 4))
    assert not mark.exists()


class Shares:
    """Reduces to any call."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


def lots(count: int) -> Any:
    """Lists of lists, each ten times the one before."""
    value: Any = [1]
    for _ in range(count):
        value = [value] * 10
    return value


def inside_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def nested(count: int) -> bytes:
    return b"\x80\x04" + b"]" * count + b"a" * (count - 1) + b"."


def array(shape: bytes, dtype: bytes = b"f4", content: bytes = b"C\x04\x00\x00\x00\x00") -> bytes:
    head = b"\x80\x04cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01("
    return (
        head
        + shape
        + b"tcnumpy\ndtype\nX"
        + len(dtype).to_bytes(4, "little")
        + dtype
        + b"\x89\x88\x87R(K\x03X\x01\x00\x00\x00<"
        b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89" + content + b"tb."
    )


HOSTILE: dict[str, tuple[bytes, str]] = {
    "a system call": (pickle.dumps(Shares(__import__("os").system, ("true",)), 4), "posix.system"),
    "exec": (pickle.dumps(Shares(exec, ("1",)), 2), "exec, which is not one of data"),
    "getattr": (pickle.dumps(Shares(getattr, (1, "real")), 4), "getattr"),
    "numpy's own loader": (pickle.dumps(np.load, 4), "numpy"),
    "an object array": (pickle.dumps(np.array([{}], dtype=object), 4), "dtype 'O8'"),
    "ndarray called": (b"\x80\x04cnumpy\nndarray\nK\x09\x85\x85R.", "a call of ndarray"),
    "a persistent object": (b"\x80\x02K\x01Q.", "opcode 0x51"),
    "an extension": (b"\x80\x02\x82\x01.", "opcode 0x82"),
    "no bytes": (b"", "do not begin with"),
    "protocol 0": (b"I1\n.", "do not begin with"),
    "an endless text": (b"\x80\x04\x8d" + b"\xff" * 8, "end in the middle"),
    "2**40 bytes": (b"\x80\x04\x8e" + (2**40).to_bytes(8, "little") + b"x.", "end in the middle"),
    "memo 2**32-1": (b"\x80\x04Nr\xff\xff\xff\xff", "end in the middle"),
    "an array of 2**40": (array(b"J\x00\x00\x00\x40J\x00\x00\x00\x40"), "without its bytes"),
    "a negative size": (array(b"J\xff\xff\xff\xff"), "of shape"),
    "elements of no bytes": (array(b"J\x00\x00\x00\x40", b"S0", b"C\x00"), "without its bytes"),
    "a dtype that is code": (array(b"K\x01", b"f4,O"), "dtype"),
    "nested lists": (nested(100_000), "nested deeper"),
    "a list that is in itself": (pickle.dumps(inside_itself(), 4), "contains itself"),
    "billions of lists": (pickle.dumps(lots(12), 4), "without end"),
    "a tuple copied": (
        b"\x80\x04(" + b"N" * 99_000 + b"t\x940" + b"(" + b"cbuiltins\ntuple\nh\x00\x85R" * 9_000 + b"l.", "more memory than",
    ),
    "a text encoded": (
        b"\x80\x04X\xa0\x86\x01\x00" + b"x" * 100_000 + b"\x940("
        + b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R" * 3_000 + b"l.",
        "more (work|memory) than",
    ),
    "an array copied": (
        b"\x80\x04B\xa0\x86\x01\x00" + bytes(100_000) + b"\x94cnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R\x94("
        + b"cnumpy.core.numeric\n_frombuffer\n(h\x00h\x01J\xa0\x86\x01\x00\x85X\x01\x00\x00\x00CtR" * 1_000 + b"l.",
        "more work than",
    ),
    "keys that collide": (pickle.dumps({i * (2**61 - 1): 0 for i in range(1, 9)}, 4), "a key of type int"),
    "a key that is a list": (b"\x80\x04}]Ns.", "a key of type list"),
    "a number of a million digits": (b"\x80\x04\x8b\x00\x00\x10\x00" + b"\x7f" * 2**20 + b".", "an integer of"),
    "an array that is not whole": (
        b"\x80\x04cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R.", "without the rest",
    ),
    "a function": (b"\x80\x04cbuiltins\neval\n.", "without the rest"),
    "more behind the end": (pickle.dumps(1, 4) + b"x", "behind its end"),
    "a mark crossed": (b"\x80\x04K\x01(0.", "empty stack"),
    "an array filled again and again": (
        b"\x80\x04cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R" + b"\x94" * 120_000
        + b"h\x00" * 45_000 + b"(K\x01K\x00\x85cnumpy\ndtype\nX\x02\x00\x00\x00f8K\x00K\x01\x87R\x89C\x00tr\xff\xff\xff\x7f0"
        + b"j\xff\xff\xff\x7fb0" * 45_000 + b"N.",
        "filled twice",
    ),
    "a name that is a nest": (pickle.dumps(lots(12), 4)[:-1] + b"\x8c\x01x\x93.", "the name list.x"),
    "a shape that is a nest": (array(pickle.dumps(lots(12), 4)[2:-1]), "of shape|end|shape"),
    "a long dtype copied": (
        b"\x80\x04B\xa0\x86\x01\x00" + b"f" * 100_000 + b"\x85\x94cnumpy\ndtype\n\x940(" + b"h\x01h\x00R" * 20_000 + b"l.",
        "up to 12 characters",
    ),
    "arrays of 32 sizes": (
        b"\x80\x04cnumpy.core.numeric\n_frombuffer\n\x940(C\x00cnumpy\ndtype\nX\x02\x00\x00\x00f8\x85R(" + b"K\x00" * 32
        + b"tU\x01Ct\x940(" + b"h\x00h\x01R" * 100_000 + b"l.",
        "more memory than",
    ),
    "the memo filled": (b"\x80\x04N" + b"\x94" * 500_000 + b".", "more memory than"),
    "a text of wide characters": (
        b"\x80\x04X" + (20_000_000).to_bytes(4, "little") + b"x" * 19_999_996 + "\U0001f600".encode() + b"]\x940"
        + (b"X" + (10_000_000).to_bytes(4, "little") + b"x" * 9_999_996 + "\U0001f600".encode()) + b".", "more memory than",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_at_four_times_its_size(name: str) -> None:
    data, words = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=words) as caught:
            load_pickle(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(data) + (32 << 20)
    assert len(str(caught.value)) < 1000


def test_who_trusts_a_file_raises_its_limits() -> None:
    """Guards the way out: what is refused for its cost alone is read with a higher limit."""
    data = b"\x80\x04K\x07" + b"\x94" * 500_000 + b"."
    with pytest.raises(LoadLimitError, match="FLAGS_load_limit_factor, which is 1"):
        load_pickle(data)
    paddle.set_flags({"FLAGS_load_limit_factor": 50.0})
    assert load_pickle(data) == 7
    for bad in (0.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="a finite number >= 1"):
            paddle.set_flags({"FLAGS_load_limit_factor": bad})


def test_a_long_list_of_numbers_is_read() -> None:
    """Guards files that are large but plain against the bounds."""
    values = [float(i) + 0.5 for i in range(200_000)]
    assert load_pickle(dump_pickle({"losses": values}))["losses"] == values


@pytest.mark.parametrize("value", [object(), {(1,): 2}, {1, 2}, np.array([{}], dtype=object), 2**9000, inside_itself()])
def test_what_is_not_plain_is_not_written(value: Any) -> None:
    with pytest.raises(ProgramTypeError, match="only plain data"):
        dump_pickle(value)


def test_every_cut_is_noticed() -> None:
    data = dump_pickle(NEST)
    for end in range(len(data)):
        with pytest.raises(CheckpointError):
            load_pickle(data[:end])
