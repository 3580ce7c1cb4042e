"""Checkpoints: every damage is noticed, a save that fails leaves the old file, a resumed run is the unbroken one."""

from __future__ import annotations

import json
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import tstatic as paddle
from tests.cpu.nets import regression, rows, state
from tstatic import fluid, static
from tstatic.errors import CheckpointError, FeedError, ProgramError, ProgramTypeError, ShapeError
from tstatic.formats import checkpoint
from tstatic.formats.checkpoint import Checkpoint
from tstatic.ir.types import DTYPES
from tstatic.static.files.saving import state_of


def small() -> Checkpoint:
    rng = np.random.default_rng(0)
    return Checkpoint(
        {
            "w": rng.standard_normal((3, 2)).astype("float32"), "b.w": rng.standard_normal(4).astype(ml_dtypes.bfloat16),
            "n": np.array(3), "empty": np.zeros((0, 2)), "flag": np.array([True, False]),
        },
        {"w": "parameter"},
        {"run_count": 7},
    )  # fmt: skip


def same(a: Checkpoint, b: Checkpoint) -> bool:
    return (
        {n: (v.dtype, v.shape, v.tobytes()) for n, v in a.tensors.items()}
        == {n: (v.dtype, v.shape, v.tobytes()) for n, v in b.tensors.items()}
        and dict(a.facts) == dict(b.facts)
        and {n: a.kinds.get(n, "state") for n in a.tensors} == {n: b.kinds.get(n, "state") for n in b.tensors}
    )


def trained(optimizer: Any = None) -> tuple[Any, Any, Any]:
    main, startup, loss = regression(optimizer or paddle.optimizer.Adam(0.05))
    exe = static.Executor("cpu")
    paddle.seed(3)
    exe.run(startup)
    for _ in range(3):
        exe.run(main, feed={"x": rows(8)})
    return exe, main, loss


# --------------------------------------------------------------------------------------------------------------- content
def test_what_is_encoded_is_decoded() -> None:
    assert same(checkpoint.decode(checkpoint.encode(small()), "x"), small())
    for change in ("tensors", "kinds", "facts"):
        other = small()
        getattr(other, change).clear()
        assert not same(other, small()), "the comparison sees it"


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_and_every_bit(name: str) -> None:
    kind = DTYPES[name].np
    raw = np.random.default_rng(1).integers(0, 2 if name == "bool" else 256, 64 * kind.itemsize, dtype=np.uint8)
    values = raw.view(kind).reshape(4, 16)
    for array in (values, values.T, values[::-2], values[0, 0], values[:, :0], np.asfortranarray(values)):
        found = checkpoint.decode(checkpoint.encode(Checkpoint({"x": array})), "x").tensors["x"]
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert found.tobytes() == array.tobytes()


def test_names_of_any_kind() -> None:
    names = ["a b", "é", "日本", 'quote"', "back\\slash", "new\nline", "nul\0", "a/b", "x@GRAD", "tstatic.manifest"]
    kept = checkpoint.decode(checkpoint.encode(Checkpoint({n: np.array(i) for i, n in enumerate(names)})), "x")
    assert {n: int(v) for n, v in kept.tensors.items()} == {n: i for i, n in enumerate(names)}


def test_files_of_others_are_read_and_ours_by_others(tmp_path: Path) -> None:
    arrays = {"a": np.arange(3.0), "b": np.ones((2, 2), "float16")}
    found = checkpoint.decode(safetensors.numpy.save(arrays), "x")
    assert all(np.array_equal(found.tensors[n], a) for n, a in arrays.items())
    assert found.facts == {}
    theirs = safetensors.numpy.load(checkpoint.encode(Checkpoint(arrays)))
    assert all(np.array_equal(theirs[n], a) for n, a in arrays.items())


# ---------------------------------------------------------------------------------------------------------------- damage
def test_every_flipped_bit_is_noticed() -> None:
    data = checkpoint.encode(small())
    picked = random.Random(0).sample(range(8 * len(data)), 2000)
    # The first bytes hold the length and the names that tell a file of ours from others.
    for bit in [*range(8 * 200), *picked]:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointError):
            checkpoint.decode(bytes(damaged), "x")


def test_without_its_checksums_damage_would_go_unnoticed() -> None:
    data = safetensors.numpy.save({"w": np.arange(64.0)})
    damaged = bytearray(data)
    damaged[-1] ^= 1
    assert not np.array_equal(checkpoint.decode(bytes(damaged), "x").tensors["w"], np.arange(64.0))


