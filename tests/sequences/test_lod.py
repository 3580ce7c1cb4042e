"""Row offsets of sequences are data of the program: declared, fed, shared, differentiated, fetched, saved, split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import FeedError, ProgramError
from tstatic.ir.program import Variable

L = fluid.layers
Array = np.ndarray[Any, Any]


def rows(lengths: list[list[int]], width: int = 2) -> fluid.LoDTensor:
    """A tensor of rising numbers with sequences of these lengths."""
    count = sum(lengths[-1])
    array = np.arange(count * width, dtype="float32").reshape(count, width) / 10
    return fluid.create_lod_tensor(array, lengths, fluid.CPUPlace())


def run(fetch: list[Any], feed: dict[str, Any], **options: Any) -> Any:
    return static.Executor().run(feed=feed, fetch_list=fetch, **options)


# ---------------------------------------------------------------------------------------------------------- declaration
def test_an_input_declares_a_variable_of_offsets_for_each_level() -> None:
    x = static.data("x", [None, 2], lod_level=2)
    assert x.lod == ("x@LOD@0", "x@LOD@1")
    offsets = x.block.var("x@LOD@0")
    assert (offsets.shape, offsets.dtype.name, offsets.is_data, offsets.stop_gradient) == ((-1,), "int64", True, True)
    with pytest.raises(ProgramError, match="with another lod_level"):
        static.data("x", [None, 2], lod_level=1)


def test_ops_that_work_row_by_row_share_the_offsets_of_their_input() -> None:
    x = static.data("x", [None, 4], lod_level=1)
    ids = static.data("ids", [None, 1], "int64", lod_level=1)
    keep: list[Variable] = [
        L.fc(x, 3, act="relu"), x + 1, x * x, L.softmax(x), L.dropout(x, 0.5), L.concat([x, x], axis=1), L.reshape(x, [0, 2, 2]),
        L.reshape(x, [-1, 4]), L.cast(x, "int64"), L.reduce_sum(x, dim=1), L.reduce_mean(x, dim=1, keep_dim=True),
        L.slice(x, [1], [0], [2]), x[:, 1:3], L.topk(x, 2)[0], L.layer_norm(x), L.expand(x, [1, 2]), L.split(x, 2, dim=1)[1],
        L.sums([x, x]), L.assign(x), paddle.matmul(x, L.fill_constant([4, 2], "float32", 1.0)), L.elementwise_add(x, x), x.tanh(),
        paddle.where(x > 0, x, x), L.squeeze(L.unsqueeze(x, [1]), [1]),
    ]  # fmt: skip
    for var in keep:
        assert var.lod == x.lod, var
        assert var.lod_level == 1
    embedded = L.embedding(ids, [9, 5])
    assert embedded.lod == ids.lod
    assert (embedded + 1).lod == ids.lod
    # Two inputs with sequences: those of the first.
    assert (L.fc(x, 5) + embedded).lod == x.lod
    lose: list[Variable] = [
        L.reduce_sum(x), L.mean(x), L.reduce_max(x, dim=0), L.reshape(x, [-1, 2]), L.transpose(x, [1, 0]),
        L.slice(x, [0], [0], [2]), L.reshape(x, [2, -1]), L.unsqueeze(x, [0]), L.shape(x), L.flatten(x, axis=2),
        paddle.matmul(x, x, transpose_x=True), L.expand(x, [2, 1]), paddle.stack([x, x], axis=0),
    ]  # fmt: skip
    for var in lose:
        assert var.lod == (), var
    # Rows under rows: sequences behind sequences, unless some rows belong to none.
    assert L.concat([x, x], axis=0).lod_level == 1
    assert L.concat([x, static.data("y", [None, 4])], axis=0).lod == ()


def test_loops_keep_the_offsets_that_do_not_change() -> None:
    x = static.data("x", [None, 2], lod_level=1)

    def body(i: Variable, rows: Variable) -> list[Variable]:
        shorter = L.lod_reset(rows, target_lod=[0, 1, 5])
        assert L.sequence_pool(rows, "sum").lod == ()
        assert shorter.lod[0].startswith("lod_reset")
        return [i + 1, L.sequence_reverse(rows) + 0.0]

    steps = L.fill_constant([1], "int64", 0)
    _, rows = static.nn.while_loop(lambda i, rows: i < 3, body, [steps, x])
    assert rows.lod == x.lod
    feed = {"x": fluid.create_lod_tensor(np.arange(10, dtype="float32").reshape(5, 2), [[2, 3]])}
    done = static.Executor().run(feed=feed, fetch_list=[rows], return_numpy=False)[0]
    assert (np.array(done)[:, 0].tolist(), done.lod()) == ([2, 0, 8, 6, 4], [[0, 2, 5]])
    # Offsets made inside of a loop are not those of a variable outside.
    outside = L.assign(x)
    i, stop = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 2)
    going = L.less_than(i, stop)
    loop = L.While(going)
    with loop.block():
        L.assign(L.lod_reset(outside, target_lod=[0, 5]), outside)
        L.increment(i)
        L.less_than(i, stop, cond=going)
    assert outside.lod == ()


def test_raw_operators_are_given_the_offsets_of_their_input() -> None:
    x = static.data("x", [None, 2], lod_level=2)
    block = x.block
    out = block.create_var(name="pooled", dtype="float32")
    index = block.create_var(name="index", dtype="int32")
    op = block.append_op("sequence_pool", {"X": x}, {"Out": out, "MaxIndex": index}, {"pooltype": "MAX"})
    assert op.input("X@LOD") == ["x@LOD@1"]
    assert out.lod == ("x@LOD@0",)
    plain = static.data("plain", [None, 2])
    with pytest.raises(ProgramError, match="reads sequences, but 'plain' is not divided into sequences"):
        L.sequence_pool(plain, "sum")
    assert [one.type for one in block.ops] == ["sequence_pool"]


# ---------------------------------------------------------------------------------------------------------------- feeds
def test_offsets_are_checked_at_the_feed() -> None:
    x = static.data("x", [None, 2], lod_level=1)
    y = L.sequence_pool(x, "sum")
    array = np.ones((5, 2), "float32")
    for lod, message in (
        ([[0, 2, 4]], "does not divide its rows"), ([[0, 3, 2, 5]], "does not divide its rows"), ([[1, 5]], "does not divide"),
        ([[0, 1, 2], [0, 2, 5]], "another number of levels"), ([[]], "does not divide"),
    ):  # fmt: skip
        tensor = fluid.LoDTensor()
        tensor.set(array, fluid.CPUPlace())
        tensor.set_lod(lod)
        with pytest.raises(FeedError, match=message) as error:
            run([y], {"x": tensor})
        assert "expected" in str(error.value)
    with pytest.raises(ValueError, match="the sequences of 'x' are read, but the feed does not say where they begin"):
        run([y], {"x": array})
    with pytest.raises(FeedError, match="does not divide its rows"):
        run([y], {"x": array, "x@LOD@0": np.array([0, 9])})
    given = run([y], {"x": array, "x@LOD@0": np.array([0, 2, 5])})[0]
    assert given.tolist() == [[2, 2], [3, 3]]
    assert run([y], {"x": rows([[2, 3]])})[0].tolist() == np.add.reduceat(np.array(rows([[2, 3]])), [0, 2]).tolist()


def test_an_array_is_enough_where_no_operator_reads_the_sequences() -> None:
    x = static.data("x", [None, 2], lod_level=1)
    y = x * 2
    array = np.ones((3, 2), "float32")
    assert run([y], {"x": array})[0].tolist() == [[2, 2]] * 3
    assert run([y], {"x": array}, return_numpy=False)[0].lod() == []
    assert run([y], {"x": rows([[1, 2]])}, return_numpy=False)[0].lod() == [[0, 1, 3]]


def test_tensors_of_sequences_say_lengths_and_offsets() -> None:
    tensor = fluid.create_lod_tensor([[1, 2], [3, 4, 5]], [[2, 3]], fluid.CPUPlace())
    assert (tensor.shape(), tensor._dtype().name, tensor.lod()) == ([5, 1], "int64", [[0, 2, 5]])
    assert np.array(tensor).ravel().tolist() == [1, 2, 3, 4, 5]
    again = fluid.create_lod_tensor(tensor, [[1, 1], [4, 1]], fluid.CPUPlace())
    assert again.recursive_sequence_lengths() == [[1, 1], [4, 1]]
    assert again.has_valid_recursive_sequence_lengths()
    again.set_recursive_sequence_lengths([[2, 2]])
    assert not again.has_valid_recursive_sequence_lengths()
    for data, lengths in ((np.ones((5, 1)), [[2, 2]]), ([[1], [2, 3]], [[2, 1]]), (np.ones((5, 1)), [[3], [2, 3]])):
        with pytest.raises(ValueError, match=r"lod info is invalid|do not match"):
            fluid.create_lod_tensor(data, lengths, fluid.CPUPlace())
    drawn = fluid.create_random_int_lodtensor([[2, 0, 3]], [2], fluid.CPUPlace(), 3, 4)
    assert (drawn.shape(), drawn.lod(), set(np.array(drawn).ravel()) <= {3, 4}) == ([5, 2], [[0, 2, 2, 5]], True)


# -------------------------------------------------------------------------------------------------------------- fetches
@pytest.mark.parametrize(("low", "high"), [(3, 5), (-1, 0), (7, 7)])
def test_random_numbers_include_both_bounds(low: int, high: int) -> None:
    np.random.seed(0)
    made = fluid.create_random_int_lodtensor([[1, 2], [30, 20, 50]], [2], fluid.CPUPlace(), low, high)
    assert set(np.unique(np.array(made))) == {*range(low, high + 1)}
    assert (made.shape(), made.recursive_sequence_lengths()) == ([100, 2], [[1, 2], [30, 20, 50]])


def test_what_has_sequences_is_fetched_as_a_tensor() -> None:
    x = static.data("x", [None, 2], lod_level=1)
    x.stop_gradient = False
    h = L.fc(x, 3)
    loss = L.mean(L.sequence_pool(h, "sqrt"))
    static.append_backward(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": rows([[2, 0, 3]])}
    with pytest.raises(RuntimeError, match="Some of your fetched tensors hold LoD information"):
        exe.run(feed=feed, fetch_list=[h])
    done = exe.run(feed=feed, fetch_list=[h, loss, "x@GRAD"], return_numpy=False)
    assert [t.lod() for t in done] == [[[0, 2, 2, 5]], [], [[0, 2, 2, 5]]]
    assert static.default_main_program().global_block().var("x@GRAD").lod == x.lod


# ---------------------------------------------------------------------------------------------------- copies and files
def test_texts_files_and_clones_keep_the_offsets(tmp_path: Path) -> None:
    x = static.data("x", [None, 2], lod_level=2)
    h = L.fc(x, 3)
    pooled = L.sequence_pool(h, "max")
    main = static.default_main_program()
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": rows([[2, 1], [2, 0, 3]])}
    expected = exe.run(feed=feed, fetch_list=[pooled], return_numpy=False)[0]
    assert expected.lod() == [[0, 2, 3]]
    for twin in (
        static.Program.parse_from_text(str(main)), static.Program.parse_from_string(main.desc.serialize_to_string()),
        main.clone(), main.clone(for_test=True), main._prune([pooled]),
    ):  # fmt: skip
        assert twin.global_block().var(h.name).lod == x.lod
        assert twin.global_block().var(pooled.name).lod == ("x@LOD@0",)
        again = exe.run(twin, feed=feed, fetch_list=[pooled], return_numpy=False)[0]
        assert np.array_equal(np.array(again), np.array(expected))
        assert again.lod() == expected.lod()
    static.save_inference_model(str(tmp_path / "model"), [x], [pooled], exe)
    program, names, results = static.load_inference_model(str(tmp_path / "model"), exe)
    assert names == ["x"]
    again = exe.run(program, feed=feed, fetch_list=results, return_numpy=False)[0]
    assert np.array_equal(np.array(again), np.array(expected))
    assert again.lod() == expected.lod()


def test_a_text_whose_offsets_are_not_declared_is_refused() -> None:
    static.data("x", [None, 2], lod_level=1)
    text = str(static.default_main_program()).replace("lod = ['x@LOD@0']", "lod = ['y@LOD@0']")
    with pytest.raises(ProgramError, match="the LoD of 'x' names a variable that is not declared"):
        static.Program.parse_from_text(text)


# -------------------------------------------------------------------------------------------------------------- places
def test_places_get_whole_sequences() -> None:
    x = static.data("x", [None, 2], lod_level=1)
    y = static.data("y", [None, 1])
    h = x * 2
    total = L.sequence_pool(h, "sum") + y
    compiled = static.CompiledProgram(static.default_main_program()).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    exe = static.Executor(fluid.CPUPlace())
    feed = {"x": rows([[2, 0, 3, 1]]), "y": np.array([[0], [1], [2], [3]], "float32")}
    alone = run([h, total], feed, return_numpy=False)
    both = exe.run(compiled, feed=feed, fetch_list=[h, total], return_numpy=False)
    for a, b in zip(alone, both, strict=True):
        assert np.array_equal(np.array(a), np.array(b))
        assert a.lod() == b.lod()
    parts = exe.run(compiled, feed=feed, fetch_list=[h], return_numpy=False, return_merged=False)[0]
    assert [t.lod() for t in parts] == [[[0, 2, 2]], [[0, 3, 4]]]
    with pytest.raises(FeedError, match="different numbers of rows"):
        exe.run(compiled, feed={**feed, "y": np.ones((3, 1), "float32")}, fetch_list=[total])
    listed = [{"x": rows([[1]]), "y": feed["y"][:1]}, {"x": rows([[2, 1]]), "y": feed["y"][:2]}]
    assert exe.run(compiled, feed=listed, fetch_list=[total])[0].shape == (3, 2)
