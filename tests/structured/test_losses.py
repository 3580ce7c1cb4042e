"""CRF and CTC against every path and every alignment, scores without bounds, and what they refuse."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tstatic as paddle
from tests.ops.sampler import Sample, run, run_torch
from tstatic import errors, fluid, static
from tstatic.ir.opdef import op_def
from tstatic.ops.structured import warpctc
from tstatic.ops.structured._sequences import TimeMajor

Array = np.ndarray[Any, Any]


def evaluate(type: str, *ins: Any, **attrs: Any) -> list[Any]:
    """Runs an op on arrays; absent inputs may be left out at the end."""
    definition = op_def(type)
    padded = (*ins, *(None,) * (len(definition.inputs) - len(ins)))
    return run(definition, Sample(padded, attrs, "float64"))


# ------------------------------------------------------------------------------------------------------------------ CRF
def path_score(x: Array, w: Array, tags: Sequence[int]) -> float:
    moves = sum(w[2 + a, b] for a, b in itertools.pairwise(tags))
    return float(x[np.arange(len(tags)), list(tags)].sum() + w[0, tags[0]] + w[1, tags[-1]] + moves)


@given(st.integers(1, 3), st.integers(1, 4), st.lists(st.integers(0, 4), max_size=4), st.integers(0, 99))
def test_crf_is_the_sum_over_every_path_and_its_decoding_the_best(
    tags: int, steps: int, lengths: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n = np.minimum(np.array(lengths, np.int64), steps)
    x, w = rng.normal(size=(len(n), steps, tags)), rng.normal(size=(tags + 2, tags))
    label = rng.integers(0, tags, (len(n), steps))
    (loss,) = evaluate("linear_chain_crf", x, w, label, n)
    (path,) = evaluate("crf_decoding", x, w, None, n)
    for i, count in enumerate(n):
        if not count:
            assert loss[i, 0] == 0
            continue
        paths = list(itertools.product(range(tags), repeat=int(count)))
        scores = np.array([path_score(x[i, :count], w, p) for p in paths])
        wanted = np.logaddexp.reduce(scores) - path_score(x[i], w, label[i, :count])
        np.testing.assert_allclose(loss[i, 0], wanted, rtol=1e-9, atol=1e-12)
        assert tuple(path[i, :count]) == paths[scores.argmax()]
        assert not path[i, count:].any()


def test_crf_keeps_sums_that_exponentials_lose() -> None:
    # From tag 1 alone, which is far below tag 0, a sequence goes on at little cost.
    w = np.array([[0.0, -2000.0], [0.0, 0.0], [-5000.0, -5000.0], [0.0, 0.0]])
    x, label, n = np.zeros((1, 3, 2)), np.array([[1, 1, 0]]), np.array([3])
    (loss,) = evaluate("linear_chain_crf", x, w, label, n)
    # Four paths that begin with tag 1 and stay there until the last step, or go over.
    paths = np.array([path_score(x[0], w, p) for p in itertools.product(range(2), repeat=3)])
    expected = np.logaddexp.reduce(paths) - path_score(x[0], w, [1, 1, 0])
    np.testing.assert_allclose(loss, [[expected]])
    dx, dw = evaluate("linear_chain_crf_grad", x, w, label, n, None, np.ones((1, 1)))
    assert np.isfinite(dx).all()
    assert np.isfinite(dw).all()
    np.testing.assert_allclose(dx.sum(axis=2), 0, atol=1e-12)


@pytest.mark.parametrize("tags", [2, 3])
def test_crf_and_its_gradients_keep_what_exponentials_lose(tags: int) -> None:
    """Several sequences, each with a gradient of its own, against torch's logarithms of sums."""
    rng = np.random.default_rng(tags)
    w = rng.normal(size=(tags + 2, tags))
    # Beside the way that begins and stays with tag 0, all others lose every bit of their exponentials.
    w[0, 1:], w[2, 1:] = -3000.0, -2000.0
    x, n = rng.normal(size=(3, 4, tags)), np.array([4, 1, 3])
    label, dout = rng.integers(1, tags, (3, 4)), rng.normal(size=(3, 1))
    given = [torch.from_numpy(a) for a in (x, w, label, n)]
    found = [
        *evaluate("linear_chain_crf", x, w, label, n),
        *evaluate("linear_chain_crf_grad", x, w, label, n, None, dout),
    ]
    wanted = [
        op_def("linear_chain_crf").lower(torch, *given, None),
        *op_def("linear_chain_crf_grad").lower(torch, *given, None, torch.from_numpy(dout)),
    ]
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-9, atol=1e-12)


