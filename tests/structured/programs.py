"""Whole programs on sequences in the style of Paddle 1.x, which run alike in ``paddle.fluid`` 1.8 and here (syntax of Python 3.7).

Each function builds a net and returns the loss, further values to fetch, and the feeds of a few steps.
"""

from __future__ import annotations

import numpy as np

STEPS = 4


def fill(fluid, program):
    """Gives every parameter numbers that depend on its place and shape alone, so that both libraries begin alike."""
    place = fluid.CPUPlace()
    for i, parameter in enumerate(program.global_block().all_parameters()):
        rng = np.random.RandomState(100 + i)
        value = rng.uniform(-0.3, 0.3, parameter.shape).astype("float32")
        fluid.global_scope().find_var(parameter.name).get_tensor().set(value, place)


def train(fluid, build, optimizer, compiled=lambda program: program):
    """Runs a program for a few steps; returns, per step, what it fetches: ``[values, lengths or None]`` each."""
    main, start = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, start), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        loss, fetches, feeds = build(fluid)
        test = main.clone(for_test=True)
        optimizer(fluid).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(start)
        fill(fluid, main)
        trained = compiled(main)
        steps = [exe.run(trained, feed=feed, fetch_list=[loss, *fetches], return_numpy=False) for feed in feeds]
        steps.append(exe.run(test, feed=feeds[0], fetch_list=[loss, *fetches], return_numpy=False))
        return [[[np.array(t).tolist(), t.recursive_sequence_lengths() or None] for t in step] for step in steps]


def words(fluid, rng, size, lengths, dtype="int64"):
    """Drawn class numbers ``[rows, 1]``, divided into sequences."""
    rows = rng.randint(0, size, (sum(lengths), 1)).astype(dtype)
    return fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())


def classes(rng, size, count):
    return rng.randint(0, size, (count, 1)).astype("int64")


def sgd(fluid):
    return fluid.optimizer.SGD(learning_rate=0.2)


def adam(fluid):
    return fluid.optimizer.Adam(learning_rate=0.02)


def adagrad(fluid):
    return fluid.optimizer.Adagrad(learning_rate=0.05)


LENGTHS = ([5, 2, 7], [1, 6, 3], [4, 4, 4], [2, 9, 1])


def lexemes(fluid, name, size=30):
    return fluid.layers.data(name, shape=[1], dtype="int64", lod_level=1)


# ------------------------------------------------------------------------------------------------------------ the programs
def sentiment_conv(fluid):
    """Two convolutions over words, pooled: the understanding of a sentence."""
    L = fluid.layers
    data, label = lexemes(fluid, "words"), L.data("label", shape=[1], dtype="int64")
    emb = L.embedding(data, size=[30, 8])
    three = fluid.nets.sequence_conv_pool(emb, num_filters=6, filter_size=3, act="tanh", pool_type="sqrt")
    four = fluid.nets.sequence_conv_pool(emb, num_filters=6, filter_size=4, act="tanh", pool_type="max")
    prediction = L.fc([three, four], size=2, act="softmax")
    loss = L.mean(L.cross_entropy(prediction, label))
    rng = np.random.RandomState(1)
    feeds = [{"words": words(fluid, rng, 30, n), "label": classes(rng, 2, 3)} for n in LENGTHS]
    return loss, [prediction, L.accuracy(prediction, label)], feeds


def sentiment_lstm(fluid):
    """Stacked LSTMs of both directions over words, the largest of each column."""
    L = fluid.layers
    data, label = lexemes(fluid, "words"), L.data("label", shape=[1], dtype="int64")
    emb = L.embedding(data, size=[30, 8], is_sparse=True)
    fc1 = L.fc(emb, size=16)
    lstm1, _ = L.dynamic_lstm(fc1, size=16)
    inputs = [fc1, lstm1]
    for i in (2, 3):
        fc = L.fc(inputs, size=16)
        lstm, _ = L.dynamic_lstm(fc, size=16, is_reverse=i % 2 == 0)
        inputs = [fc, lstm]
    pools = [L.sequence_pool(inputs[0], "max"), L.sequence_pool(inputs[1], "max")]
    prediction = L.fc(pools, size=2, act="softmax")
    loss = L.mean(L.cross_entropy(prediction, label))
    rng = np.random.RandomState(2)
    feeds = [{"words": words(fluid, rng, 30, n), "label": classes(rng, 2, 3)} for n in LENGTHS]
    return loss, [prediction], feeds


