"""What records of Paddle cannot show: drawn classes and places, gradients of one's own, files, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import FeedError, NotFoundError, NumericsError, ProgramError, ShapeError, UnsupportedError

RNG = np.random.default_rng(5)


def run(fetch: Any, feed: Any = None, startup: bool = True) -> list[Any]:
    exe = static.Executor()
    if startup:
        exe.run(static.default_startup_program())
    return exe.run(feed=feed or {}, fetch_list=fetch)


# ------------------------------------------------------------------------------------------------------ drawn classes
CUSTOM = [0.1, 0.2, 0.3, 0.3, 0.1]
EXPECTED = {
    "uniform": np.full(5, 0.2),
    "log_uniform": np.log((np.arange(5) + 2) / (np.arange(5) + 1)) / np.log(6),
    "custom_dist": np.array(CUSTOM),
}


@pytest.mark.parametrize("sampler", EXPECTED)
def test_nce_draws_each_class_as_often_as_its_sampler_says(sampler: str) -> None:
    x, label = static.data("x", [200, 3]), static.data("label", [200, 1], "int64")
    custom = CUSTOM if sampler == "custom_dist" else None
    cost = static.nn.nce(x, label, 5, num_neg_samples=20, sampler=sampler, custom_dist=custom, seed=3)
    op = next(op for op in static.default_main_program().global_block().ops if op.type == "nce")
    feed = {"x": RNG.normal(size=(200, 3)).astype("float32"), "label": np.zeros((200, 1), "int64")}
    names = [op.output("SampleLabels")[0], op.output("SampleLogits")[0]]
    value, drawn, scores = run([cost, *names], feed)
    assert (drawn[:, 0] == 0).all()
    share = np.bincount(drawn[:, 1:].ravel(), minlength=5) / drawn[:, 1:].size
    np.testing.assert_allclose(share, EXPECTED[sampler], atol=0.03)
    # The cost by its definition, from the classes that were drawn.
    b = EXPECTED[sampler][drawn] * 20
    each = -np.log(np.where(np.arange(21) == 0, scores, b) / (scores + b))
    np.testing.assert_allclose(value[:, 0], each.sum(axis=1) / 21, rtol=1e-5)


def test_a_seed_makes_nce_draw_the_same_in_every_program() -> None:
    def once() -> Any:
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup):
            x = paddle.ones([4, 2])
            cost = static.nn.nce(x, paddle.zeros([4, 1], "int64"), 50, num_neg_samples=5, seed=9, param_attr=ones)
            exe = static.Executor()
            exe.run(startup)
            return exe.run(main, fetch_list=[cost])[0]

    ones = paddle.nn.initializer.Constant(0.5)
    assert np.array_equal(once(), once())


def test_a_word_model_learns_by_nce() -> None:
    x, label = static.data("x", [None, 1], "int64"), static.data("label", [None, 1], "int64")
    hidden = static.nn.embedding(x, [10, 8])
    cost = static.nn.nce(paddle.reshape(hidden, [-1, 8]), label, 10, num_neg_samples=4, seed=1)
    loss = paddle.mean(cost)
    paddle.optimizer.Adam(0.05).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    word = np.arange(10).reshape(-1, 1)
    losses = [float(exe.run(feed={"x": word, "label": (word + 1) % 10}, fetch_list=[loss])[0]) for _ in range(60)]
    assert losses[-1] < 0.4 * losses[0]


def test_nce_refuses_a_distribution_without_its_sampler() -> None:
    with pytest.raises(ProgramError, match="belong together"):
        static.nn.nce(static.data("x", [2, 3]), static.data("y", [2, 1], "int64"), 5, custom_dist=CUSTOM)
    with pytest.raises(ShapeError):
        static.nn.nce(
            static.data("x", [2, 3]), static.data("y", [2, 1], "int64"), 5, sampler="custom_dist", custom_dist=[0.5]
        )
    assert not static.default_main_program().all_parameters()


def test_sampled_softmax_of_all_classes_is_the_softmax_itself() -> None:
    """With all classes drawn, the chance of each is nearly 1, and hits are left out."""
    scores = static.data("scores", [3, 6])
    label = paddle.to_tensor(np.array([[0], [2], [5]]))
    loss = fluid.layers.sampled_softmax_with_cross_entropy(scores, label, num_samples=6, seed=2)
    op = next(op for op in static.default_main_program().global_block().ops if op.type == "sample_logits")
    x = RNG.normal(size=(3, 6)).astype("float32")
    names = [op.output(slot)[0] for slot in ("Samples", "Probabilities")]
    found, samples, chance = run([loss, *names], {"scores": x})
    assert sorted(samples[0, 1:]) == list(range(6))
    moved = np.take_along_axis(x, samples, 1) - np.log(chance)
    moved[:, 1:][samples[:, 1:] == samples[:, :1]] = -np.inf
    np.testing.assert_allclose(found[:, 0], np.log(np.exp(moved).sum(axis=1)) - moved[:, 0], rtol=1e-5)


def test_random_crop_cuts_windows_from_everywhere() -> None:
    x = static.data("x", [300, 3, 4])
    part = fluid.layers.random_crop(x, [2, 2], seed=4)
    image = np.arange(12, dtype="float32").reshape(3, 4)
    (found,) = run([part], {"x": np.broadcast_to(image, (300, 3, 4)).copy()})
    windows = {image[i : i + 2, j : j + 2].tobytes() for i in range(2) for j in range(3)}
    assert {f.tobytes() for f in found} == windows


# ------------------------------------------------------------------------------------------------------- own gradients
def test_pylayer_gives_several_results_and_gradients() -> None:
    x, y = (static.data(n, [2]) for n in "xy")
    x.stop_gradient = y.stop_gradient = False
    out = static.nn.static_pylayer(
        lambda a, b: (a * b, a + b), [x, y], lambda g, h: (g * 10, None if h is None else h * y)
    )
    total = paddle.sum(out[0] * 2) + paddle.sum(out[1] * 3)
    dx, dy = static.gradients(total, [x, y])
    feed = {"x": np.array([1, 2], "float32"), "y": np.array([3, 4], "float32")}
    found = run([*out, dx, dy], feed)
    assert [f.tolist() for f in found] == [[3, 8], [4, 6], [20, 20], [9, 12]]


def test_pylayer_refuses_what_it_cannot_differentiate_and_leaves_the_program_alone() -> None:
    x = static.data("x", [2])
    x.stop_gradient = False
    main = static.default_main_program()
    before = main.to_string()
    with pytest.raises(ProgramError, match="backward_fn"):
        static.nn.static_pylayer(lambda a: a * 2, [x])
    with pytest.raises(ProgramError, match="another number of gradients"):
        static.nn.static_pylayer(lambda a: a * 2, [x], lambda g: (g, g))
    with pytest.raises(UnsupportedError, match="control flow"):
        static.nn.static_pylayer(
            lambda a: a * 2, [x], lambda g: static.nn.cond(paddle.sum(g) > 0, lambda: g * 1, lambda: g * 2)
        )
    assert main.to_string() == before
    assert len(main.blocks) == 1


def test_pylayer_of_a_loaded_program_says_that_its_gradient_is_gone() -> None:
    x = static.data("x", [2])
    x.stop_gradient = False
    y = static.nn.static_pylayer(lambda a: a * 2, [x], lambda g: g)
    op = static.default_main_program().global_block().ops[-1]
    op._set_attr("backward", 10**6)
    with pytest.raises(NotFoundError, match="build it again"):
        static.gradients(y, x)


# -------------------------------------------------------------------------------------------------------------- regions
def test_numbers_of_regions_must_fit_the_images() -> None:
    x, boxes, number = static.data("x", [2, 1, 4, 4]), static.data("boxes", [3, 4]), static.data("number", [2], "int32")
    out = paddle.vision.ops.roi_align(x, boxes, number, 2)
    feed = {"x": np.ones((2, 1, 4, 4), "float32"), "boxes": np.ones((3, 4), "float32")}
    with pytest.raises(FeedError, match="numbers of regions"):
        run([out], feed | {"number": np.array([1, 1], "int32")})
    assert run([out], feed | {"number": np.array([3, 0], "int32")})[0].shape == (3, 1, 2, 2)


def _plain_nms(boxes: Any, scores: Any, threshold: float) -> list[int]:
    """One box at a time, by the definition."""
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda k: -scores[k]):
        a = boxes[i]
        overlap = []
        for j in kept:
            b = boxes[j]
            w, h = (max(min(a[k + 2], b[k + 2]) - max(a[k], b[k]), 0) for k in (0, 1))
            areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
            overlap.append(w * h / (sum(areas) - w * h))
        if all(o <= threshold for o in overlap):
            kept.append(i)
    return kept


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.7])
def test_nms_is_its_definition(threshold: float) -> None:
    low = RNG.uniform(0, 8, (40, 2))
    boxes = np.concatenate([low, low + RNG.uniform(0.5, 5, (40, 2))], axis=1).astype("float32")
    scores = RNG.permutation(40).astype("float32")
    kept = paddle.vision.ops.nms(static.data("b", [40, 4]), threshold, static.data("s", [40]))
    assert run([kept], {"b": boxes, "s": scores})[0].tolist() == _plain_nms(boxes, scores, threshold)


def test_nms_by_category() -> None:
    boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 2], [0, 0, 2, 2], [5, 5, 6, 6]], "float32")
    given = (static.data("b", [4, 4]), 0.5, static.data("s", [4]), static.data("c", [4], "int64"))
    kept = paddle.vision.ops.nms(*given, categories=[0, 1], top_k=2)
    feed = {"b": boxes, "s": np.array([0.1, 0.2, 0.9, 0.3], "float32"), "c": np.array([0, 0, 2, 1])}
    assert run([kept], feed)[0].tolist() == [3, 1]
    with pytest.raises(ProgramError, match="belong together"):
        paddle.vision.ops.nms(*given[:3], category_idxs=given[3])


# ---------------------------------------------------------------------------------------------------------------- files
def test_a_jpeg_file_becomes_an_image(tmp_path: Path) -> None:
    image_module = pytest.importorskip("PIL.Image")
    path = tmp_path / "one.jpg"
    image_module.fromarray(RNG.integers(0, 255, (5, 6, 3), dtype=np.uint8)).save(path)
    data = paddle.vision.ops.read_file(str(path))
    images = [paddle.vision.ops.decode_jpeg(data, mode) for mode in ("unchanged", "gray", "rgb")]
    raw, same, gray, _ = run([data, *images])
    assert raw.tobytes() == path.read_bytes()
    with image_module.open(path) as image:
        np.testing.assert_array_equal(same.transpose(1, 2, 0), np.asarray(image))
    assert gray.shape == (1, 5, 6)
    path.write_bytes(b"no image")
    with pytest.raises(FeedError, match="cannot decode"):
        run(images[:1])


def test_layers_have_parameters_of_their_own() -> None:
    layer = paddle.vision.ops.DeformConv2D(2, 3, 3, padding=1, groups=1, bias_attr=None)
    assert [tuple(p.shape) for p in layer.parameters()] == [(3, 2, 3, 3), (3,)]
    x = static.data("x", [1, 2, 4, 4])
    plain = paddle.nn.functional.conv2d(x, layer.weight, layer.bias, padding=1)
    found = run([layer(x, paddle.zeros([1, 18, 4, 4])), plain], {"x": RNG.normal(size=(1, 2, 4, 4)).astype("float32")})
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


def loss_of_a_box(*place: float) -> Any:
    """Returns the loss of a grid of two by two cells and one true box, and its gradient by the network's answer."""
    x = static.data("x", [1, 16, 2, 2])
    x.stop_gradient = False
    box, label = static.data("box", [1, 1, 4]), static.data("label", [1, 1], "int32")
    loss = paddle.vision.ops.yolo_loss(x, box, label, [8, 8, 30, 30], [0, 1], 3, 0.5, 16, use_label_smooth=False)
    feed = {
        "x": np.linspace(-1, 1, 64, dtype="float32").reshape(1, 16, 2, 2),
        "box": np.array([[place]], "float32"),
        "label": np.zeros((1, 1), "int32"),
    }
    return static.Executor().run(feed=feed, fetch_list=[loss, *static.gradients(loss, x)])


@pytest.mark.parametrize("centre", [(np.nan, 0.3), (0.3, np.inf)])
def test_a_true_box_without_a_place_is_refused(centre: tuple[float, float]) -> None:
    # Paddle ends with a segmentation fault.
    with pytest.raises(NumericsError, match="no centre"):
        loss_of_a_box(*centre, 0.2, 0.2)


@pytest.mark.parametrize(("x", "column"), [(-0.1, 0), (-0.9, 0), (1.0, 1), (1.9, 1)])
def test_a_true_box_beyond_the_edge_belongs_to_the_cell_at_that_edge(x: float, column: int) -> None:
    loss, slopes = loss_of_a_box(x, 0.3, 0.2, 0.2)
    if x == -0.1:
        np.testing.assert_allclose(
            loss, [12.397593], rtol=1e-5
        )  # Paddle 2.6.2, which writes outside of its array for -0.9
    classes = slopes.reshape(2, 8, 2, 2)[:, 5:]
    assert classes[..., column].any()
    assert not classes[..., 1 - column].any()