def test_sequences_with_offsets_are_padded_sequences_without_padding() -> None:
    rng = np.random.default_rng(1)
    n = np.array([2, 0, 4, 1])
    x, w, label = rng.normal(size=(4, 4, 3)), rng.normal(size=(5, 3)), rng.integers(0, 3, (4, 4))
    inside = np.arange(4) < n[:, None]
    offsets = np.concatenate(([0], np.cumsum(n)))
    rows = x[inside], w, label[inside][:, None], None, offsets
    (padded,), (loss,) = evaluate("linear_chain_crf", x, w, label, n), evaluate("linear_chain_crf", *rows)
    assert np.array_equal(padded, loss)
    dout = rng.normal(size=(4, 1))
    dx, dw = evaluate("linear_chain_crf_grad", x, w, label, n, None, dout)
    dx_rows, dw_rows = evaluate("linear_chain_crf_grad", *rows, dout)
    assert np.array_equal(dx[inside], dx_rows)
    assert np.array_equal(dw, dw_rows)
    assert not dx[~inside].any()
    (path,), (path_rows,) = (
        evaluate("crf_decoding", x, w, None, n),
        evaluate("crf_decoding", *rows[:2], None, *rows[3:]),
    )
    assert np.array_equal(path[inside], path_rows[:, 0])


# ------------------------------------------------------------------------------------------------------------------ CTC
def alignments(steps: int, classes: int, label: Sequence[int], blank: int) -> list[tuple[int, ...]]:
    found = []
    for path in itertools.product(range(classes), repeat=steps):
        merged = [c for i, c in enumerate(path) if i == 0 or path[i - 1] != c]
        if [c for c in merged if c != blank] == list(label):
            found.append(path)
    return found


@given(st.integers(1, 4), st.integers(2, 3), st.lists(st.integers(1, 2), max_size=3), st.integers(0, 99))
def test_ctc_is_the_sum_over_every_alignment(steps: int, classes: int, label: list[int], seed: int) -> None:
    label = [min(c, classes - 1) for c in label]
    x = np.random.default_rng(seed).normal(size=(steps, 1, classes))
    padded = np.array([[*label, 0]])
    loss, grad = evaluate("warpctc", x, padded, np.array([steps]), np.array([len(label)]))
    p = np.exp(x[:, 0]) / np.exp(x[:, 0]).sum(axis=1, keepdims=True)
    ways = [np.prod([p[t, c] for t, c in enumerate(path)]) for path in alignments(steps, classes, label, 0)]
    if ways:
        np.testing.assert_allclose(loss[0, 0], -np.log(sum(ways)))
    else:
        assert loss[0, 0] == 0
        assert not grad.any()


