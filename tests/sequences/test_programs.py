"""Programs on sequences: one plan for all lengths, readers and feeders, training, explanations, errors when they run."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import DTypeError, FeedError, ProgramError, ShapeError, UnsupportedError

L = fluid.layers


def classifier() -> tuple[Any, Any, Any]:
    """Sentiment by an LSTM, as in the book of Paddle 1.x."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    label = fluid.layers.data("label", [1], dtype="int64")
    x = L.fc(L.embedding(words, [20, 8]), 4 * 8)
    hidden, _ = L.dynamic_lstm(x, 4 * 8, use_peepholes=False)
    pooled = [L.sequence_pool(x, "max"), L.sequence_pool(hidden, "max")]
    loss = L.mean(L.cross_entropy(L.fc(pooled, 2, act="softmax"), label))
    fluid.optimizer.Adam(0.02).minimize(loss)
    return words, label, loss


def batches(count: int, sentences: int = 6) -> list[list[tuple[list[int], list[int]]]]:
    """Sentences of other lengths in each batch; whether the word 3 is among them."""
    rng = np.random.default_rng(3)
    made = []
    for _ in range(count):
        rows = [rng.integers(0, 9, rng.integers(1, 9)).tolist() for _ in range(sentences)]
        made.append([(row, [int(3 in row)]) for row in rows])
    return made


def test_batches_of_any_lengths_take_one_plan(caplog: pytest.LogCaptureFixture) -> None:
    words, label, loss = classifier()
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feeder = fluid.DataFeeder([words, label], fluid.CPUPlace())
    with caplog.at_level(logging.INFO, "tstatic.compile"):
        for batch in batches(10):
            exe.run(feed=feeder.feed(batch), fetch_list=[loss])
        assert len(caplog.records) == 1
        # Another number of sequences is another size of what is pooled.
        exe.run(feed=feeder.feed(batches(1, 4)[0]), fetch_list=[loss])
        assert len(caplog.records) == 2
        assert "label" in caplog.records[1].getMessage()


def test_inner_levels_take_one_plan_too(caplog: pytest.LogCaptureFixture) -> None:
    x = static.data("x", [None, 1], lod_level=2)
    y = L.sequence_pool(L.sequence_pool(x, "sum"), "max")
    exe = static.Executor()
    with caplog.at_level(logging.INFO, "tstatic.compile"):
        for lengths in ([[2, 1], [1, 2, 3]], [[1, 3], [1, 0, 2, 2]], [[1, 1], [4, 1]]):
            array = np.arange(sum(lengths[1]), dtype="float32")[:, None]
            done = exe.run(feed={"x": fluid.create_lod_tensor(array, lengths)}, fetch_list=[y])[0]
            inner = [part.sum() for part in np.split(array, np.cumsum(lengths[1])[:-1])]
            outer = np.split(np.array(inner), np.cumsum(lengths[0])[:-1])
            assert done.ravel().tolist() == [part.max() for part in outer]
    assert len(caplog.records) == 1


def test_a_batch_gives_the_same_bits_whatever_ran_before() -> None:
    words, label, loss = classifier()
    feeder = fluid.DataFeeder([words, label], fluid.CPUPlace())
    forward = static.default_main_program().clone(for_test=True)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    rows = [feeder.feed(batch) for batch in batches(4)]
    one_by_one = [static.Executor().run(forward, feed=feed, fetch_list=[loss])[0].tobytes() for feed in rows]
    assert [exe.run(forward, feed=feed, fetch_list=[loss])[0].tobytes() for feed in rows[::-1]] == one_by_one[::-1]


@pytest.mark.parametrize("how", ["feeder", "reader"])
def test_a_classifier_of_sentences_learns(how: str) -> None:
    paddle.seed(7)
    words, label, loss = classifier()
    exe = static.Executor()
    exe.run(static.default_startup_program())
    epoch = batches(8)
    losses = []
    if how == "feeder":
        feeder = fluid.DataFeeder([words, label], fluid.CPUPlace())
        for _ in range(12):
            losses.append([float(exe.run(feed=feeder.feed(b), fetch_list=[loss])[0]) for b in epoch])
    else:
        reader = fluid.io.PyReader(feed_list=[words, label], capacity=4, iterable=True)
        reader.decorate_sample_list_generator(lambda: iter(epoch), fluid.CPUPlace())
        for _ in range(12):
            losses.append([float(exe.run(feed=feed, fetch_list=[loss])[0]) for feed in reader()])
    assert np.mean(losses[-1]) < 0.5 * np.mean(losses[0])


