"""Checkpoints that nobody vouches for: refused with a typed error at a bounded cost; damaged ones give what is left."""

from __future__ import annotations

import hashlib
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from tstatic import fluid, static
from tstatic.errors import CheckpointError, near
from tstatic.formats import checkpoint, header
from tstatic.formats.checkpoint import Checkpoint

EMPTY = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}


def file_of(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + body


def forged(manifest: bytes, **tensors: Any) -> bytes:
    """A file of ours with any manifest, under the right checksum."""
    metadata = {"tstatic.manifest": manifest.decode(), "tstatic.sha256": hashlib.sha256(manifest).hexdigest()}
    return file_of({"__metadata__": metadata, **(tensors or {"a": EMPTY})})


ROW = b'{"sha256":"%s","kind":"state","dtype":"float32","shape":[0]}' % hashlib.sha256(b"").hexdigest().encode()


NO_ROW = b'{"sha256":"","kind":"","dtype":"","shape":[]}'


def manifest(form: bytes = b"1", rows: bytes = b'"a":' + ROW, facts: bytes = b"{}") -> bytes:
    return b'{"format":%s,"tensors":{%s},"facts":%s}' % (form, rows, facts)


def many(count: int) -> bytes:
    return file_of(
        b"{" + b",".join(b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(count)) + b"}"
    )


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "200,000 empty tensors": (lambda: many(200_000), "more tensors than its size has room for"),
    "200,000 rows in the manifest": (
        lambda: forged(manifest(rows=b",".join(b'"t%d":%s' % (i, NO_ROW) for i in range(200_000)))),
        "more tensors than",
    ),
    "nested lists": (lambda: file_of(b'{"a":' + b"[" * 10**6 + b"]" * 10**6 + b"}"), "damaged"),
    "many lists": (lambda: file_of(b'{"a":[' + b"[]," * 10**6 + b"[]]}"), "damaged"),
    "a million sizes": (lambda: file_of(b'{"a":{"dtype":"F32","shape":[' + b"1," * 10**6 + b"1]}}"), "damaged"),
    "a size of a million digits": (lambda: file_of(b'{"a":{"dtype":"F32","shape":[' + b"1" * 10**6 + b"]}}"), "damaged"),
    "a million short keys": (lambda: file_of(b"{" + b'"a":0,' * 10**6 + b'"b":0}'), "more tensors"),
    "a million keys of metadata": (lambda: file_of(b'{"__metadata__":{' + b'"a":"",' * 10**6 + b'"b":""}}'), "more tensors"),
    "facts without end": (lambda: forged(manifest(facts=b'{"x":[' + b"0," * 10**5 + b"0]}")), "facts of 65,536 bytes"),
    "nested facts": (lambda: forged(manifest(facts=b"[" * 30_000 + b"]" * 30_000)), "does not follow|recursion"),
    "a header longer than the file": (lambda: (10**9).to_bytes(8, "little") + b"{}", "damaged"),
    "70 dimensions": (lambda: file_of({"a": {**EMPTY, "shape": [0] * 70}}), "damaged"),
    "a size of 2**62 beside 0": (lambda: file_of({"a": {**EMPTY, "shape": [0, 2**62]}}), "not an array"),
    "a negative size": (lambda: file_of({"a": {**EMPTY, "shape": [-1]}}), "damaged"),
    "offsets that overlap": (
        lambda: file_of({n: {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} for n in "ab"}, b"1234"), "damaged",
    ),
    "offsets with a hole": (lambda: file_of({"a": {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]}}, b"1234"), "damaged"),
    "offsets behind the end": (lambda: file_of({"a": {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]}}), "damaged"),
    "fewer bytes than the shape": (lambda: file_of({"a": {**EMPTY, "shape": [3]}}), "not an array"),
    "an unknown dtype": (lambda: file_of({"a": {**EMPTY, "dtype": "F8_E4M3"}}), "dtype that tstatic lacks"),
    "a doubled tensor": (
        lambda: file_of(b'{"a":%s,"a":%s}' % ((json.dumps(EMPTY).encode(),) * 2)),
        "twice",
    ),
    "a doubled key": (lambda: file_of(b'{"a":{"dtype":"F32","dtype":"F32","shape":[0],"data_offsets":[0,0]}}'), "twice"),
    "doubled metadata": (lambda: file_of(b'{"__metadata__":{"a":"1","a":"2"}}'), "twice"),
    "a doubled row": (lambda: forged(manifest(rows=b'"a":' + ROW + b',"a":' + ROW)), "twice"),
    "a doubled fact": (lambda: forged(manifest(facts=b'{"run_count":1,"run_count":2}')), "twice"),
    "a doubled format": (lambda: forged(b'{"format":1,' + manifest()[1:]), "twice"),
    "format 0": (lambda: forged(manifest(b"0")), "does not follow the format"),
    "format -5": (lambda: forged(manifest(b"-5")), "does not follow the format"),
    "format 2": (lambda: forged(manifest(b"2")), "newer than this tstatic"),
    "format of 600 digits": (lambda: forged(manifest(b"1" * 600)), "newer than this|does not follow"),
    "no facts": (lambda: forged(b'{"format":1,"tensors":{"a":%s}}' % ROW), "does not follow"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_at_four_times_its_size(name: str) -> None:
    make, words = HOSTILE[name]
    data = make()
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=words) as caught:
            checkpoint.decode(data, "x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(data) + 2**25
    assert len(str(caught.value)) < 2000


def test_what_the_hostile_files_are_made_from_is_read() -> None:
    assert checkpoint.decode(forged(manifest()), "x").tensors["a"].shape == (0,)
    assert checkpoint.decode(forged(manifest(facts=b'{"run_count":3}')), "x").facts == {"run_count": 3}
    assert len(checkpoint.decode(many(20_000), "x").tensors) == 20_000


@pytest.mark.parametrize("order", ["first", "last", "between"])
def test_metadata_may_stand_anywhere_in_a_header(order: str) -> None:
    rows = [
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}',
        b'"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}',
    ]
    rows.insert(
        {"first": 0, "between": 1, "last": 2}[order], b'"__metadata__" : {"format":"pt", "x":"{\\"a\\\\\\":1}"} '
    )
    found = checkpoint.decode(file_of(b"{ " + b" , ".join(rows) + b"}  ", b"\x01\x02"), "x")
    assert {n: v.tolist() for n, v in found.tensors.items()} == {"a": [1], "b": [2]}