@given(
    st.integers(1, 12), st.integers(1, 5), st.integers(2, 9), st.integers(0, 5), st.integers(0, 999), st.booleans()
)  # fmt: skip
def test_ctc_and_its_gradient_are_torchs(
    steps: int, batch: int, classes: int, most: int, seed: int, with_lod: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(steps, batch, classes)) * 3
    blank = int(rng.integers(classes))
    label = (blank + rng.integers(1, classes, (batch, most))) % classes
    n, m = rng.integers(0, steps + 1, batch), rng.integers(0, most + 1, batch)
    if with_lod:
        rows = np.concatenate([x[: n[i], i] for i in range(batch)])
        labels = np.concatenate([label[i, : m[i]] for i in range(batch)])[:, None]
        offsets = (np.concatenate(([0], np.cumsum(lengths))) for lengths in (n, m))
        loss, grad = evaluate("warpctc", rows, labels, None, None, *offsets, blank=blank)
    else:
        loss, grad = evaluate("warpctc", x, label, n, m, blank=blank)
    tensor = torch.tensor(x, requires_grad=True)
    theirs = torch.nn.functional.ctc_loss(
        tensor.log_softmax(-1), torch.tensor(label), torch.tensor(n), torch.tensor(m), blank, "none", zero_infinity=True
    )
    theirs.sum().backward()
    # No step and no label: torch takes -log(1), which is 0 as well.
    np.testing.assert_allclose(loss[:, 0], theirs.detach().numpy(), rtol=1e-9, atol=1e-12)
    wanted = tensor.grad.numpy()
    wanted = np.concatenate([wanted[: n[i], i] for i in range(batch)]) if with_lod else wanted
    np.testing.assert_allclose(grad, wanted, rtol=1e-7, atol=1e-9)


BLANKS: list[tuple[list[int], int, float]] = [
    ([1, 2], 0, 3.939098834991455),
    ([0, 1], 0, 4.664529800415039),
    ([1, 0], 0, 5.17121696472168),
    ([1, 0, 2], 0, 5.198372840881348),
    ([0, 0], 0, 5.647021293640137),
    ([3, 1], 3, 3.5588648319244385),
    ([1, 3, 1], 3, 5.703149318695068),
]
"""Labels, the blank, and the loss of Paddle 2.6.2."""


@pytest.mark.parametrize(("label", "blank", "wanted"), BLANKS)
@pytest.mark.parametrize("form", [run, run_torch])
@pytest.mark.parametrize("with_lod", [False, True])
def test_ctc_of_labels_that_hold_the_blank_is_that_of_paddle(
    label: list[int], blank: int, wanted: float, form: Any, with_lod: bool
) -> None:
    """torch lets a path skip into a label that is the blank, past the blank before it; Paddle and the reference do not."""
    x, n, m = np.sin(np.arange(20.0)).reshape(5, 1, 4), np.array([5]), np.array([len(label)])
    padded = (x, np.array([label]), n, m, None, None)
    packed = (x[:, 0], np.array(label)[:, None], None, None, np.array([0, 5]), np.array([0, len(label)]))
    sample = Sample(packed if with_lod else padded, {"blank": blank}, "float64")
    np.testing.assert_allclose(form(op_def("warpctc"), sample)[0], [[wanted]], rtol=1e-6)