def test_a_py_reader_gives_sequences_to_a_run_without_feed() -> None:
    reader = L.py_reader(4, [(-1, 1), (-1, 1)], ["int64", "int64"], lod_levels=[1, 0])
    words, label = L.read_file(reader)
    total = L.sequence_pool(L.cast(words, "float32"), "sum")
    reader.decorate_paddle_reader(paddle.batch(lambda: iter([([1, 2], [0]), ([3], [1]), ([4, 5, 6], [0])]), 3))
    reader.start()
    done = static.Executor().run(fetch_list=[total, label])
    assert done[0].ravel().tolist() == [3, 3, 15]


def test_explanations_and_reports_know_companions() -> None:
    _, _, loss = classifier()
    compiled = static.CompiledProgram(static.default_main_program())
    assert "words@LOD@0 [17], label [16, 1]" in compiled.explain(fetch_list=[loss]).note
    static.Executor().run(static.default_startup_program())
    shapes = {"words": [9, 1], "words@LOD@0": [4], "label": [3, 1]}
    report = compiled.memory_report(feed_shapes=shapes, fetch_list=[loss])
    assert report.peak_bytes > 0
    parallel = compiled.with_data_parallel(loss_name=loss.name, places=[fluid.CPUPlace()] * 2)
    assert "assumed" in parallel.explain(fetch_list=[loss]).note
    assert parallel.memory_report(feed_shapes={**shapes, "label": [3, 1]}, fetch_list=[loss]).peak_bytes > 0


def test_print_shows_the_offsets(capfd: pytest.CaptureFixture[str]) -> None:
    x = static.data("x", [None, 1], lod_level=2)
    x.stop_gradient = False
    loss = L.reduce_sum(L.Print(x))
    static.append_backward(loss)
    feed = fluid.create_lod_tensor(np.ones((3, 1), "float32"), [[2], [1, 2]])
    static.Executor().run(feed={"x": feed}, fetch_list=[loss])
    assert capfd.readouterr().out.count("  - lod: {{0, 2}{0, 1, 3}}\n") == 2
    static.Executor().run(feed={"x": np.ones((3, 1), "float32")}, fetch_list=[loss])
    assert capfd.readouterr().out.count("  - lod: {}\n") == 2


def test_sequence_operators_run_on_several_places() -> None:
    words, label, loss = classifier()
    exe = static.Executor(fluid.CPUPlace())
    exe.run(static.default_startup_program())
    compiled = static.CompiledProgram(static.default_main_program()).with_data_parallel(
        loss_name=loss.name, places=[fluid.CPUPlace()] * 2
    )
    feeder = fluid.DataFeeder([words, label], fluid.CPUPlace())
    losses = [exe.run(compiled, feed=feeder.feed(batch), fetch_list=[loss])[0] for batch in batches(3)]
    assert [one.shape for one in losses] == [(2,)] * 3


# --------------------------------------------------------------------------------------------------------------- errors
def fed(lengths: list[list[int]], width: int = 2) -> Any:
    count = sum(lengths[-1])
    return fluid.create_lod_tensor(np.ones((count, width), "float32"), lengths)


