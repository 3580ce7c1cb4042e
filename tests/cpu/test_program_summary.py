"""``paddle.summary`` and ``paddle.flops`` of programs: rows, counts, and what stays as it was."""

from __future__ import annotations

import pytest

import tstatic as paddle
from tstatic import static
from tstatic.errors import ProgramError, ProgramTypeError


@pytest.fixture
def loss() -> static.Variable:
    x = static.data("x", [None, 6])
    hidden = paddle.nn.functional.relu(static.nn.fc(x, 5))
    return paddle.mean(static.nn.fc(hidden, 3))


def test_a_program_has_a_row_per_forward_op(loss: static.Variable, capsys: pytest.CaptureFixture[str]) -> None:
    main = static.default_main_program()
    paddle.optimizer.SGD(0.1).minimize(loss)
    text, version = str(main), main.version
    assert paddle.summary(main) == {"total_params": 53, "trainable_params": 53}
    assert (str(main), main.version) == (text, version)
    out = capsys.readouterr().out
    assert "Total params: 53 (212 bytes)" in out
    assert "backward: " in out
    assert "update: " in out
    rows = [line.split() for line in out.splitlines() if "test_program_summary.py:" in line]
    assert [r[0] for r in rows][:3] == ["mul", "elementwise_add", "relu"]
    assert rows[0][3:5] == ["30", "30"]


def test_flops_count_a_multiply_add_as_one_and_follow_the_sizes(
    loss: static.Variable, capsys: pytest.CaptureFixture[str]
) -> None:
    main = static.default_main_program()
    products, added, activated = 6 * 5 + 5 * 3, 5 + 3, 5
    one = paddle.flops(main)
    assert one >= products + added + activated
    assert paddle.flops(main, {"x": (4, 6)}) == 4 * one
    paddle.flops(main, print_detail=True)
    out = capsys.readouterr().out
    assert f"Total Flops: {one}     Total Params: 53" in out
    assert "mul" in out
    paddle.optimizer.SGD(0.1).minimize(loss)
    assert paddle.flops(main) > 2 * one


def test_convolutions_count_as_paddle_counts_those_of_layers() -> None:
    net = paddle.nn.Conv2D(3, 4, 3, bias_attr=False)
    image = static.data("image", [None, 3, 8, 8])
    net(image)
    assert paddle.flops(static.default_main_program()) == 4 * 6 * 6 * 27
    assert paddle.flops(net, [1, 3, 8, 8]) == 4 * 6 * 6 * 27


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(ProgramTypeError, match="'net'"):
        paddle.summary("net")  # type: ignore[arg-type]


def test_sizes_name_inputs_and_what_is_for_layers_is_refused(loss: static.Variable) -> None:
    main = static.default_main_program()
    assert paddle.flops(main, (4, 6)) == paddle.flops(main, {"x": (4, 6)})
    with pytest.raises(ValueError, match="names no input of the program"):
        paddle.flops(main, {"xx": (4, 6)})
    with pytest.raises(ProgramError, match="'custom_ops' of flops is for Layers"):
        paddle.flops(main, custom_ops={})
    static.data("other", [2])
    with pytest.raises(ProgramError, match="has 2 inputs"):
        paddle.summary(main, (4, 6))