@given(
    st.integers(1, 60), st.integers(1, 4), st.integers(2, 6), st.integers(0, 20), st.floats(-1, 2.5), st.integers(0, 99)
)
def test_ctc_by_scaled_probabilities_is_ctc_by_logarithms(
    steps: int, batch: int, classes: int, most: int, size: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(steps, batch, classes)) * 10**size
    label, n, m = (
        rng.integers(1, classes, (batch, most)),
        rng.integers(0, steps + 1, batch),
        rng.integers(0, most + 1, batch),
    )
    all_ = warpctc._Alignments(x, TimeMajor(np.arange(batch), n, batch), label, np.arange(batch) * most, m, 0)
    fast, safe = warpctc._scaled(all_), warpctc._logarithms(all_)
    if fast is None:
        # Numbers of ordinary size never need logarithms.
        assert size > 0.8
        return
    possible = all_.possible[: all_.order.count]
    np.testing.assert_allclose(fast[0][possible], safe[0][possible], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(all_.gradient(fast[1]), all_.gradient(safe[1]), atol=1e-10)


def test_ctc_of_an_impossible_step_is_infinite_and_of_an_impossible_length_zero() -> None:
    x = np.zeros((2, 2, 3))
    x[:, 0, 1] = -np.inf
    loss, grad = evaluate("warpctc", x, np.array([[1, 0], [1, 1]]), np.array([2, 2]), np.array([1, 2]))
    assert loss[0, 0] == np.inf
    assert loss[1, 0] == 0
    assert not grad[:, 1].any()


# ---------------------------------------------------------------------------------------------------------------- errors
def fetch(build: Callable[[], Any], **feed: Any) -> Any:
    """Builds a program and runs it."""
    main, start, exe = static.Program(), static.Program(), static.Executor()
    with static.program_guard(main, start):
        value = build()
    exe.run(start)
    return exe.run(main, feed=feed, fetch_list=[value])[0]


def lengths(name: str = "n") -> Any:
    return static.data(name, [None], "int64")


def tags(name: str = "y") -> Any:
    return static.data(name, [None, 3], "int64")


def test_what_is_fed_out_of_range_is_named() -> None:
    layers = fluid.layers

    def crf(label: list[int], n: int) -> Any:
        def build() -> Any:
            return layers.linear_chain_crf(static.data("x", [None, 3, 2]), tags(), length=lengths())

        return fetch(build, x=np.zeros((1, 3, 2), "float32"), y=np.array([label]), n=np.array([n]))

    assert np.isfinite(crf([0, 1, 77], 2)).all()  # the wrong label stands behind the end
    with pytest.raises(errors.IndexRangeError, match=r"Label holds a value that is out of range[\s\S]*0 to 1"):
        crf([0, 1, 77], 3)
    with pytest.raises(errors.IndexRangeError, match=r"Length holds[\s\S]*4 at \[0\]"):
        crf([0, 1, 1], 4)

    def ctc(label: list[int]) -> Any:
        def build() -> Any:
            return layers.warpctc(static.data("s", [4, None, 3]), tags(), 0, False, lengths(), lengths("m"))

        feed = {"n": np.array([4]), "m": np.array([3])}
        return fetch(build, s=np.zeros((4, 1, 3), "float32"), y=np.array([label]), **feed)

    with pytest.raises(errors.IndexRangeError, match=r"Label holds a value[\s\S]*3 at \[1\]"):
        ctc([1, 3, 2])
    y, n = np.array([[1, 3, 2]]), np.array([3])
    with pytest.raises(errors.IndexRangeError, match="1 types of chunks in scheme IOB have 3 tags"):
        fetch(lambda: layers.chunk_eval(tags(), tags("z"), "IOB", 1, seq_length=lengths())[0], y=y, z=y, n=n)
    for place, counts in ((0, [0]), (0, [0, 0]), (1, [2, 0]), (0, [0, 2, 3])):
        rows = np.repeat(y, len(counts), axis=0)
        with pytest.raises(errors.FeedError, match=f"reference {place} of edit_distance is empty"):
            fetch(
                lambda: layers.edit_distance(tags(), tags("z"), True, None, lengths(), lengths("m"))[0],
                y=rows, z=rows, n=np.repeat(n, len(counts)), m=np.array(counts),
            )  # fmt: skip


@pytest.mark.parametrize("maxlen", [0, 1, 2, 3])
@pytest.mark.parametrize("given", ["number", "variable"])
def test_a_mask_has_as_many_steps_as_it_is_told_down_to_none(maxlen: int, given: str) -> None:
    counts = np.array([2, 0, 1])

    def mask() -> Any:
        size = maxlen if given == "number" else paddle.full([1], maxlen, "int64")
        return paddle.nn.functional.sequence_mask(lengths(), size)

    np.testing.assert_array_equal(fetch(mask, n=counts), np.arange(maxlen) < counts[:, None])


def test_wrong_arguments_are_refused_when_the_program_is_built() -> None:
    layers = fluid.layers
    x, y, n = static.data("x", [None, 3, 2]), tags(), lengths()
    scores, wide, short = static.data("s", [4, None, 3]), static.data("wide", [None, 3, None]), paddle.cast(y, "int32")

    def sizes() -> list[int]:
        programs = static.default_main_program(), static.default_startup_program()
        return [len(part) for p in programs for part in (p.global_block().ops, p.global_block().vars)]

    refused: list[tuple[type[Exception], str, Any]] = [
        (errors.ProgramError, "nothing says where the sequences of 'input' end", lambda: layers.linear_chain_crf(x, y)),
        (errors.ShapeError, "one label for each row", lambda: layers.linear_chain_crf(x, n, length=n)),
        (errors.DTypeError, "'label' in linear_chain_crf", lambda: layers.linear_chain_crf(x, x, length=n)),
        (errors.ShapeError, "makes parameters", lambda: layers.linear_chain_crf(wide, y, length=n)),
        (errors.NotFoundError, "no parameter 'crfw'", lambda: layers.crf_decoding(x, "crfw", length=n)),
        (errors.ProgramError, "blank", lambda: layers.warpctc(scores, y, 3, False, n, n)),
        (errors.ProgramError, "blank", lambda: layers.warpctc(scores, y, -1, False, n, n)),
        (errors.ProgramError, "'label_length'", lambda: layers.warpctc(scores, y, 0, False, n)),
        (errors.ProgramError, "reduction", lambda: paddle.nn.functional.ctc_loss(scores, y, n, n, reduction="batchmean")),
        (errors.ProgramError, "chunk_scheme", lambda: layers.chunk_eval(y, y, "BIO", 1, seq_length=n)),
        (errors.ShapeError, "'num_chunk_types'", lambda: layers.chunk_eval(y, y, "IOB", 0, seq_length=n)),
        (errors.ProgramTypeError, "must be Variable", lambda: layers.edit_distance(np.zeros(3), y)),
        (errors.DTypeError, "different dtypes", lambda: layers.edit_distance(y, short, True, None, n, n)),
        (errors.ShapeError, "'maxlen'", lambda: layers.sequence_mask(n, -1)),
        (errors.ShapeError, "dimensions", lambda: layers.gather_tree(y, y)),
    ]  # fmt: skip
    for kind, text, call in refused:
        before = sizes()
        with pytest.raises(kind, match=text):
            call()
        assert sizes() == before, text


def test_a_label_that_is_the_blank_has_a_finite_loss_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Guards CTC programs whose padding is the blank; the losses are those that Paddle 2.6.2 prints."""
    logits = np.random.RandomState(0).rand(5, 2, 4).astype("float32")
    label = np.array([[1, 0, 2], [1, 2, 3]], "int32")

    def build() -> Any:
        x, y = static.data("logits", [5, 2, 4]), static.data("label", [2, 3], "int32")
        x.stop_gradient = False
        sizes = static.data("n", [2], "int64"), static.data("m", [2], "int64")
        loss = paddle.nn.functional.ctc_loss(x, y, *sizes, blank=0, reduction="none")
        return [loss, *static.gradients([loss], [x])]

    exe, fetches = static.Executor(), build()
    for _ in range(2):
        feed = {"logits": logits, "label": label, "n": np.array([5, 5]), "m": np.array([3, 2])}
        loss, gradient = exe.run(feed=feed, fetch_list=fetches)
    np.testing.assert_allclose(loss, [6.1412325, 3.2115846], rtol=1e-5)
    assert sum("hold the blank" in r.getMessage() for r in caplog.records) == 1
    # The gradient is that of this loss.
    for at in ((0, 0, 1), (2, 0, 0), (3, 0, 2)):
        ends = []
        for step in (1e-2, -1e-2):
            moved = logits.copy()
            moved[at] += step
            feed = {"logits": moved, "label": label, "n": np.array([5, 5]), "m": np.array([3, 2])}
            ends.append(exe.run(feed=feed, fetch_list=fetches)[0][0])
        np.testing.assert_allclose(gradient[at], (ends[0] - ends[1]) / 2e-2, atol=2e-3)
