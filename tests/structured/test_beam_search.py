"""Beam search: against a search through all sentences, tensor arrays that keep a LoD, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstatic import errors, fluid, static

layers = fluid.layers


def tensor(value: Any, lengths: list[list[int]]) -> Any:
    return fluid.create_lod_tensor(value, lengths, fluid.CPUPlace())


def search(log_p: np.ndarray[Any, Any], beam: int, end: int) -> tuple[list[list[int]], list[float]]:
    """Searches sentences of one source: ``log_p[step, word]``, whatever came before; returns them with their scores."""
    steps, words = log_p.shape
    main, exe = static.Program(), static.Executor()
    with static.program_guard(main, static.Program()):
        first, zero = (fluid.data(n, [None, 1], t, lod_level=2) for n, t in (("first", "int64"), ("zero", "float32")))
        table = fluid.data("table", [steps, words], "float32")
        position, limit = layers.zeros([1], "int64"), layers.fill_constant([1], "int64", steps)
        chosen, scores = layers.array_write(first, position), layers.array_write(zero, position)
        going = layers.less_than(position, limit)
        with layers.While(going).block():
            last, before = layers.array_read(chosen, position), layers.array_read(scores, position)
            row = layers.gather(table, position)
            total = layers.elementwise_add(layers.elementwise_mul(before, layers.ones([1], "float32")), row)
            ids, best = layers.beam_search(last, before, None, total, beam, end)
            layers.increment(position)
            layers.array_write(ids, position, chosen)
            layers.array_write(best, position, scores)
            more = layers.logical_not(layers.is_empty(ids))
            layers.logical_and(layers.less_than(position, limit), more, out=going)
        found = layers.beam_search_decode(chosen, scores, beam, end)
    feed = {
        "first": tensor(np.array([[words]]), [[1], [1]]), "zero": tensor(np.zeros((1, 1), "float32"), [[1], [1]]),
        "table": log_p.astype("float32"),
    }  # fmt: skip
    sentences, best_scores = exe.run(main, feed=feed, fetch_list=list(found), return_numpy=False)
    assert sentences.lod() == best_scores.lod()
    rows = list(itertools.pairwise(sentences.lod()[1]))
    values = np.array(sentences).tolist(), np.array(best_scores).tolist()
    assert all(values[0][i] == words for i, _ in rows)
    return [values[0][i + 1 : j] for i, j in rows], [values[1][j - 1] for _, j in rows]


@given(st.integers(1, 4), st.integers(2, 4), st.integers(0, 999))
def test_a_wide_beam_finds_the_best_of_all_sentences(steps: int, words: int, seed: int) -> None:
    log_p = np.log(np.random.default_rng(seed).dirichlet(np.ones(words), steps)).astype("float32").astype("float64")
    every: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(words), repeat=steps):
        # A sentence stops at its first end, here word 0.
        stop = path.index(0) + 1 if 0 in path else steps
        every[path[:stop]] = float(log_p[np.arange(stop), list(path[:stop])].sum())
    best = sorted(every.items(), key=lambda item: -item[1])
    sentences, scores = search(log_p, words**steps, 0)
    assert {tuple(s) for s in sentences} == set(every)
    np.testing.assert_allclose(scores, [score for _, score in best], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose([every[tuple(s)] for s in sentences], scores, rtol=1e-5, atol=1e-5)


def test_a_beam_of_one_takes_the_best_word_of_each_step_and_stops_at_the_end() -> None:
    log_p = np.log([[0.1, 0.7, 0.2], [0.1, 0.2, 0.7], [0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    sentences, scores = search(log_p, 1, 0)
    assert sentences == [[1, 2, 0]]
    np.testing.assert_allclose(scores, [np.log(0.7 * 0.7 * 0.8)], rtol=1e-6)


def test_elements_of_arrays_keep_their_lod() -> None:
    x, i = fluid.data("x", [None, 2], "float32", lod_level=1), layers.zeros([1], "int64")
    array = layers.create_array("float32")
    layers.array_write(x, i, array)
    layers.array_write(layers.scale(x, 2.0), layers.increment(i, in_place=False), array)
    y = layers.array_read(array, layers.ones([1], "int64"))
    assert y.lod_level == 1
    (found,) = fluid.Executor().run(
        feed={"x": tensor(np.ones((3, 2), "float32"), [[1, 2]])}, fetch_list=[y], return_numpy=False
    )
    assert found.lod() == [[0, 1, 3]]
    assert np.array(found).tolist() == [[2, 2]] * 3
    dense = fluid.data("dense", [None, 2], "float32")
    text = str(static.default_main_program())
    with pytest.raises(errors.ProgramError, match="without the sequences that the others are divided into"):
        layers.array_write(dense, i, array)
    assert str(static.default_main_program()) == text
    # An array whose first element has none holds rows alone.
    rows = layers.array_write(dense, i)
    layers.array_write(x, layers.increment(i, in_place=False), rows)
    assert layers.array_read(rows, i).lod_level == 0


def test_wrong_beams_are_refused() -> None:
    words = fluid.data("words", [None, 1], "int64")
    scores, table = fluid.data("scores", [None, 1], "float32"), fluid.data("table", [None, 3], "float32", lod_level=2)
    with pytest.raises(errors.ProgramError, match="is not divided into sequences"):
        layers.beam_search(words, scores, None, layers.matmul(scores, layers.ones([1, 3], "float32")), 2, 1)
    for arg, beam, level in (("beam_size", 0, 0), ("level", 2, 2)):
        with pytest.raises(errors.ShapeError, match=f"the value of '{arg}'"):
            layers.beam_search(words, scores, None, table, beam, 1, level)
    array = layers.array_write(words, layers.zeros([1], "int64"))
    with pytest.raises(errors.ProgramError, match="do not say which sentences they belong to"):
        layers.beam_search_decode(array, array, 2, 1)
    with pytest.raises(errors.ProgramTypeError, match="is not a tensor array"):
        layers.beam_search_decode(words, scores, 2, 1)
