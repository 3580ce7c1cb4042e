"""Errors of loaders help: they say what writes such a file, what the folder has, and how to leave a layer out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import errors, fluid, inference, static


def _built(classes: int = 3) -> tuple[Any, Any, Any]:
    """A body and a head, trained by Adam; returns program, input and scores."""
    main, start = static.Program(), static.Program()
    with static.program_guard(main, start), fluid.unique_name.guard():
        x = static.data("x", [None, 4])
        scores = static.nn.fc(static.nn.fc(x, 5), classes)
        paddle.optimizer.Adam().minimize(paddle.mean(scores))
    static.Executor().run(start)
    return main, x, scores


def _value(name: str) -> np.ndarray:
    return np.array(static.global_scope().find_var(name).get_tensor())


# Loader, by whom its files are written, and a name that lies in the folder of the missing file.
LOADERS: dict[str, tuple[Callable[[Any, Path], Any], str, str]] = {
    "static.load": (lambda p, d: static.load(p, str(d / "mdoel")), "static.save", "model.pdparams"),
    "load_program_state": (
        lambda p, d: static.load_program_state(str(d / "mdoel")), "static.save", "model.pdparams",
    ),
    "load_inference_model": (
        lambda p, d: static.load_inference_model(str(d / "mdoel"), None), "static.save_inference_model", "model.pdmodel",
    ),
    "load_persistables": (
        lambda p, d: static.io.load_persistables(None, str(d), p), "save_persistables", "model.pdparams",
    ),
    "load_persistables, one file": (
        lambda p, d: static.io.load_persistables(None, str(d), p, filename="al"), "filename='al'", "model.pdparams",
    ),
    "fluid.io.load_inference_model": (
        lambda p, d: fluid.io.load_inference_model(str(d), None), "fluid.io.save_inference_model", "model.pdmodel",
    ),
    "load_from_file": (
        lambda p, d: static.io.load_from_file(str(d / "mdoel")), "static.save_to_file", "model.pdmodel",
    ),
}  # fmt: skip


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Any, Path]:
    main, x, scores = _built()
    static.save(main, str(tmp_path / "model"))
    static.save_inference_model(str(tmp_path / "model"), [x], [scores], static.Executor(), program=main)
    return main, tmp_path


@pytest.mark.parametrize("loader", list(LOADERS))
def test_a_missing_file_names_its_writer_and_the_files_there(loader: str, saved: tuple[Any, Path]) -> None:
    """Not ``static.save`` for every kind of file, and not only the advice to look again."""
    main, folder = saved
    load, writer, name = LOADERS[loader]
    with pytest.raises(errors.CheckpointError) as caught:
        load(main, folder)
    assert writer in str(caught.value.expected)
    assert writer in str(caught.value.fix)
    assert f"{folder} has " in str(caught.value.fix)
    assert name in str(caught.value.fix)


@pytest.mark.parametrize(
    "load",
    [
        lambda path: paddle.load(path), lambda path: fluid.dygraph.load_dygraph(path),
        lambda path: inference.create_predictor(inference.Config(path, path)),
    ],
)  # fmt: skip
def test_other_loaders_name_the_files_there(load: Callable[[str], Any], tmp_path: Path) -> None:
    paddle.save({"a": np.ones(1)}, str(tmp_path / "net.pdparams"))
    with pytest.raises(errors.TstaticError) as caught:
        load(str(tmp_path / "nte"))
    assert f"{tmp_path} has net.pdparams" in str(caught.value.fix)


def test_a_missing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main, *_ = _built()
    for given, wanted in (
        ("runs/one/model", "there is no folder runs/one, and the current folder is empty"),
        ("model", "the current folder is empty"),
    ):
        with pytest.raises(errors.CheckpointError) as caught:
            static.load(main, given)
        assert caught.value.fix == f"pass the path that was given to static.save; {wanted}"
    os.mkdir("runs")
    for number in range(12):
        Path(f"runs/{number:02}.pdparams").touch()
    with pytest.raises(errors.CheckpointError, match=r"and runs has 00.pdparams.* and 4 more"):
        static.load(main, "runs/one/model")


def test_a_file_that_may_not_be_read_says_how_to_allow_it(saved: tuple[Any, Path]) -> None:
    main, folder = saved
    if os.geteuid() == 0:
        pytest.skip("root may read every file")
    (folder / "model.pdparams").chmod(0)
    with pytest.raises(errors.CheckpointError, match=r"chmod u\+r .*model.pdparams"):
        static.load(main, str(folder / "model"))


@pytest.mark.parametrize("way", ["load", "set_program_state", "load_persistables"])
def test_a_head_of_other_classes_is_left_out_as_the_message_says(way: str, saved: tuple[Any, Path]) -> None:
    """The message's own code is run: it loads the body with its moments, and leaves the head as the startup program made it."""
    main, folder = saved
    static.io.save_persistables(None, str(folder / "each"), main)
    body = _value("fc_0.w_0")
    program, *_ = _built(classes=7)
    static.set_program_state(program, {"fc_0.w_0": np.zeros_like(body)})
    head = _value("fc_1.w_0")
    path = str(folder / ("each" if way == "load_persistables" else "model"))
    state = static.load_program_state(path)
    load = {
        "load": lambda: static.load(program, path),
        "set_program_state": lambda: static.set_program_state(program, state),
        "load_persistables": lambda: static.io.load_persistables(None, path, program),
    }[way]
    with pytest.raises(errors.ShapeError) as caught:
        load()
    assert not np.array_equal(_value("fc_0.w_0"), body)
    lines = re.findall(r"(?:state = |static\.set_program_state).*?\)(?=, then |$)", str(caught.value.fix))
    assert len(lines) == (1 if way == "set_program_state" else 2)
    names = {"static": static, "program": program, "path": path, "state": state}
    for line in lines:
        exec(line, names)
    assert np.array_equal(_value("fc_0.w_0"), body)
    assert np.array_equal(_value("fc_1.w_0"), head)


def test_a_variable_without_a_value_is_left_as_it_is_as_the_message_says(saved: tuple[Any, Path]) -> None:
    _, folder = saved
    with static.program_guard(static.Program(), static.Program()), fluid.unique_name.guard():
        static.nn.fc(static.nn.fc(static.nn.fc(static.data("x", [None, 4]), 5), 3), 2)
        program = static.default_main_program()
        static.Executor().run(static.default_startup_program())
    with pytest.raises(errors.CheckpointError, match="strict=False"):
        static.load(program, str(folder / "model"))
    static.load(program, str(folder / "model"), strict=False)