def test_every_truncation_is_noticed() -> None:
    data = checkpoint.encode(small())
    for end in range(len(data)):
        with pytest.raises(CheckpointError):
            checkpoint.decode(data[:end], "x")
    for extra in (b"\0", b"x" * 100):
        with pytest.raises(CheckpointError):
            checkpoint.decode(data + extra, "x")


def test_what_a_pickle_calls_is_never_called(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "opened"),)

    main, _, _ = regression()
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "m.pdparams").write_bytes(pickle.dumps({"fc_0.w_0": Trap()}, protocol))
        with pytest.raises(CheckpointError, match=r"the name posix\.mkdir, which is not one of data"):
            static.load(main, str(tmp_path / "m"))
    (tmp_path / "m.pdparams").write_bytes(pickle.dumps({"fc_0.w_0": Trap()}, 0))
    with pytest.raises(CheckpointError):
        static.load(main, str(tmp_path / "m"))
    assert not (tmp_path / "opened").exists()


def _forged(change: Callable[[Any], Any]) -> bytes:
    """A file whose manifest says something else, with the right checksum."""
    data = checkpoint.encode(small())
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    manifest = json.dumps(change(json.loads(header["__metadata__"]["tstatic.manifest"])))
    header["__metadata__"] = {
        "tstatic.manifest": manifest,
        "tstatic.sha256": checkpoint._digest(manifest.encode("utf-8", "surrogatepass")),
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


FORGED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "newer": (lambda m: {**m, "format": 99}, "newer than this tstatic"),
    "no format": (lambda m: {k: v for k, v in m.items() if k != "format"}, "does not follow"),
    "no object": (lambda m: [], "does not follow"),
    "no tensors": (lambda m: {**m, "tensors": {}}, "damaged"),
    "tensors as a list": (lambda m: {**m, "tensors": []}, "does not follow"),
    "row without checksum": (lambda m: {**m, "tensors": {**m["tensors"], "w": {}}}, "does not follow"),
    "one tensor too many": (lambda m: {**m, "tensors": {**m["tensors"], "v": m["tensors"]["w"]}}, "'v' is missing"),
    "another dtype": (lambda m: {**m, "tensors": {**m["tensors"], "w": {**m["tensors"]["w"], "dtype": "int32"}}}, "damaged"),
    "another shape": (lambda m: {**m, "tensors": {**m["tensors"], "w": {**m["tensors"]["w"], "shape": [6]}}}, "damaged"),
    "facts as text": (lambda m: {**m, "facts": "x"}, "does not follow"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_manifest_is_refused(name: str) -> None:
    change, words = FORGED[name]
    assert same(checkpoint.decode(_forged(lambda m: m), "x"), small())
    with pytest.raises(CheckpointError, match=words):
        checkpoint.decode(_forged(change), "x")


def test_a_forged_run_count_is_ignored(tmp_path: Path) -> None:
    _, main, _ = trained()
    for count in ("7", -1, None, 1.5, [1]):
        values, kinds = state_of(main, static.global_scope(), "test")
        (tmp_path / "m.pdparams").write_bytes(checkpoint.encode(Checkpoint(values, kinds, {"run_count": count})))
        before = static.global_scope().runs[main.uid]
        static.load(main, str(tmp_path / "m"))
        assert static.global_scope().runs[main.uid] == before


# -------------------------------------------------------------------------------------------------------------- atomicity
def _fail_at(count: int, error: OSError) -> Callable[..., Any]:
    """A wrapper that raises at its ``count``-th call."""
    calls = 0

    def wrapper(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == count:
                raise error
            return real(*args, **kwargs)

        return call

    return wrapper


@pytest.mark.parametrize("function", ["fsync", "replace", "fdopen"])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OSError(5, "Input/output error")], ids=["full", "io"]
)
def test_a_failed_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: OSError
) -> None:
    path = tmp_path / "file"
    checkpoint.write_atomically(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, function, _fail_at(1, error)(getattr(os, function)))
        with pytest.raises(CheckpointError, match="could not write") as caught:
            checkpoint.write_atomically(path, b"new" * 1000)
    assert error.strerror in str(caught.value)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_half_written_file_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    order: list[str] = []
    real_replace, real_sync = os.replace, os.fsync

    def replace(source: Any, target: Any, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        order.append("replace")
        # What is renamed is whole, and the old file is still there.
        for name, folder, content in ((source, src_dir_fd, b"new"), (target, dst_dir_fd, b"old")):
            with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
                assert file.read() == content
        real_replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def sync(handle: int) -> None:
        order.append("fsync")
        real_sync(handle)

    path.write_bytes(b"old")
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "fsync", sync)
    checkpoint.write_atomically(path, b"new")
    # The content before its name, then the folder that holds the name.
    assert order == ["fsync", "replace", "fsync"]
    assert path.read_bytes() == b"new"