def text_gru(fluid):
    """A GRU of each direction over words; their last and first steps."""
    L = fluid.layers
    data, label = lexemes(fluid, "words"), L.data("label", shape=[1], dtype="int64")
    emb = L.embedding(data, size=[30, 8])
    forth = L.dynamic_gru(L.fc(emb, size=15), size=5)
    back = L.dynamic_gru(L.fc(emb, size=15), size=5, is_reverse=True)
    state = L.concat([L.sequence_last_step(forth), L.sequence_first_step(back)], axis=1)
    prediction = L.fc(L.tanh(state), size=3, act="softmax")
    loss = L.mean(L.cross_entropy(prediction, label))
    rng = np.random.RandomState(3)
    feeds = [{"words": words(fluid, rng, 30, n), "label": classes(rng, 3, 3)} for n in LENGTHS]
    return loss, [prediction], feeds


def role_labels_crf(fluid):
    """Semantic roles: words and a mark, mixed LSTM layers of alternating direction, a CRF on top."""
    L = fluid.layers
    word, mark, target = lexemes(fluid, "word"), lexemes(fluid, "mark"), lexemes(fluid, "target")
    shared = fluid.ParamAttr(name="emb", learning_rate=0.5)
    hidden = L.sums([
        L.fc(L.embedding(word, size=[30, 6], param_attr=shared), size=16),
        L.fc(L.embedding(mark, size=[2, 4]), size=16),
    ])  # fmt: skip
    lstm, _ = L.dynamic_lstm(
        hidden, size=16, candidate_activation="relu", gate_activation="sigmoid", cell_activation="sigmoid"
    )
    mixed = L.sums([L.fc(hidden, size=16), L.fc(lstm, size=16)])
    again, _ = L.dynamic_lstm(mixed, size=16, is_reverse=True)
    emission = L.sums([L.fc(mixed, size=5, act="tanh"), L.fc(again, size=5, act="tanh")])
    attr = fluid.ParamAttr(name="crfw", learning_rate=2.0)
    cost = L.linear_chain_crf(emission, target, param_attr=attr)
    path = L.crf_decoding(emission, fluid.ParamAttr(name="crfw"))
    counts = L.chunk_eval(path, target, "IOB", 2)
    rng = np.random.RandomState(4)
    feeds = [
        {"word": words(fluid, rng, 30, n), "mark": words(fluid, rng, 2, n), "target": words(fluid, rng, 5, n)}
        for n in LENGTHS
    ]
    return L.mean(cost), [cost, path, *counts], feeds


def lexical_analysis_padded(fluid):
    """Labels of padded sentences: a convolution over words, a CRF with lengths, where the best path is right."""
    L = fluid.layers
    word, target = fluid.data("word", [None, 7], "int64"), fluid.data("target", [None, 7], "int64")
    length = fluid.data("length", [None, 1], "int64")
    emb = fluid.embedding(word, size=[30, 8])
    emission = L.fc(emb, size=4, num_flatten_dims=2)
    cost = L.linear_chain_crf(emission, target, param_attr=fluid.ParamAttr(name="crfw"), length=length)
    path = L.crf_decoding(emission, fluid.ParamAttr(name="crfw"), length=length)
    right = L.crf_decoding(emission, fluid.ParamAttr(name="crfw"), label=target, length=length)
    mask = L.sequence_mask(L.squeeze(length, [1]), maxlen=7, dtype="float32")
    share = L.reduce_sum(L.elementwise_mul(L.cast(right, "float32"), mask)) / L.reduce_sum(mask)
    rng = np.random.RandomState(5)
    feeds = [
        {
            "word": rng.randint(0, 30, (3, 7)).astype("int64"),
            "target": rng.randint(0, 4, (3, 7)).astype("int64"),
            "length": np.minimum(n, 7).reshape(3, 1).astype("int64"),
        }
        for n in LENGTHS
    ]
    return L.mean(cost), [path, share, *L.chunk_eval(path, target, "plain", 3, seq_length=length)], feeds


