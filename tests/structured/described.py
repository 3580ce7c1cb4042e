"""Calls on label sequences that run alike in ``paddle.fluid`` 1.8 and here (so the syntax is that of Python 3.7)."""

from __future__ import annotations

import numpy as np

SCHEMES = {"IOB": (2, 2), "IOE": (2, 2), "IOBES": (2, 4), "plain": (3, 1)}
"""Scheme -> number of types, and tags of each."""


def run(fluid, build, feed, values=None):
    """Builds a program, sets its parameters, runs it once; returns ``[values, lengths or None]`` per result."""
    main, start = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, start), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        fetches = build()
        place = fluid.CPUPlace()
        exe = fluid.Executor(place)
        exe.run(start)
        for name, value in (values or {}).items():
            fluid.global_scope().find_var(name).get_tensor().set(value, place)
        done = exe.run(main, feed=feed, fetch_list=list(fetches), return_numpy=False)
        return [[np.array(t).tolist(), t.recursive_sequence_lengths() or None] for t in done]


def lod(fluid, rows, lengths):
    """Rows as a tensor with one level of lengths."""
    return fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())


def _draw(seed):
    return np.random.RandomState(seed)


# ------------------------------------------------------------------------------------------------------------------ padded
def crf_padded(fluid):
    rng = _draw(1)
    feed = {
        "x": rng.randn(4, 5, 3).astype("float32"),
        "y": rng.randint(0, 3, (4, 5)).astype("int64"),
        "n": np.array([[5], [1], [0], [3]], "int64"),
    }

    def build():
        L = fluid.layers
        x, y = fluid.data("x", [None, 5, 3], "float32"), fluid.data("y", [None, 5], "int64")
        n = fluid.data("n", [None, 1], "int64")
        x.stop_gradient = False
        attr = fluid.ParamAttr(name="crfw")
        loss = L.linear_chain_crf(x, y, param_attr=attr, length=n)
        path = L.crf_decoding(x, attr, length=n)
        equal = L.crf_decoding(x, attr, label=y, length=n)
        weight = fluid.default_main_program().global_block().var("crfw")
        grads = fluid.gradients([L.reduce_sum(loss)], [x, weight])
        return [loss, path, equal, *grads, *list(L.chunk_eval(path, y, "IOB", 1, seq_length=n))]

    return run(fluid, build, feed, {"crfw": rng.randn(5, 3).astype("float32")})


def crf_ties(fluid):
    """Paths with equal scores."""
    rng = _draw(17)
    feed = {"x": rng.randint(0, 2, (8, 5, 3)).astype("float32"), "n": rng.randint(1, 6, (8, 1)).astype("int64")}

    def build():
        x, n = fluid.data("x", [None, 5, 3], "float32"), fluid.data("n", [None, 1], "int64")
        attr = fluid.ParamAttr(name="crfw")
        fluid.layers.create_parameter([5, 3], "float32", "crfw", attr)
        return [fluid.layers.crf_decoding(x, attr, length=n)]

    return [run(fluid, build, feed, {"crfw": rng.randint(0, m, (5, 3)).astype("float32")}) for m in (1, 2)]


def ctc_padded(fluid, by_times=False):
    rng = _draw(2)
    feed = {
        "x": rng.randn(6, 4, 5).astype("float32"),
        "y": np.array([[1, 1, 3], [4, 2, 2], [3, 1, 2], [2, 2, 2]], "int32"),
        "n": np.array([6, 5, 2, 4], "int64"),
        "m": np.array([2, 3, 3, 3], "int64"),
    }

    def build():
        L = fluid.layers
        x, y = fluid.data("x", [6, None, 5], "float32"), fluid.data("y", [None, 3], "int32")
        n, m = fluid.data("n", [None], "int64"), fluid.data("m", [None], "int64")
        x.stop_gradient = False
        loss = L.warpctc(x, y, 0, by_times, n, m)
        return [loss, *fluid.gradients([L.reduce_sum(loss)], [x])]

    return run(fluid, build, feed)


