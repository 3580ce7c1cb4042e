"""``paddle.summary`` and ``paddle.flops`` print and return what Paddle does, and leave programs as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.vision import described
from tstatic import nn, static
from tstatic.errors import ProgramError, ProgramTypeError

RECORDED: Any = json.loads(Path(described.__file__).with_name("recorded.json").read_text(encoding="utf-8"))["counts"]


@pytest.mark.parametrize("name", described.COUNTED)
def test_numbers_and_tables_are_paddles(name: str) -> None:
    assert described.counts(paddle, name) == RECORDED[name]


def test_nothing_is_left_in_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Sequential(nn.Conv2D(1, 2, 3), nn.BatchNorm2D(2), nn.Dropout(0.5))
    net[2].eval()
    texts = [str(p) for p in (static.default_main_program(), static.default_startup_program())]
    paddle.summary(net, (1, 1, 8, 8))
    assert paddle.flops(net, [1, 1, 8, 8], print_detail=True) == 72 * 10 + 2 * 72
    assert [str(p) for p in (static.default_main_program(), static.default_startup_program())] == texts
    assert [layer.training for layer in net.sublayers(include_self=True)] == [True, True, True, False]
    text = capsys.readouterr().out
    assert "|    conv2d_0    | [1, 1, 8, 8] | [1, 2, 6, 6] |   20   |  720  |" in text
    assert "Total Flops: 864     Total Params: 28" in text


class Two(nn.Layer):
    """Takes two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.linear = nn.Linear(4, 3)

    def forward(self, ids: Any, x: Any) -> Any:
        return self.linear(self.embedding(ids) + x)


@pytest.mark.parametrize(
    "arguments",
    [
        {"input_size": [(2,), (-1, 4)], "dtypes": ["int64", "float32"]},
        {"input": [np.zeros(2, "int64"), np.zeros((1, 4), "float32")]},
        {"input": {"ids": np.zeros(2, "int64"), "x": np.zeros((1, 4), "float32")}},
    ],
    ids=["sizes", "list", "dict"],
)
def test_inputs_in_all_forms(arguments: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert paddle.summary(Two(), **arguments) == {"total_params": 43, "trainable_params": 43}
    assert "[[2, 4]]" in capsys.readouterr().out


def test_layers_of_ones_own_are_counted_by_a_function() -> None:
    class Square(nn.Layer):
        def forward(self, x: Any) -> Any:
            return x * x

    net = nn.Sequential(nn.Linear(3, 5), Square())
    assert paddle.flops(net, [2, 3]) == 30
    assert paddle.flops(net, [2, 3], custom_ops={Square: lambda layer, given, out: 2 * given[0][1]}) == 40


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ProgramError, match="cannot be None"):
        paddle.summary(nn.Linear(3, 2))
    with pytest.raises(ProgramError, match="larger than 0"):
        paddle.summary(nn.Linear(3, 2), (0, 3))
    with pytest.raises(ProgramError, match="one entry per input"):
        paddle.summary(nn.Linear(3, 2), (1, 3), dtypes=["float32", "int64"])
    with pytest.raises(ProgramTypeError, match=r"a paddle\.nn\.Layer"):
        paddle.flops(static, [1, 3])