def test_names_that_look_like_keys_are_names() -> None:
    names = ['":', '\\"dtype\\":', "__metadata__", 'a":{"b', "[" + "1," * 500, ":::", "\\", '\\\\"']
    arrays = {n: np.array([i]) for i, n in enumerate(n for n in names if n != "__metadata__")}
    for data in (checkpoint.encode(Checkpoint(arrays)), safetensors.numpy.save(arrays, {"note": '"x": 1'})):
        assert {n: v.tolist() for n, v in checkpoint.decode(data, "x").tensors.items()} == {
            n: v.tolist() for n, v in arrays.items()
        }


def test_an_absurd_run_count_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    main = static.Program()
    main.global_block().create_var(name="a", shape=[2], dtype="float32", persistable=True)
    values = {"a": np.ones(2, "float32")}
    for count in (2**63, 2**2000):
        (tmp_path / "m.pdparams").write_bytes(checkpoint.encode(Checkpoint(values, {}, {"run_count": count})))
        with pytest.raises(CheckpointError, match="run count"):
            static.load(main, str(tmp_path / "m"))
        assert static.global_scope().find_var("a") is None
    (tmp_path / "m.pdparams").write_bytes(checkpoint.encode(Checkpoint(values, {}, {"run_count": 2**63 - 1})))
    static.load(main, str(tmp_path / "m"))


def test_near_names_are_looked_for_among_some_of_a_million() -> None:
    seen = 0

    def names() -> Any:
        nonlocal seen
        for i in range(10**6):
            seen += 1
            yield f"name_{i}"

    assert "'name_7'" in near("name_7", names())
    assert seen < 10_000
    assert near("x" * 10**6, ["y" * 10**6]) == ""


# ------------------------------------------------------------------------------------------------------------ what is left
@pytest.fixture
def program() -> Any:
    main = static.Program()
    for name in "abc":
        main.global_block().create_var(name=name, shape=[2], dtype="float32", persistable=True)
        static.global_scope().var(name).get_tensor().set(np.full(2, 7.0, "float32"))
    return main


def values() -> dict[str, float]:
    return {n: float(np.array(static.global_scope().find_var(n).get_tensor())[0]) for n in "abc"}