def ctc_by_times(fluid):
    return ctc_padded(fluid, True)


def greedy_padded(fluid):
    feed = {"x": _draw(3).rand(3, 7, 4).astype("float32"), "n": np.array([[7], [4], [1]], "int64")}

    def build():
        x, n = fluid.data("x", [None, 7, 4], "float32"), fluid.data("n", [None, 1], "int64")
        return fluid.layers.ctc_greedy_decoder(x, 0, n, 9)

    return run(fluid, build, feed)


def edit_distance_padded(fluid):
    rng = _draw(4)
    feed = {
        "x": rng.randint(0, 4, (5, 6)).astype("int64"),
        "y": rng.randint(0, 4, (5, 7)).astype("int64"),
        "n": np.array([6, 2, 1, 4, 6], "int64"),
        "m": np.array([7, 1, 4, 4, 3], "int64"),
    }

    def build():
        L = fluid.layers
        x, y = fluid.data("x", [None, 6], "int64"), fluid.data("y", [None, 7], "int64")
        n, m = fluid.data("n", [None], "int64"), fluid.data("m", [None], "int64")
        return [*list(L.edit_distance(x, y, True, None, n, m)), L.edit_distance(x, y, False, None, n, m)[0]]

    return run(fluid, build, feed)


def masks(fluid):
    feed = {"x": np.array([[3, 1], [0, 2]], "int64")}

    def build():
        L = fluid.layers
        x = fluid.data("x", [None, 2], "int64")
        return [L.sequence_mask(x), L.sequence_mask(x, 2, "float32"), L.sequence_mask(x, 5, "int32")]

    return run(fluid, build, feed)


def trees(fluid):
    rng = _draw(5)
    feed = {
        "ids": rng.randint(0, 9, (5, 2, 3)).astype("int64"),
        "parents": rng.randint(0, 3, (5, 2, 3)).astype("int64"),
    }

    def build():
        ids, parents = fluid.data("ids", [None, 2, 3], "int64"), fluid.data("parents", [None, 2, 3], "int64")
        return [fluid.layers.gather_tree(ids, parents)]

    return run(fluid, build, feed)


def _chunks(fluid, scheme, excluded, padded):
    types, positions = SCHEMES[scheme]
    rng = _draw(6 + len(scheme))
    wanted = rng.randint(0, types * positions + 1, (6, 12))
    found = np.where(rng.rand(6, 12) < 0.75, wanted, rng.randint(0, types * positions + 1, (6, 12)))
    lengths = [12, 7, 1, 10, 12, 5]

    def build_padded():
        x, y = fluid.data("x", [None, 12], "int64"), fluid.data("y", [None, 12], "int64")
        n = fluid.data("n", [None], "int64")
        return fluid.layers.chunk_eval(x, y, scheme, types, excluded, n)

    def build():
        x, y = fluid.data("x", [None, 1], "int64", lod_level=1), fluid.data("y", [None, 1], "int64", lod_level=1)
        return fluid.layers.chunk_eval(x, y, scheme, types, excluded)

    if padded:
        return run(fluid, build_padded, {"x": found, "y": wanted, "n": np.array(lengths, "int64")})

    def rows(tags):
        return lod(fluid, np.concatenate([tags[i, :n] for i, n in enumerate(lengths)])[:, None], lengths)

    return run(fluid, build, {"x": rows(found), "y": rows(wanted)})


def chunks_padded(fluid):
    return [_chunks(fluid, scheme, excluded, True) for scheme in sorted(SCHEMES) for excluded in (None, [1])]


