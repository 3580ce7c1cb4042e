"""Programs from files whose parts do not fit together: a typed error when they are read or run, never another."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.errors import ProgramError, TstaticError
from tstatic.formats import serial

FEED = {"x": np.ones((2, 4), "float32"), "label": np.zeros((2, 1), "int64")}


def net() -> tuple[Any, Any, Any]:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x, label = static.data("x", [-1, 4]), static.data("label", [-1, 1], "int64")
        h = static.nn.batch_norm(static.nn.fc(x, 3, activation="relu"))
        y = static.nn.cond(paddle.mean(h) > 0, lambda: h * 2.0, lambda: paddle.zeros_like(h))
        y = paddle.transpose(paddle.concat([y, y], 1), [1, 0])[0:3, :]
        y = paddle.cast(paddle.reshape(y, [-1, 3]), "float64")
        loss = paddle.mean(paddle.cast(paddle.sum(y, axis=1, keepdim=True), "float32"))
        loss = loss + paddle.mean(static.nn.embedding(label, [7, 3])) + paddle.mean(F(h, label))
        paddle.optimizer.SGD(0.1).minimize(loss)
    return main, startup, loss


F = paddle.nn.functional.cross_entropy


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def at(content: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        content = content[key]
    return content


def damage(content: Any, rng: random.Random) -> None:
    """Puts a value into another's place, or makes it another of its kind."""
    paths = [path for path in places(content) if path[0] == "blocks"]
    path = rng.choice(paths)
    old = at(content, path)
    numbers = (0, 1, -1, 2, 3, 7, 100)
    if isinstance(old, int) and not isinstance(old, bool) and rng.random() < 0.5:
        new: Any = rng.choice(numbers)
    else:
        new = copy.deepcopy(
            rng.choice([at(content, other) for other in paths if type(at(content, other)) is type(old)])
        )
    at(content, path[:-1])[path[-1]] = new


def run(content: Any, startup: Any, loss: Any) -> None:
    program = static.Program.parse_from_string(serial.seal(json.dumps(content).encode()))
    exe = static.Executor("cpu")
    with static.scope_guard(static.Scope()):
        exe.run(startup)
        exe.run(program, feed=FEED, fetch_list=[loss.name])


def test_a_damaged_program_runs_or_is_refused_with_a_typed_error() -> None:
    main, startup, loss = net()
    whole = json.loads(main.desc.serialize_to_string().partition(b"\n")[2])
    run(whole, startup, loss)
    for seed in range(20, 65):
        content = copy.deepcopy(whole)
        damage(content, random.Random(seed))
        with contextlib.suppress(TstaticError):
            run(content, startup, loss)


@pytest.mark.numpy_device
def test_damage_that_only_a_run_can_find_is_told() -> None:
    main, startup, loss = net()
    content = json.loads(main.desc.serialize_to_string().partition(b"\n")[2])
    grads = [op for op in content["blocks"][0]["ops"] if op["type"] == "slice_grad"]
    grads[0]["attrs"]["ends"][0] = 2
    with pytest.raises(ProgramError, match="read from a file, cannot be run") as caught:
        run(content, startup, loss)
    assert "ValueError" in str(caught.value)
    assert caught.value.__cause__ is not None


def test_what_the_users_own_functions_raise_is_not_taken_for_damage() -> None:
    def raises(array: Any) -> Any:
        raise LookupError("mine")

    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [2])
        out = main.current_block().create_var(name="out", dtype="float32", shape=[2])
        static.py_func(raises, x, out)
    for program in (main, static.Program.parse_from_string(main.desc.serialize_to_string())):
        with pytest.raises(LookupError, match="mine"):
            static.Executor("cpu").run(program, feed={"x": np.ones(2, "float32")}, fetch_list=["out"])


def test_the_copy_of_a_program_from_a_file_is_one_too() -> None:
    main = net()[0]
    program = static.Program.parse_from_string(main.desc.serialize_to_string())
    assert (main._from_file, program._from_file, program.clone()._from_file) == (False, True, True)