def speech_ctc(fluid):
    """Frames through GRUs of both directions, a CTC loss, its greedy decoding, and the edits that it lacks."""
    L = fluid.layers
    frames = L.data("frames", shape=[6], dtype="float32", lod_level=1)
    label = L.data("label", shape=[1], dtype="int32", lod_level=1)
    hidden = L.fc(frames, size=8, act="relu")
    forth = L.dynamic_gru(L.fc(hidden, size=12), size=4)
    back = L.dynamic_gru(L.fc(hidden, size=12), size=4, is_reverse=True, candidate_activation="relu")
    scores = L.fc([forth, back], size=5)
    cost = L.warpctc(scores, label, blank=4, norm_by_times=True)
    decoded = L.ctc_greedy_decoder(scores, blank=4)
    distances, count = L.edit_distance(decoded, L.cast(label, "int64"), normalized=True)
    rng = np.random.RandomState(6)
    feeds = []
    for n in LENGTHS:
        rows = rng.randn(sum(n), 6).astype("float32")
        feeds.append({
            "frames": fluid.create_lod_tensor(rows, [n], fluid.CPUPlace()),
            "label": words(fluid, rng, 4, [max(k // 2, 1) for k in n], "int32"),
        })  # fmt: skip
    return L.mean(cost), [cost, distances, count], feeds


def image_ctc(fluid):
    """Characters of an image: convolution, columns as steps, padded CTC."""
    L = fluid.layers
    image = fluid.data("image", [None, 1, 4, 12], "float32")
    label, n, m = (
        fluid.data("label", [None, 3], "int32"),
        fluid.data("n", [None], "int64"),
        fluid.data("m", [None], "int64"),
    )
    conv = L.conv2d(image, num_filters=4, filter_size=3, padding=1, act="relu")
    pool = L.pool2d(conv, pool_size=[4, 2], pool_stride=[4, 2])
    steps = L.transpose(L.squeeze(pool, [2]), [2, 0, 1])
    scores = L.fc(steps, size=6, num_flatten_dims=2)
    cost = L.warpctc(scores, label, blank=0, input_length=n, label_length=m)
    decoded, count = L.ctc_greedy_decoder(L.transpose(scores, [1, 0, 2]), 0, input_length=n, padding_value=-1)
    rng = np.random.RandomState(7)
    feeds = [
        {
            "image": rng.randn(3, 1, 4, 12).astype("float32"),
            "label": rng.randint(1, 6, (3, 3)).astype("int32"),
            "n": np.array([6, 6, 5], "int64"),
            "m": np.array([3, 1, 2], "int64"),
        }
        for _ in LENGTHS
    ]
    return L.mean(cost), [decoded, count], feeds


def word2vec(fluid):
    """The fifth word from the four before, which share their table."""
    L = fluid.layers
    names = ["first", "second", "third", "fourth"]
    data = [L.data(name, shape=[1], dtype="int64") for name in names]
    label = L.data("next", shape=[1], dtype="int64")
    embs = [L.embedding(x, size=[30, 6], is_sparse=True, param_attr="shared_w") for x in data]
    hidden = L.fc(L.concat(embs, axis=1), size=16, act="sigmoid")
    prediction = L.fc(hidden, size=30, act="softmax")
    loss = L.mean(L.cross_entropy(prediction, label))
    rng = np.random.RandomState(8)
    feeds = [{name: classes(rng, 30, 6) for name in [*names, "next"]} for _ in LENGTHS]
    return loss, [L.reduce_max(prediction, dim=1)], feeds


def recommender(fluid):
    """A user's number and a film's words and kinds, compared by their cosine."""
    L = fluid.layers
    user, score = L.data("user", shape=[1], dtype="int64"), L.data("score", shape=[1], dtype="float32")
    title, kinds = lexemes(fluid, "title"), lexemes(fluid, "kinds")
    left = L.fc(L.embedding(user, size=[20, 8]), size=10, act="tanh")
    pooled = L.sequence_pool(L.embedding(kinds, size=[6, 8]), "sum")
    convolved = fluid.nets.sequence_conv_pool(
        L.embedding(title, size=[30, 8]), num_filters=8, filter_size=3, act="tanh", pool_type="sum"
    )
    right = L.fc(L.concat([pooled, convolved], axis=1), size=10, act="tanh")
    guess = L.scale(L.cos_sim(X=left, Y=right), scale=5.0)
    loss = L.mean(L.square_error_cost(guess, score))
    rng = np.random.RandomState(9)
    feeds = [
        {
            "user": classes(rng, 20, 3),
            "score": rng.randint(1, 6, (3, 1)).astype("float32"),
            "title": words(fluid, rng, 30, n),
            "kinds": words(fluid, rng, 6, n[::-1]),
        }
        for n in LENGTHS
    ]
    return loss, [guess], feeds


def language_model(fluid):
    """The next word of each word: an LSTM with peepholes over sentences, the loss of each row and sentence."""
    L = fluid.layers
    data, following = lexemes(fluid, "words"), lexemes(fluid, "next")
    emb = L.embedding(data, size=[30, 8])
    hidden, cell = L.dynamic_lstm(L.fc(emb, size=24), size=24, use_peepholes=True)
    prediction = L.fc(L.dropout(hidden, 0.0), size=30, act="softmax")
    rows = L.cross_entropy(prediction, following)
    loss = L.mean(L.sequence_pool(rows, "sum"))
    rng = np.random.RandomState(10)
    feeds = [{"words": words(fluid, rng, 30, n), "next": words(fluid, rng, 30, n)} for n in LENGTHS]
    return loss, [rows, L.sequence_pool(cell, "last")], feeds


def translation(fluid):
    """A GRU reads a sentence; a DynamicRNN writes its translation, from the last state of the reader and its context."""
    L = fluid.layers
    source, target, label = lexemes(fluid, "source"), lexemes(fluid, "target"), lexemes(fluid, "label")
    read = L.dynamic_gru(L.fc(L.embedding(source, size=[30, 8], param_attr="table"), size=18), size=6)
    context = L.sequence_last_step(read)
    written = L.embedding(target, size=[30, 8], param_attr="table")
    start = L.fc(context, size=6, act="tanh")
    rnn = L.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(written)
        state = rnn.memory(init=start, need_reorder=True)
        seen = rnn.static_input(context)
        new = L.fc([word, state, seen], size=6, act="tanh")
        rnn.update_memory(state, new)
        rnn.output(L.fc(new, size=30, act="softmax"))
    prediction = rnn()
    loss = L.mean(L.cross_entropy(prediction, label))
    rng = np.random.RandomState(11)
    feeds = []
    for n in LENGTHS:
        m = [k % 4 + 1 for k in n]
        feeds.append({
            "source": words(fluid, rng, 30, n), "target": words(fluid, rng, 30, m), "label": words(fluid, rng, 30, m),
        })  # fmt: skip
    return loss, [L.reduce_max(prediction, dim=1)], feeds


def question_match(fluid):
    """Two sentences as sums of words, rowwise softmax weights, expanded and compared: a ranking loss of pairs."""
    L = fluid.layers
    query, better, worse = lexemes(fluid, "query"), lexemes(fluid, "better"), lexemes(fluid, "worse")

    def pooled(x):
        emb = L.embedding(x, size=[30, 8], param_attr="table")
        weight = L.sequence_softmax(L.fc(emb, size=1, bias_attr=False, param_attr="weight"))
        return L.softsign(L.sequence_pool(L.elementwise_mul(emb, weight), "sum"))

    def similarity(x):
        return L.cos_sim(L.fc(pooled(query), size=6, param_attr="q"), L.fc(pooled(x), size=6, param_attr="t"))

    good, bad = similarity(better), similarity(worse)
    one = L.fill_constant_batch_size_like(good, shape=[-1, 1], dtype="float32", value=1.0)
    loss = L.mean(L.margin_rank_loss(one, good, bad, margin=2.5))
    rng = np.random.RandomState(12)
    names = ("query", "better", "worse")
    feeds = [{name: words(fluid, rng, 30, np.roll(n, i).tolist()) for i, name in enumerate(names)} for n in LENGTHS]
    return loss, [good, bad], feeds


PROGRAMS = (
    (sentiment_conv, adam),
    (sentiment_lstm, adagrad),
    (text_gru, adam),
    (role_labels_crf, sgd),
    (lexical_analysis_padded, sgd),
    (speech_ctc, adam),
    (image_ctc, sgd),
    (word2vec, sgd),
    (recommender, sgd),
    (language_model, sgd),
    (translation, adam),
    (question_match, sgd),
)
"""Net, and the optimizer that trains it."""