# -------------------------------------------------------------------------------------------------------------------- LoD
def crf_lod(fluid):
    rng = _draw(11)
    feed = {
        "x": lod(fluid, rng.randn(9, 3).astype("float32"), [3, 1, 5]),
        "y": lod(fluid, rng.randint(0, 3, (9, 1)).astype("int64"), [3, 1, 5]),
    }

    def build():
        L = fluid.layers
        x, y = fluid.data("x", [None, 3], "float32", lod_level=1), fluid.data("y", [None, 1], "int64", lod_level=1)
        x.stop_gradient = False
        attr = fluid.ParamAttr(name="crfw")
        loss = L.linear_chain_crf(x, y, param_attr=attr)
        path = L.crf_decoding(x, attr)
        weight = fluid.default_main_program().global_block().var("crfw")
        grads = fluid.gradients([L.reduce_sum(loss)], [x, weight])
        return [loss, path, L.crf_decoding(x, attr, label=y), *grads, *list(L.chunk_eval(path, y, "IOB", 1))]

    return run(fluid, build, feed, {"crfw": rng.randn(5, 3).astype("float32")})


def ctc_lod(fluid):
    rng = _draw(12)
    feed = {
        "x": lod(fluid, rng.randn(11, 4).astype("float32"), [5, 2, 4]),
        "y": lod(fluid, np.array([[1], [1], [2], [3], [1], [3]], "int32"), [2, 1, 3]),
    }

    def build():
        L = fluid.layers
        x, y = fluid.data("x", [None, 4], "float32", lod_level=1), fluid.data("y", [None, 1], "int32", lod_level=1)
        x.stop_gradient = False
        loss = L.warpctc(x, y, 0)
        decoded = L.ctc_greedy_decoder(x, 0)
        distance, count = L.edit_distance(decoded, L.cast(y, "int64"), normalized=False)
        return [loss, decoded, distance, count, *fluid.gradients([L.reduce_sum(loss)], [x])]

    return run(fluid, build, feed)


def edit_distance_lod(fluid):
    rng = _draw(13)
    feed = {
        "x": lod(fluid, rng.randint(0, 5, (12, 1)).astype("int64"), [3, 4, 1, 4]),
        "y": lod(fluid, rng.randint(0, 5, (10, 1)).astype("int64"), [2, 4, 3, 1]),
    }

    def build():
        L = fluid.layers
        x, y = fluid.data("x", [None, 1], "int64", lod_level=1), fluid.data("y", [None, 1], "int64", lod_level=1)
        return [L.edit_distance(x, y)[0], L.edit_distance(x, y, False)[0], L.edit_distance(x, y, False, [1, 3])[0]]

    return run(fluid, build, feed)


def chunks_lod(fluid):
    return [_chunks(fluid, scheme, excluded, False) for scheme in sorted(SCHEMES) for excluded in (None, [1])]


# ------------------------------------------------------------------------------------------------------------- DynamicRNN
def dynamic_rnn(fluid):
    """Memories that begin with rows and with a number, in the order of the sequences and in that of their lengths."""
    rng = _draw(16)
    feed = {
        "x": lod(fluid, rng.randn(9, 2).astype("float32"), [2, 4, 1, 2]),
        "init": rng.randn(4, 2).astype("float32"),
    }

    def build():
        L = fluid.layers
        x, init = fluid.data("x", [None, 2], "float32", lod_level=1), fluid.data("init", [None, 2], "float32")
        x.stop_gradient = init.stop_gradient = False
        rnn = L.DynamicRNN()
        with rnn.block():
            now = rnn.step_input(x)
            fixed = rnn.static_input(init)
            first, second = rnn.memory(init=init), rnn.memory(init=init, need_reorder=True)
            third = rnn.memory(shape=[2], value=0.5)
            new = L.tanh(L.elementwise_add(now, L.elementwise_add(L.scale(first, 0.5), L.scale(third, 2.0))))
            rnn.update_memory(first, new)
            rnn.update_memory(second, L.elementwise_mul(second, now))
            rnn.update_memory(third, L.elementwise_sub(third, fixed))
            rnn.output(new, second)
        one, two = rnn()
        loss = L.reduce_sum(L.elementwise_mul(one, two))
        return [one, two, L.sequence_last_step(one), *fluid.gradients([loss], [x, init])]

    return run(fluid, build, feed)


