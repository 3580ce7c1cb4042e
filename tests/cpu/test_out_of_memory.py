"""Memory that cannot be had is a typed error with bytes, operator and line; nothing has changed, and the executor works on."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import shortage, static
from tstatic.devices.cpu import buffer
from tstatic.errors import OutOfMemoryError

ROOT = Path(__file__).parents[2]
HUGE = 2**45
"""Elements that exceed the addresses of a process, so that no setting of the system grants them."""


def _run(fetches: Any, feed: Any = None) -> Any:
    return static.Executor(paddle.CPUPlace()).run(feed=feed or {}, fetch_list=fetches)


def _too_large() -> None:
    _run([paddle.sum(paddle.full([HUGE], 1.0))])


def _beyond_int64() -> None:
    many = [paddle.tanh(paddle.full([2**59], float(i), "float64")) for i in range(4)]
    _run([paddle.sum(paddle.add_n(many))])


def _parameter() -> None:
    static.create_parameter([HUGE], "float32", name="w")
    static.Executor(paddle.CPUPlace()).run(static.default_startup_program())


def _batch() -> None:
    x = static.data("x", [None, 1])
    _run([paddle.mean(paddle.tanh(x))], {"x": np.broadcast_to(np.float32(1), (HUGE, 1))})


def _dynamic() -> None:
    count = static.data("count", [1], "int64")
    _run([paddle.sum(paddle.zeros([count]))], {"count": np.array([HUGE])})


def _in_a_body() -> None:
    count = static.data("count", [1], "int64")
    done, total = paddle.zeros([1], "int64"), paddle.zeros([1])

    def body(done: Any, total: Any) -> Any:
        return [done + 1, total + paddle.sum(paddle.zeros([count]))]

    _run(static.nn.while_loop(lambda done, total: done < 1, body, [done, total]), {"count": np.array([HUGE])})


def _fetched() -> None:
    x = static.data("x", [1])
    _run([paddle.expand(x, [HUGE])], {"x": np.ones(1, "float32")})


def _converted_feed() -> None:
    x = static.data("x", [None])
    _run([paddle.mean(x)], {"x": np.broadcast_to(np.array(1, ">f4"), (HUGE,))})


def _set() -> None:
    static.create_parameter([3], "float32", name="w")
    static.Executor(paddle.CPUPlace()).run(static.default_startup_program())
    static.global_scope().find_var("w").get_tensor().set(np.broadcast_to(np.float32(1), (HUGE,)))


CASES: dict[Callable[[], None], int] = {
    _too_large: 4 * HUGE, _beyond_int64: 8 * 2**59, _parameter: 4 * HUGE, _batch: 4 * HUGE, _dynamic: 4 * HUGE,
    _in_a_body: 4 * HUGE, _fetched: 4 * HUGE, _converted_feed: 4 * HUGE, _set: 4 * HUGE,
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_error_has_the_bytes_the_operator_and_the_line(case: Callable[[], None]) -> None:
    """No allocation that fails is an error of Python's, numpy's or the system's own."""
    with pytest.raises(OutOfMemoryError) as caught:
        case()
    error = caught.value
    assert isinstance(error, MemoryError)
    assert error.op
    assert error.where is not None
    assert "test_out_of_memory.py" in error.where
    assert error.wanted_bytes is not None
    assert error.wanted_bytes >= CASES[case]
    assert 0 < error.available_bytes < CASES[case]
    assert error.fix
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.wanted_bytes) == (str(error), error.wanted_bytes)


def test_the_largest_batch_is_advised() -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        _batch()
    assert caught.value.fix is not None
    assert "compiled.max_batch(" in caught.value.fix
    assert caught.value.op in str(caught.value.received)


def _training() -> tuple[Any, dict[str, Any]]:
    x = static.data("x", [None, 4])
    hidden = static.nn.fc(x, 600, activation="relu")
    loss = paddle.mean(paddle.sort(static.nn.fc(hidden, 3), axis=1))
    paddle.optimizer.Adam(learning_rate=0.1).minimize(loss)
    return loss, {"x": np.random.default_rng(0).random((8, 4), "float32")}


def _state() -> dict[str, Any]:
    names = [v.name for v in static.default_main_program().list_vars() if v.persistable]
    return {n: np.array(static.global_scope().find_var(n).get_tensor()) for n in names}