def damage(path: Path, name: str) -> None:
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:8], "little")
    data[8 + size + json.loads(data[8 : 8 + size])[name]["data_offsets"][0]] ^= 1
    path.write_bytes(data)


def cut(path: Path, name: str) -> None:
    """Takes the last tensor's bytes, which are that one's."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert json.loads(data[8 : 8 + size])[name]["data_offsets"][1] == len(data) - 8 - size
    path.write_bytes(data[:-3])


@pytest.mark.parametrize("harm", [damage, cut])
def test_what_is_whole_in_a_damaged_file_is_loaded_and_what_is_lost_is_named(
    program: Any, tmp_path: Path, harm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    static.save(program, str(tmp_path / "m"))
    harm(tmp_path / "m.pdopt", "c")
    for name in "abc":
        static.global_scope().var(name).get_tensor().set(np.full(2, 1.0, "float32"))
    for load in (static.load, lambda *args: static.load_program_state(args[1])):
        with pytest.raises(CheckpointError, match=r"'c' is damaged|is damaged"):
            load(program, str(tmp_path / "m"))
    assert values() == dict.fromkeys("abc", 1.0)
    static.load(program, str(tmp_path / "m"), strict=False)
    assert values() == {"a": 7.0, "b": 7.0, "c": 1.0}
    assert "1 of 3 values are missing or damaged, and their variables stay as they are: c" in caplog.text
    assert set(static.load_program_state(str(tmp_path / "m"), strict=False)) == {"a", "b"}


@pytest.mark.parametrize("harm", ["damaged", "missing", "older"])
def test_what_is_whole_in_a_folder_is_loaded(
    program: Any, tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    fluid.io.save_persistables(None, str(tmp_path / "old"), program)
    for name in "abc":
        static.global_scope().var(name).get_tensor().set(np.full(2, 8.0, "float32"))
    fluid.io.save_persistables(None, str(tmp_path / "v"), program)
    if harm == "damaged":
        damage(tmp_path / "v/b", "b")
    elif harm == "missing":
        (tmp_path / "v/b").unlink()
    else:
        os.replace(tmp_path / "old/b", tmp_path / "v/b")
    for name in "abc":
        static.global_scope().var(name).get_tensor().set(np.full(2, 1.0, "float32"))
    with pytest.raises(CheckpointError, match=r"v/b"):
        fluid.io.load_persistables(None, str(tmp_path / "v"), program)
    fluid.io.load_persistables(None, str(tmp_path / "v"), program, strict=False)
    assert values() == {"a": 8.0, "b": 1.0, "c": 8.0}
    assert "1 of 3 values are missing or damaged" in caplog.text
    assert caplog.text.rstrip().endswith(": b")


def test_damage_to_the_only_file_is_named_even_if_not_strict(program: Any, tmp_path: Path) -> None:
    fluid.io.save_persistables(None, str(tmp_path), program, "all")
    (tmp_path / "all").write_bytes((tmp_path / "all").read_bytes()[:20])
    for strict in (True, False):
        with pytest.raises(CheckpointError, match="the file is damaged"):
            fluid.io.load_persistables(None, str(tmp_path), program, "all", strict=strict)


def test_nothing_left_is_an_error(program: Any, tmp_path: Path) -> None:
    static.save(program, str(tmp_path / "m"))
    for name in "abc":
        damage(tmp_path / "m.pdopt", name)
    with pytest.raises(CheckpointError, match="no whole value"):
        static.load(program, str(tmp_path / "m"), strict=False)


@pytest.mark.parametrize("between", ["\f", "\v", " ", ",,", ""])
@pytest.mark.parametrize("first", [True, False])
def test_metadata_without_its_comma_is_damage(between: str, first: bool) -> None:
    """What stands around the metadata is read as strictly as all else."""

    def made(between: str, end: str = "") -> bytes:
        rows = ['"__metadata__":{"by":"a\\"hand"}', '"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}']
        head = ("{" + between.join(rows if first else rows[::-1]) + end + "}").encode()
        return len(head).to_bytes(8, "little") + head + bytes(4)

    for whole in (made(","), made(" \n,\t")):
        assert list(header.parse(whole, "f").entries) == ["x"]
    for wrong in (made(between), made(",", ",")):
        with pytest.raises(CheckpointError, match="damaged"):
            header.parse(wrong, "f")