def attention(fluid):
    """A decoder that looks at all rows of a source in each step, as 1.x programs write it."""
    rng = _draw(17)
    feed = {
        "source": lod(fluid, rng.randn(8, 3).astype("float32"), [3, 1, 4]),
        "target": lod(fluid, rng.randn(6, 3).astype("float32"), [2, 3, 1]),
    }

    def build():
        L = fluid.layers
        source, target = (fluid.data(n, [None, 3], "float32", lod_level=1) for n in ("source", "target"))
        source.stop_gradient = False
        start = L.sequence_pool(source, "last")
        rnn = L.DynamicRNN()
        with rnn.block():
            now = rnn.step_input(target)
            rows = rnn.static_input(source)
            state = rnn.memory(init=start, need_reorder=True)
            spread = L.sequence_expand(x=state, y=rows)
            fits = L.fc(
                L.elementwise_mul(rows, spread), size=1, bias_attr=False, param_attr=fluid.ParamAttr(name="att")
            )
            weights = L.sequence_softmax(fits)
            seen = L.sequence_pool(L.elementwise_mul(rows, L.reshape(weights, [-1]), axis=0), "sum")
            new = L.tanh(L.elementwise_add(now, seen))
            rnn.update_memory(state, new)
            rnn.output(new)
        out = rnn()
        return [out, *fluid.gradients([L.reduce_sum(L.square(out))], [source])]

    return run(fluid, build, feed, {"att": rng.randn(3, 1).astype("float32")})


# ------------------------------------------------------------------------------------------------------------ beam search
def _step(fluid, words, best, lengths, ids, scores, accumulated=True, beam=2):
    def build():
        def rows(name, width, dtype):
            return fluid.data(name, [None, width], dtype, lod_level=2)

        last, score = rows("last", 1, "int64"), rows("score", 1, "float32")
        candidates = None if ids is None else rows("ids", ids.shape[1], "int64")
        probabilities = rows("scores", scores.shape[1], "float32")
        return fluid.layers.beam_search(
            last, score, candidates, probabilities, beam, 1, is_accumulated=accumulated, return_parent_idx=True
        )

    def tensor(value):
        return fluid.create_lod_tensor(value, lengths, fluid.CPUPlace())

    columns = np.array(words, "int64")[:, None], np.array(best, "float32")[:, None]
    feed = {"last": tensor(columns[0]), "score": tensor(columns[1]), "scores": tensor(scores)}
    if ids is not None:
        feed["ids"] = tensor(ids)
    return run(fluid, build, feed)


def beam_steps(fluid):
    rng = _draw(14)
    ids, scores = rng.randint(1, 9, (4, 3)).astype("int64"), rng.rand(4, 3).astype("float32")
    lengths = [[2, 2], [1, 1, 1, 1]]
    return [
        _step(fluid, [2, 3, 4, 5], [0, 0, 0, 0], lengths, ids, scores),
        _step(fluid, [2, 1, 4, 5], [0, 0.85, 0, 0], lengths, ids, scores),
        _step(fluid, [1, 1, 4, 5], [0.4, 0.85, 0, 0], lengths, ids, scores),
        _step(fluid, [1, 1, 1, 1], [0.4, 0.85, 0.1, 0.2], lengths, ids, scores),
        _step(fluid, [2, 3, 4, 5], [0, 0, 0, 0], [[1, 3], [1, 1, 1, 1]], ids, scores),
        _step(fluid, [2, 3, 4, 5], [-1, -2, 0, -0.5], lengths, None, scores, False),
        _step(fluid, [2, 3, 4, 5], [-1, -2, 0, -0.5], lengths, ids, scores, False),
        _step(fluid, [2, 3], [0, 0], [[1, 1], [1, 1]], ids[:2], scores[:2]),
    ]


def beam_ties(fluid):
    """Candidates with equal scores: within a row, in several rows, and beside a row that has ended."""
    rng = _draw(16)
    found = []
    for beam in (1, 2, 3, 4):
        for most in (1, 2, 3):
            words, best = rng.randint(1, 4, 6).tolist(), rng.randint(0, most, 6).tolist()
            ids, scores = rng.randint(1, 9, (6, 5)).astype("int64"), rng.randint(0, most, (6, 5)).astype("float32")
            found.append(_step(fluid, words, best, [[3, 1, 2], [1] * 6], ids, scores, beam=beam))
    return found


