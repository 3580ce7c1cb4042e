"""Programs that people write with recurrences, trained for a few steps: what they learn shows that all of it works together."""

from __future__ import annotations

from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import fluid, nn, static


def trained(loss: Any, feeds: Any, rate: float, steps: int) -> list[float]:
    paddle.optimizer.Adam(rate).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    return [float(np.asarray(exe.run(feed=feeds(k), fetch_list=[loss], use_prune=True)[0])) for k in range(steps)]


def test_a_sentiment_classifier() -> None:
    """Rows of other lengths: whether more words of one kind than of the other stand before the end."""
    words, length = static.data("words", [None, 8], "int64"), static.data("length", [None], "int64")
    label = static.data("label", [None, 1], "int64")
    lstm = nn.LSTM(8, 16, direction="bidirect")
    _, (h, _) = lstm(nn.Embedding(20, 8)(words), sequence_length=length)
    logits = nn.Linear(32, 2)(paddle.concat([h[0], h[1]], axis=1))
    loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, label))

    def feeds(step: int) -> dict[str, Any]:
        rng = np.random.default_rng(step)
        rows, ends = rng.integers(0, 20, (32, 8)), rng.integers(3, 9, 32)
        before = np.arange(8) < ends[:, None]
        good = ((rows < 10) & before).sum(1) > ((rows >= 10) & before).sum(1)
        return {"words": rows, "length": ends, "label": good[:, None].astype("int64")}

    losses = trained(loss, feeds, 0.02, 60)
    assert np.mean(losses[-5:]) < 0.35 < np.mean(losses[:3])


def test_a_translator_with_attention() -> None:
    """Reverses a sequence: the decoder is a StaticRNN whose step looks at all outputs of the encoder."""
    source = static.data("source", [None, 5], "int64")
    given, wanted = static.data("given", [None, 5], "int64"), static.data("wanted", [None, 5], "int64")
    encoded, state = nn.GRU(8, 16)(nn.Embedding(7, 8)(source))
    inputs = paddle.transpose(nn.Embedding(7, 8)(given), [1, 0, 2])
    cell, query = nn.GRUCell(8 + 16, 16), nn.Linear(16, 16)
    start = state[0]
    rnn = static.nn.StaticRNN()
    with rnn.step():
        word = rnn.step_input(inputs)
        before = rnn.memory(init=start)
        scores = paddle.matmul(encoded, paddle.unsqueeze(query(before), 2))
        context = paddle.sum(encoded * paddle.nn.functional.softmax(scores, axis=1), axis=1)
        _, after = cell(paddle.concat([word, context], axis=1), before)
        rnn.update_memory(before, after)
        rnn.step_output(paddle.concat([after, context], axis=1))
    logits = nn.Linear(32, 7)(paddle.transpose(rnn(), [1, 0, 2]))
    loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, paddle.unsqueeze(wanted, 2)))

    def feeds(step: int) -> dict[str, Any]:
        rows = np.random.default_rng(step).integers(1, 7, (32, 5))
        turned = rows[:, ::-1].copy()
        return {
            "source": rows,
            "wanted": turned,
            "given": np.concatenate([np.zeros((32, 1), "int64"), turned[:, :-1]], 1),
        }

    losses = trained(loss, feeds, 0.02, 60)
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:3])