def test_a_folder_that_cannot_be_synced_says_that_the_new_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    monkeypatch.setattr(os, "fsync", _fail_at(2, OSError(5, "Input/output error"))(os.fsync))
    with pytest.raises(CheckpointError, match="new file is in its place"):
        checkpoint.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("count", range(1, 5))
def test_a_save_that_stops_anywhere_can_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, count: int
) -> None:
    exe, main, _ = trained()
    path = str(tmp_path / "m")
    old = state(static.global_scope(), main)
    static.save(main, path)
    exe.run(main, feed={"x": rows(8)})
    new = state(static.global_scope(), main)
    with monkeypatch.context() as patch:
        patch.setattr(os, function, _fail_at(count, OSError(28, "full"))(getattr(os, function)))
        try:
            static.save(main, path)
            failed = False
        except CheckpointError:
            failed = True
    assert failed or (function == "replace" and count > 3)
    static.load(main, path)
    found = state(static.global_scope(), main)
    assert any(all(np.array_equal(found[n], v) for n, v in s.items()) for s in (old, new))
    static.save(main, path)
    assert sorted(os.listdir(tmp_path)) == ["m.pdmodel", "m.pdopt", "m.pdparams"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    _, main, _ = trained()
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(CheckpointError, match="could not write") as caught:
        static.save(main, str(tmp_path / "file/m"))
    assert caught.value.fix


# ------------------------------------------------------------------------------------------------------- save and load
def test_all_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    exe, main, _ = trained()
    saved = state(static.global_scope(), main)
    static.save(main, str(tmp_path / "deep/folder/m.v1"))
    exe.run(main, feed={"x": rows(8)})
    assert any(not np.array_equal(v, saved[n]) for n, v in state(static.global_scope(), main).items())
    static.load(main, str(tmp_path / "deep/folder/m.v1"))
    assert {n: v.tobytes() for n, v in state(static.global_scope(), main).items()} == {
        n: v.tobytes() for n, v in saved.items()
    }


def dropping(dtype: str = "float32") -> tuple[Any, Any, Any, Any]:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [4, 3], dtype)
        w = static.create_parameter([3, 3], dtype)
        mask = paddle.nn.functional.dropout(paddle.ones_like(x), 0.5)
        loss = paddle.mean(paddle.matmul(x * mask, w) + paddle.uniform([4, 3], dtype=dtype))
        paddle.optimizer.Momentum(0.1).minimize(loss)
    return main, startup, mask, loss


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_a_resumed_run_draws_what_an_unbroken_one_draws(tmp_path: Path, dtype: str) -> None:
    feed = {"x": np.ones((4, 3), DTYPES[dtype].np)}

    def steps(exe: Any, main: Any, mask: Any, loss: Any, count: int) -> list[Any]:
        return [exe.run(main, feed=feed, fetch_list=[mask, loss]) for _ in range(count)]

    main, startup, mask, loss = dropping(dtype)
    exe = static.Executor("cpu")
    paddle.seed(5)
    exe.run(startup)
    steps(exe, main, mask, loss, 3)
    static.save(main, str(tmp_path / "m"))
    unbroken = steps(exe, main, mask, loss, 4)
    end = state(static.global_scope(), main)
    with static.scope_guard(static.Scope()):
        again, startup, mask, loss = dropping(dtype)
        paddle.seed(5)
        exe.run(startup)
        first = steps(exe, again, mask, loss, 1)
        static.load(again, str(tmp_path / "m"))
        resumed = steps(exe, again, mask, loss, 4)
        for a, b in zip(unbroken, resumed, strict=True):
            assert a[0].tobytes() == b[0].tobytes()
            assert a[1].tobytes() == b[1].tobytes()
        assert first[0][0].tobytes() != resumed[0][0].tobytes()
        assert {n: v.tobytes() for n, v in state(static.global_scope(), again).items()} == {
            n: v.tobytes() for n, v in end.items()
        }