@pytest.mark.numpy_device("torch maps its own memory", not_on=("torch",))
def test_whichever_allocation_fails_nothing_changes_and_the_executor_works_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block that a run asks the system for is refused once: for the arena, scratch and state alike."""
    loss, feed = _training()
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    real, purposes = buffer.mmap.mmap, []
    anonymous = buffer._anonymous

    def watched(nbytes: int, purpose: str, flags: int = 0) -> Any:
        purposes.append(purpose)
        return anonymous(nbytes, purpose, flags)

    monkeypatch.setattr(buffer, "_anonymous", watched)
    before = _state()
    expected = None
    refuse = 0
    while True:
        purposes.clear()

        def limited(*args: Any, **kwargs: Any) -> Any:
            if len(purposes) == refuse + 1:  # noqa: B023 - it is called within this turn
                raise OSError(12, "Cannot allocate memory")
            return real(*args, **kwargs)

        monkeypatch.setattr(buffer.mmap, "mmap", limited)
        exe.close()
        exe = static.Executor(paddle.CPUPlace())
        error: OutOfMemoryError | None = None
        try:
            exe.run(feed=feed, fetch_list=[loss])
        except OutOfMemoryError as raised:
            error = raised
        finally:
            monkeypatch.setattr(buffer.mmap, "mmap", real)
        if error is None:
            break
        assert error.wanted_bytes
        assert error.op
        assert "test_out_of_memory.py" in str(error.where)
        assert purposes[refuse] in str(error)
        after = _state()
        assert all(np.array_equal(before[name], after[name]) for name in before)
        value = exe.run(feed=feed, fetch_list=[loss])[0]
        assert expected is None or value == expected
        expected = value
        for name, old in before.items():
            static.global_scope().find_var(name).get_tensor().set(old)
        refuse += 1
    assert refuse >= 2


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12",
            4096,
        ),
        ("CUDA out of memory. Tried to allocate 20.50 GiB. GPU 0 has a total capacity of 139.80 GiB", 20.5 * 2**30),
        ("CUDA out of memory", None),
    ],
)
def test_what_torch_wanted_is_read_from_its_words(text: str, wanted: float | None) -> None:
    error = shortage.out_of_memory("the run", cause=RuntimeError(text))
    assert error.wanted_bytes == wanted


@pytest.mark.parametrize(
    "raised",
    [MemoryError(), MemoryError("Unable"), ValueError("array is too big; it is larger than possible")],
    ids=str,
)
def test_a_reference_that_gets_no_memory_is_named(raised: Exception) -> None:
    failing = [raised]

    def work(x: Any) -> Any:
        if failing:
            raise failing.pop()
        return x

    x = static.data("x", [2])
    out = static.default_main_program().global_block().create_var(name="out", shape=[2], dtype="float32")
    made = static.py_func(work, x, out)
    exe = static.Executor(paddle.CPUPlace())
    feed = {"x": np.ones(2, "float32")}
    with pytest.raises(OutOfMemoryError) as caught:
        exe.run(feed=feed, fetch_list=[made])
    assert caught.value.what.startswith("operator 'py_func'")
    assert caught.value.op == "py_func"
    assert caught.value.__cause__ is raised
    assert exe.run(feed=feed, fetch_list=[made])[0].tolist() == [1.0, 1.0]


LIMITED = """
import json, resource
import numpy as np
import tstatic as paddle
from tstatic import errors, static
paddle.enable_static()
x = static.data("x", [None, 64])
loss = paddle.mean(paddle.tanh(static.nn.fc(x, 1024)))
paddle.optimizer.Adam(learning_rate=0.1).minimize(loss)
exe = static.Executor(paddle.CPUPlace())
exe.run(static.default_startup_program())
def step(rows):
    return float(exe.run(feed={"x": np.full((rows, 64), 0.01, "float32")}, fetch_list=[loss])[0])
step(8)
resource.setrlimit(resource.RLIMIT_AS, (2 << 30,) * 2)
def value(name):
    return np.array(static.global_scope().find_var(name).get_tensor())
state = {v.name: value(v.name) for v in loss.block.program.list_vars() if v.persistable}
try:
    step(1_000_000)
except errors.OutOfMemoryError as error:
    said = [error.op, error.where, error.wanted_bytes, error.available_bytes, error.fix]
same = all(np.array_equal(value(n), a) for n, a in state.items())
rows = static.CompiledProgram(static.default_main_program()).max_batch(fetch_list=[loss])
print(json.dumps([said, same, rows, [step(8), step(8)]]))
"""


def test_a_limit_of_the_system_is_told_and_kept(tmp_path: Path) -> None:
    """Under ``ulimit -v`` the error names that limit, and ``max_batch`` goes by it."""
    script = tmp_path / "limited.py"
    script.write_text(LIMITED)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, timeout=300.0, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (op, where, wanted, there, fix), same, rows, losses = json.loads(done.stdout.splitlines()[-1])
    assert op
    assert "limited.py:" in where
    assert there < 2 << 30 < wanted
    assert "max_batch" in fix
    assert same
    assert 8 < rows < 1_000_000
    assert losses[1] < losses[0]


def test_the_free_memory_is_that_of_the_machine_at_most() -> None:
    lines = Path("/proc/meminfo").read_text().splitlines()
    total = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal"))
    assert 0 < shortage.free_main_memory() < total
    assert not shortage.is_shortage(ValueError("something else"))
    assert shortage.is_shortage(
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
    )


@pytest.mark.parametrize(
    "call", [lambda: paddle.tril_indices(2**31, 2**31), lambda: paddle.triu_indices(2**40, 2**40, -5)]
)
def test_what_is_computed_while_a_program_is_built_is_refused_before_memory_is_used(call: Any) -> None:
    """A system may grant memory that it does not have, and end the process later."""
    with pytest.raises(paddle.errors.OutOfMemoryError, match="needs memory that cannot be had") as caught:
        call()
    assert caught.value.wanted_bytes > 2**60
    assert isinstance(caught.value, MemoryError)


@pytest.mark.parametrize("lower", [True, False])
def test_triangles_are_those_of_numpy(lower: bool) -> None:
    """Computed without the mask of the whole matrix, which rows or columns without elements would cost."""
    ours, theirs = (paddle.tril_indices, np.tril_indices) if lower else (paddle.triu_indices, np.triu_indices)
    exe = static.Executor()
    for rows, columns, offset in itertools.product((0, 1, 4), (0, 3, 5), (-9, -2, 0, 1, 7, 2**70)):
        (found,) = exe.run(fetch_list=[ours(rows, columns, offset)])
        assert np.array_equal(found, np.stack(theirs(rows, min(offset, 99), columns)))
    assert paddle.triu_indices(2**31, 4).shape == (2, 10)


def test_memory_that_a_call_cannot_have_while_a_program_is_built_is_an_error_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tstatic.ops.functions.rearranging.free_main_memory", lambda: 2**80)
    with pytest.raises(paddle.errors.OutOfMemoryError, match=r"tril_indices\(row=1125899906842624") as caught:
        paddle.tril_indices(2**50, 1)
    assert caught.value.wanted_bytes == 2**53