def test_a_model_of_characters() -> None:
    """A GRU over whole sequences learns a text by heart; one step at a time with its cell it says the same."""
    text = "pack my box with five dozen jugs "
    letters = sorted(set(text))
    codes = np.array([letters.index(one) for one in text])
    ids, following = static.data("ids", [1, None], "int64"), static.data("following", [1, None], "int64")
    embedding, gru, to_letters = nn.Embedding(len(letters), 16), nn.GRU(16, 48), nn.Linear(48, len(letters))
    logits = to_letters(gru(embedding(ids))[0])
    loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, paddle.unsqueeze(following, 2)))
    now, state = static.data("now", [1], "int64"), static.data("state", [1, 48])
    _, new = gru[0].cell(embedding(now), state)
    best = paddle.argmax(to_letters(new), axis=1)
    test = static.default_main_program().clone(for_test=True)
    feed = {"ids": codes[None, :-1], "following": codes[None, 1:]}
    losses = trained(loss, lambda step: feed, 0.02, 80)
    assert losses[-1] < 0.1
    exe, said = static.Executor(), text[0]
    h, letter = np.zeros((1, 48), "float32"), codes[:1]
    for _ in range(20):
        letter, h = exe.run(test, feed={"now": letter, "state": h}, fetch_list=[best, new], use_prune=True)
        said += letters[int(letter[0])]
    assert said == text[:21]


def test_a_decoder_of_1x_trains_with_teacher_forcing_and_then_searches_beams() -> None:
    """Counts upwards from a number that the first state says."""
    L = fluid.layers
    table = paddle.ParamAttr(name="words")
    out = paddle.ParamAttr(name="out")
    cell = L.GRUCell(hidden_size=24)

    def words(ids: Any) -> Any:
        return fluid.embedding(ids, [9, 8], param_attr=table)

    def logits(x: Any) -> Any:
        return L.fc(x, 9, num_flatten_dims=len(x.shape) - 1, param_attr=out, bias_attr=False)

    first = static.data("first", [None], "int64")
    start = fluid.embedding(first, [9, 24], param_attr="starts")
    given, wanted = static.data("given", [None, 4], "int64"), static.data("wanted", [None, 4, 1], "int64")
    length = L.fill_constant_batch_size_like(given, [-1], "int64", 4)
    helper = L.TrainingHelper(words(given), length)
    made, _ = L.dynamic_decode(L.BasicDecoder(cell, helper, logits), inits=start)
    loss = paddle.mean(paddle.nn.functional.cross_entropy(made.cell_outputs, wanted))
    decoder = nn.BeamSearchDecoder(cell, 0, 8, 2, words, logits)
    ids, _ = nn.dynamic_decode(decoder, start, max_step_num=3)
    test = static.default_main_program().clone(for_test=True)

    def feeds(step: int) -> dict[str, Any]:
        begin = np.random.default_rng(step).integers(1, 4, 16)
        rows = begin[:, None] + np.arange(1, 5)
        return {
            "first": begin,
            "given": np.concatenate([np.zeros((16, 1), "int64"), rows[:, :-1]], 1),
            "wanted": rows[..., None],
        }

    losses = trained(loss, feeds, 0.05, 40)
    assert losses[-1] < 0.1
    found = static.Executor().run(test, feed={"first": np.array([1, 3])}, fetch_list=[ids], use_prune=True)[0]
    assert found[:, :, 0].tolist() == [[2, 3, 4, 5], [4, 5, 6, 7]]


def test_a_recurrence_on_several_places_gives_what_one_gives() -> None:
    """Each place has its part of the batch, which is the same here."""
    found = []
    part = np.random.default_rng(0).normal(size=(4, 2, 3)).astype("float32")
    for places in (1, 2):
        with static.program_guard(static.Program(), static.Program()), static.scope_guard(static.Scope()):
            hidden, _ = nn.LSTM(3, 5)(static.data("x", [None, 2, 3]))
            loss = paddle.mean(paddle.square(hidden))
            paddle.optimizer.SGD(0.5).minimize(loss)
            exe = static.Executor()
            exe.run(static.default_startup_program())
            for p in static.default_main_program().all_parameters():
                p.set_value(np.linspace(-1, 1, np.prod(p.shape), dtype="float32").reshape(p.shape))
            compiled = static.CompiledProgram(static.default_main_program()).with_data_parallel(
                loss_name=loss.name, places=static.cpu_places(places)
            )
            feed = {"x": np.tile(part, (places, 1, 1))}
            found.append([float(np.mean(exe.run(compiled, feed=feed, fetch_list=[loss])[0])) for _ in range(3)])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    assert found[0][0] > found[0][2]