def test_missing_names_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    _, main, _ = trained(paddle.optimizer.SGD(0.1))
    static.save(main, str(tmp_path / "m"))
    _, other, _ = trained(paddle.optimizer.Adam(0.1))
    before = state(static.global_scope(), other)
    with pytest.raises(CheckpointError, match="lacks 16 variables") as caught:
        static.load(other, str(tmp_path / "m"))
    assert "moment" in str(caught.value)
    assert all(np.array_equal(v, before[n]) for n, v in state(static.global_scope(), other).items())
    # Those that are there can be named.
    static.load(other, str(tmp_path / "m"), var_list=other.all_parameters())


def test_unexpected_names_are_named_in_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, main, _ = trained()
    static.save(main, str(tmp_path / "m"))
    static.load(main.clone(for_test=True), str(tmp_path / "m"))
    assert "moment1" in caplog.text
    assert "no variable for" in caplog.text


def test_other_shapes_and_dtypes_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    _, main, _ = trained()
    static.save(main, str(tmp_path / "m"))
    values = dict(static.load_program_state(str(tmp_path / "m")))
    last = list(values)[-1]
    before = state(static.global_scope(), main)
    for bad in (np.zeros((7, 7), "float32"), values[last].astype("float64")):
        (tmp_path / "m.pdparams").write_bytes(checkpoint.encode(Checkpoint({**values, last: bad})))
        (tmp_path / "m.pdopt").unlink(missing_ok=True)
        with pytest.raises(ShapeError) as caught:
            static.load(main, str(tmp_path / "m"))
        assert caught.value.var == last
        assert all(np.array_equal(v, before[n]) for n, v in state(static.global_scope(), main).items())


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    _, main, _ = trained()
    static.save(main, str(tmp_path / "model_10"))
    with pytest.raises(CheckpointError, match="could not read"):
        static.load(main, str(tmp_path / "model_11"))
    with pytest.raises(CheckpointError, match=r"model_10\.pdparams"):
        static.load(main, str(tmp_path / "model"))
    with pytest.raises(OSError, match="could not read"):
        static.load(main, str(tmp_path / "nowhere/m"))


@pytest.mark.parametrize("path", ["", "folder/", 3, None, "nul\0"])
def test_bad_paths_are_refused(path: Any) -> None:
    _, main, _ = trained()
    for call in (static.save, static.load):
        with pytest.raises(ProgramError, match="file name"):
            call(main, path)


def test_saving_before_the_startup_program_ran_says_so(tmp_path: Path) -> None:
    main, _, _ = regression()
    with pytest.raises(FeedError, match="run the startup program first"):
        static.save(main, str(tmp_path / "m"))
    with pytest.raises(ProgramTypeError, match="Program"):
        static.save("main", str(tmp_path / "m"))
    assert os.listdir(tmp_path) == []


def test_program_state_as_a_dict(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, main, _ = trained()
    static.save(main, str(tmp_path / "m"))
    values = static.load_program_state(str(tmp_path / "m"), var_list=main.all_parameters())
    assert set(values) == {p.name for p in main.all_parameters()}
    name = next(iter(values))
    static.set_program_state(main, {name: values[name] * 2, "nosuch": np.ones(1)})
    assert np.array_equal(state(static.global_scope(), main)[name], values[name] * 2)
    assert "nosuch" in caplog.text


@pytest.mark.parametrize("persistable", [False, True])
def test_a_global_variable_is_saved_only_if_it_is_asked_to_persist(persistable: bool, tmp_path: Path) -> None:
    count = static.create_global_var([2], 3.0, "float32", persistable=persistable, name="count")
    assert count.persistable is persistable
    more = count + 1.0
    main, exe = static.default_main_program(), static.Executor("cpu")
    exe.run(static.default_startup_program())
    fluid.io.save_persistables(exe, str(tmp_path), main)
    saved = {path.name for path in tmp_path.iterdir()}
    assert ("count" in saved) is persistable
    if persistable:
        assert exe.run(main, fetch_list=[more])[0].tolist() == [4, 4]
        return
    with pytest.raises(ProgramError, match="'count' is read, but no operator before makes it") as caught:
        exe.run(main, fetch_list=[more])
    assert "persistable" in str(caught.value)
    paddle.assign(np.full([2], 7.0, "float32"), output=count)
    last = count + 1.0
    assert exe.run(main, fetch_list=[last], use_prune=True)[0].tolist() == [8, 8]