def decoded_beams(fluid):
    """The translation of two states by a decoder that keeps three sentences of each, written as in 1.x."""
    return _decoded(fluid, 7, 3, 2, 6)


def decoded_until_all_end(fluid):
    return _decoded(fluid, 3, 2, 1, 12)


def _decoded(fluid, size, beam, end, most):
    rng = _draw(15)
    values = {
        "table": rng.randn(size, 4), "by_state": rng.randn(4, 4), "by_word": rng.randn(4, 4), "bias": rng.randn(4),
        "out_w": rng.randn(4, size), "out_b": rng.randn(size) * 2,
    }  # fmt: skip

    if most > 10:
        values["out_b"][end] += 3

    def attr(name):
        return fluid.ParamAttr(name=name)

    def build():
        L = fluid.layers
        init = fluid.data("init", [None, 4], "float32")
        first, zero = (
            fluid.data("first", [None, 1], "int64", lod_level=2),
            fluid.data("zero", [None, 1], "float32", lod_level=2),
        )
        counter = L.zeros(shape=[1], dtype="int64", force_cpu=True)
        limit = L.fill_constant(shape=[1], dtype="int64", value=most)
        states = L.create_array("float32")
        L.array_write(init, array=states, i=counter)
        words, scores = L.create_array("int64"), L.create_array("float32")
        L.array_write(first, array=words, i=counter)
        L.array_write(zero, array=scores, i=counter)
        going = L.less_than(x=counter, y=limit)
        loop = L.While(cond=going)
        with loop.block():
            last = L.array_read(array=words, i=counter)
            before = L.array_read(array=states, i=counter)
            score = L.array_read(array=scores, i=counter)
            expanded = L.sequence_expand(before, score)
            emb = L.embedding(last, size=[size, 4], param_attr=attr("table"))
            state = L.fc(
                [expanded, emb],
                size=4,
                act="tanh",
                param_attr=[attr("by_state"), attr("by_word")],
                bias_attr=attr("bias"),
            )
            with_lod = L.lod_reset(x=state, y=score)
            p = L.fc(with_lod, size=size, act="softmax", param_attr=attr("out_w"), bias_attr=attr("out_b"))
            best, ids = L.topk(p, k=beam)
            total = L.elementwise_add(x=L.log(best), y=L.reshape(score, shape=[-1]), axis=0)
            chosen, their_scores = L.beam_search(last, score, ids, total, beam, end_id=end, level=0)
            L.increment(x=counter, value=1, in_place=True)
            L.array_write(state, array=states, i=counter)
            L.array_write(chosen, array=words, i=counter)
            L.array_write(their_scores, array=scores, i=counter)
            L.logical_and(x=L.less_than(x=counter, y=limit), y=L.logical_not(L.is_empty(x=chosen)), out=going)
        sentences, their_scores = L.beam_search_decode(ids=words, scores=scores, beam_size=beam, end_id=end)
        return [sentences, their_scores, counter]

    def rows(value):
        return fluid.create_lod_tensor(value, [[1, 1], [1, 1]], fluid.CPUPlace())

    feed = {
        "init": rng.randn(2, 4).astype("float32"), "first": rows(np.zeros((2, 1), "int64")),
        "zero": rows(np.zeros((2, 1), "float32")),
    }  # fmt: skip
    return run(fluid, build, feed, {name: value.astype("float32") for name, value in values.items()})


PADDED = (
    crf_padded,
    crf_ties,
    ctc_padded,
    ctc_by_times,
    greedy_padded,
    edit_distance_padded,
    masks,
    trees,
    chunks_padded,
)
LOD = (crf_lod, ctc_lod, edit_distance_lod, chunks_lod, dynamic_rnn, attention, beam_steps, beam_ties)
DECODED = (decoded_beams, decoded_until_all_end)
