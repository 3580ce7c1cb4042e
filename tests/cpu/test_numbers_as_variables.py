"""Numbers that Variables give: sizes of transposed convolutions, numbers of draws; results as with the numbers themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.errors import IndexRangeError, ProgramError, ShapeError

F = paddle.nn.functional
IMAGE = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype("f4")


def run(build: Any, **feed: Any) -> list[Any]:
    """Runs what ``build`` returns of the fed variables; their first sizes are unknown."""
    main = static.Program()
    main.random_seed = 3
    with static.program_guard(main, static.Program()):
        given = {name: static.data(name, [None, *v.shape[1:]], str(v.dtype)) for name, v in feed.items()}
        return list(static.Executor(paddle.CPUPlace()).run(main, feed=feed, fetch_list=build(**given)))


def transposed(x: Any, output_size: Any, **more: Any) -> list[Any]:
    """The output for filters that tell all places apart, and the gradient of a weighted sum of it."""
    channels_last = more.get("data_format") == "NHWC"
    x = paddle.transpose(x, [0, 2, 3, 1]) if channels_last else x
    x.stop_gradient = False
    filters = paddle.reshape(paddle.arange(54, dtype="float32"), [2, 3, 3, 3]) / 54
    y = F.conv2d_transpose(x, filters, paddle.ones([3]), output_size=output_size, **more)
    return [y, *static.gradients([paddle.sum(y * y)], [x])]


SETTINGS: list[dict[str, Any]] = [
    {"stride": 2}, {"stride": [2, 3], "padding": [[1, 0], [0, 2]]}, {"stride": 2, "padding": "SAME"},
    {"stride": 3, "data_format": "NHWC"}, {"stride": 1, "dilation": 2},
]  # fmt: skip


@pytest.mark.parametrize("more", SETTINGS, ids=str)
def test_sizes_that_are_fed_give_what_numbers_give(more: dict[str, Any]) -> None:
    """Paddle 2.6.2 and 2.4.2 accept Variables there, in lists, too; the padding was a number of the operator."""
    if more.get("data_format") == "NHWC":
        largest = run(lambda x: transposed(x, None, output_padding=2, **more), x=IMAGE)[0].shape[1:3]
    else:
        most = [int(n) - 1 for n in np.broadcast_to(more["stride"], 2)]
        largest = run(lambda x: transposed(x, None, output_padding=most, **more), x=IMAGE)[0].shape[2:]
    # A smaller one exists where the stride is above 1.
    for size in (largest, (largest[0] - (more["stride"] != 1), largest[1])):
        wanted = run(lambda x, s=size: transposed(x, [int(n) for n in s], **more), x=IMAGE)
        for dtype in ("int32", "int64"):
            fed = np.array(size, dtype)
            for found in (
                run(lambda x, s: transposed(x, s, **more), x=IMAGE, s=fed),
                run(lambda x, s, n=int(size[1]): transposed(x, [s, n], **more), x=IMAGE, s=fed[:1]),
            ):
                for a, b in zip(found, wanted, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_sizes_that_no_output_has_are_refused_in_the_run() -> None:
    """Of 3 rows at stride 2 come 7 or 8; a slice alone would have taken 9 for 8, and 6 as well."""
    for bad in ([6, 9], [9, 9], [7, 8]):
        with pytest.raises(IndexRangeError):
            run(lambda x, s: transposed(x, s, stride=2), x=IMAGE, s=np.array(bad))
    with pytest.raises(ShapeError, match="3 numbers"):
        run(lambda x: transposed(x, paddle.ones([3], "int32"), stride=2), x=IMAGE)
    with pytest.raises(ShapeError, match="cannot both be given"):
        run(lambda x, s: transposed(x, s, stride=2, output_padding=1), x=IMAGE, s=np.array([8, 10]))


def test_a_layer_takes_them_with_its_filter_size() -> None:
    image = paddle.to_tensor(IMAGE)
    size = paddle.to_tensor(np.array([8, 9], "int32"))
    y = static.nn.conv2d_transpose(image, 3, output_size=size, filter_size=3, stride=2)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    assert exe.run(fetch_list=[y])[0].shape == (1, 3, 8, 9)


@pytest.mark.parametrize("replacement", [True, False])
def test_a_number_of_draws_that_is_fed_draws_what_a_number_draws(replacement: bool) -> None:
    chances = np.arange(1, 11, dtype="f4").reshape(2, 5)
    wanted = run(lambda p: [paddle.multinomial(p, 4, replacement)], p=chances)[0]
    found = run(lambda p, n: [paddle.multinomial(p, n, replacement)], p=chances, n=np.array([4]))[0]
    assert found.tolist() == wanted.tolist()
    for bad in (0, 6)[: 1 if replacement else 2]:
        with pytest.raises(ProgramError, match="num_samples"):
            run(lambda p, n: [paddle.multinomial(p, n, replacement)], p=chances, n=np.array([bad]))