def test_what_offsets_forbid_is_refused_when_the_program_runs() -> None:
    exe = static.Executor()
    feed = {"x": fed([[2, 3]]), "y": fed([[1, 1, 1]]), "n": np.array([[9], [0]])}
    for build, message in (
        (
            lambda x, y, n: L.sequence_pad(x, L.fill_constant([1], "float32", 0.0), maxlen=2)[0],
            "does not shorten sequences",
        ),
        (lambda x, y, n: L.sequence_concat([x, y]), "as many sequences of each input"),
        (lambda x, y, n: L.sequence_slice(x, n, n), "a part that each sequence has"),
        (lambda x, y, n: L.sequence_reshape(x, 3), "cannot divide the numbers of a sequence"),
        (lambda x, y, n: L.sequence_expand(x, y), "repeats sequences of X by the sequences of Y"),
        (lambda x, y, n: L.lod_reset(x, target_lod=[0, 4]), "do not divide the rows"),
        (lambda x, y, n: L.lod_append(x, [0, 1, 5]), "do not divide the rows"),
        (lambda x, y, n: L.sequence_unpad(L.reshape(n, [-1, 1]), n), "as many steps of each row"),
    ):
        main = static.Program()
        with static.program_guard(main):
            x, y = static.data("x", [None, 2], lod_level=1), static.data("y", [None, 2], lod_level=1)
            out = build(x, y, static.data("n", [None, 1], "int64"))
        with pytest.raises(ShapeError, match=message) as error:
            exe.run(main, feed=feed, fetch_list=[out], return_numpy=False)
        assert "expected" in str(error.value)
        assert "test_programs.py" in str(error.value)


def test_what_shapes_forbid_is_refused_when_the_program_is_built() -> None:
    x = static.data("x", [None, 2], lod_level=1)
    dense = static.data("dense", [None, 2])
    words = static.data("words", [None, 1], "int64", lod_level=1)
    for build, kind in (
        (lambda: L.sequence_pool(dense, "sum"), ProgramError), (lambda: L.sequence_pool(x, "median"), ProgramError),
        (lambda: L.sequence_pool(words, "sum"), DTypeError), (lambda: L.sequence_enumerate(x, 2), DTypeError),
        (lambda: L.sequence_conv(x, 2, filter_stride=2), ProgramError), (lambda: L.row_conv(dense, 2), ShapeError),
        (lambda: L.dynamic_lstm(x, 8), ShapeError), (lambda: L.dynamic_gru(x, 2), ShapeError),
        (lambda: L.dynamic_lstm(dense, 2), ShapeError), (lambda: L.lod_reset(x), ProgramError),
        (lambda: L.lod_append(dense, [0, 1]), ProgramError), (lambda: L.sequence_expand(dense, x, ref_level=1), ShapeError),
        (lambda: L.im2sequence(static.data("i", [2, 1, 2, 2]), 3), ShapeError),
        (lambda: L.im2sequence(static.data("j", [2, 1, 2, 2]), 1, input_image_size=dense), UnsupportedError),
        (lambda: L.dynamic_lstm(L.fc(x, 8), 8, h_0=dense), ProgramError),
    ):  # fmt: skip
        before = len(static.default_main_program().global_block().ops)
        with pytest.raises(kind):
            build()
        assert len(static.default_main_program().global_block().ops) - before <= 2


def test_offsets_that_do_not_fit_leave_the_state_as_it_was() -> None:
    words, _, loss = classifier()
    exe = static.Executor()
    exe.run(static.default_startup_program())
    before = {n: t.numpy() for n, t in static.default_main_program().state_dict().items()}
    tensor = fluid.create_lod_tensor([[1, 2]], [[2]])
    tensor.set_lod([[0, 5]])
    with pytest.raises(FeedError, match="does not divide its rows"):
        exe.run(feed={words.name: tensor, "label": np.array([[1]])}, fetch_list=[loss])
    after = static.default_main_program().state_dict()
    assert all(np.array_equal(after[n].numpy(), value) for n, value in before.items())


def test_gradients_pass_through_values_that_were_repeated_and_padded() -> None:
    """The sum of all, by other ways: each row of x is counted as often as its sequence of y is long."""
    x = static.data("x", [None, 2])
    x.stop_gradient = False
    y = static.data("y", [None, 2], lod_level=1)
    wide = L.sequence_expand_as(x, y)
    padded, length = L.sequence_pad(wide, L.fill_constant([1], "float32", 0.0))
    back = L.sequence_unpad(padded, length)
    assert wide.lod == y.lod
    loss = L.reduce_sum(L.sequence_pool(back, "sum"))
    (gradient,) = static.gradients([loss], [x])
    feed = {"x": np.ones((3, 2), "float32"), "y": fed([[2, 0, 3]])}
    assert static.Executor().run(feed=feed, fetch_list=[gradient])[0].tolist() == [[2, 2], [0, 0], [3, 3]]
