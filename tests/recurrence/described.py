"""Small 1.x programs with recurrences, each built from the module ``fluid`` that it is given: Paddle's or this project's.

Nothing is imported from either, and the text suits Python 3.7, because Paddle 1.8.5 runs it too.
"""

import numpy as np


def values(shape, at):
    """Deterministic numbers of a shape, others for each ``at``."""
    count = int(np.prod(shape))
    return (0.6 * np.sin(np.arange(count) * 0.7 + at)).astype("float32").reshape(shape)


def gru_unit(fluid, origin_mode=False, bias=True):
    x = fluid.data("x", [2, 9])
    h = fluid.data("h", [2, 3])
    x.stop_gradient = h.stop_gradient = False
    return list(fluid.layers.gru_unit(x, h, 9, bias_attr=None if bias else False, origin_mode=origin_mode))


def lstm_unit(fluid):
    x, h, c = fluid.data("x", [2, 4]), fluid.data("h", [2, 3]), fluid.data("c", [2, 3])
    x.stop_gradient = h.stop_gradient = c.stop_gradient = False
    return list(fluid.layers.lstm_unit(x, h, c, forget_bias=0.5))


def static_rnn(fluid):
    x = fluid.data("x", [4, 2, 3])
    x.stop_gradient = False
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        state = rnn.memory(shape=[-1, 5], batch_ref=now)
        new = fluid.layers.fc([now, state], 5, act="tanh")
        rnn.update_memory(state, new)
        rnn.step_output(new)
    return [rnn()]


def rnn_lstm_cell(fluid, lengths=False, reverse=False):
    x = fluid.data("x", [2, 4, 3])
    x.stop_gradient = False
    cell = fluid.layers.LSTMCell(hidden_size=5)
    length = fluid.layers.assign(np.array([4, 2], "int32")) if lengths else None
    out, (h, c) = fluid.layers.rnn(cell, x, sequence_length=length, is_reverse=reverse)
    return [out, h, c]


def rnn_gru_cell(fluid):
    x = fluid.data("x", [2, 4, 3])
    x.stop_gradient = False
    out, h = fluid.layers.rnn(fluid.layers.GRUCell(hidden_size=5), x, time_major=False)
    return [out, h]


def basic_lstm(fluid, both=False):
    x = fluid.data("x", [2, 4, 3])
    x.stop_gradient = False
    out, h, c = fluid.contrib.layers.basic_lstm(x, None, None, 5, num_layers=2, bidirectional=both)
    return [out, h, c]


def basic_gru(fluid, lengths=False):
    x = fluid.data("x", [2, 4, 3])
    x.stop_gradient = False
    length = fluid.layers.assign(np.array([4, 2], "int32")) if lengths else None
    out, h = fluid.contrib.layers.basic_gru(x, None, 5, num_layers=2, sequence_length=length)
    return [out, h]


def arrays_in_while(fluid):
    L = fluid.layers
    x = fluid.data("x", [4, 2, 3])
    x.stop_gradient = False
    i, n = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 4)
    start = L.fc(L.reduce_sum(x, dim=0), 3)
    states, outs = L.array_write(start, i), L.create_array("float32")
    going = L.less_than(i, n)
    loop = L.While(going)
    with loop.block():
        state = L.array_read(states, i)
        new = L.fc(state, 3, act="tanh", param_attr="w_loop", bias_attr=False)
        L.array_write(new, i, outs)
        L.increment(i, 1, in_place=True)
        L.array_write(new, i, states)
        L.less_than(i, n, cond=going)
    joined, sizes = L.tensor_array_to_tensor(outs, axis=1)
    last = L.array_read(outs, L.fill_constant([1], "int64", 3))
    return [joined, sizes, L.array_length(outs), last]


def if_else(fluid):
    L = fluid.layers
    x = fluid.data("x", [4, 3])
    x.stop_gradient = False
    limit = L.fill_constant_batch_size_like(x, [-1, 1], "float32", 0.0)
    large = L.less_than(limit, L.reduce_sum(x, dim=1, keep_dim=True))
    branch = L.IfElse(large)
    with branch.true_block():
        branch.output(L.fc(branch.input(x), 2), L.scale(branch.input(x), 10.0))
    with branch.false_block():
        branch.output(L.fc(branch.input(x), 2), L.scale(branch.input(x), -1.0))
    return list(branch())


def greedy(fluid, helper):
    """Decodes with a cell from fixed values, at most four steps."""
    L = fluid.layers
    cell = L.GRUCell(hidden_size=4)
    start = fluid.data("h", [None, 4])

    def embed(ids):
        return fluid.embedding(ids, [6, 3], param_attr="words")

    def output(x):
        return L.fc(x, 6, num_flatten_dims=len(x.shape) - 1, param_attr="to_words", bias_attr=False)

    if helper == "training":
        x, n = fluid.data("x", [2, 4, 3]), L.assign(np.array([4, 2], "int32"))
        decoder = L.BasicDecoder(cell, L.TrainingHelper(x, n), output)
        outs, state, lengths = L.dynamic_decode(decoder, inits=start, return_length=True)
        return [outs.cell_outputs, outs.sample_ids, state, lengths]
    if helper == "greedy":
        first = L.fill_constant([2], "int64", 0)
        decoder = L.BasicDecoder(cell, L.GreedyEmbeddingHelper(embed, first, 1), output)
        outs, state, lengths = L.dynamic_decode(decoder, inits=start, max_step_num=4, return_length=True)
        return [outs.cell_outputs, outs.sample_ids, state, lengths]
    decoder = L.BeamSearchDecoder(cell, 0, 1, 3, embed, output)
    outs, state, lengths = L.dynamic_decode(decoder, inits=start, max_step_num=4, return_length=True)
    return [outs, lengths]


def programs(fluid):
    """Name -> a function that builds the results."""
    return {
        "gru_unit": lambda: gru_unit(fluid),
        "gru_unit origin": lambda: gru_unit(fluid, origin_mode=True, bias=False),
        "lstm_unit": lambda: lstm_unit(fluid),
        "static_rnn": lambda: static_rnn(fluid),
        "rnn LSTMCell": lambda: rnn_lstm_cell(fluid),
        "rnn LSTMCell lengths": lambda: rnn_lstm_cell(fluid, lengths=True),
        "rnn LSTMCell reverse": lambda: rnn_lstm_cell(fluid, reverse=True),
        "rnn GRUCell": lambda: rnn_gru_cell(fluid),
        "basic_lstm": lambda: basic_lstm(fluid),
        "basic_lstm both": lambda: basic_lstm(fluid, both=True),
        "basic_gru": lambda: basic_gru(fluid),
        "basic_gru lengths": lambda: basic_gru(fluid, lengths=True),
        "arrays in While": lambda: arrays_in_while(fluid),
        "IfElse": lambda: if_else(fluid),
        "decode training": lambda: greedy(fluid, "training"),
        "decode greedy": lambda: greedy(fluid, "greedy"),
        "decode beam": lambda: greedy(fluid, "beam"),
    }


def run(fluid, name):
    """Builds and runs one program; returns parameter names and shapes, results, and gradients of inputs and parameters."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        results = programs(fluid)[name]()
        block = main.global_block()
        inputs = sorted(n for n in ("x", "h", "c") if block.has_var(n))
        parameters = main.all_parameters()
        seeds = [r for r in results if r.dtype == parameters[0].dtype] if parameters else []
        wanted = [p.name for p in parameters] + inputs
        gradients = []
        if name.startswith("gru_unit"):
            # Paddle stops gradients at the other two results.
            seeds = seeds[:1]
        if not name.startswith("decode"):
            loss = None
            for at, one in enumerate(seeds):
                part = fluid.layers.reduce_sum(fluid.layers.square(one)) * float(at + 1)
                loss = part if loss is None else loss + part
            found = fluid.gradients([loss], [block.var(n) for n in wanted])
            gradients = [(n, g) for n, g in zip(wanted, found) if g is not None]  # noqa: B905
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        scope = fluid.global_scope()
        for at, p in enumerate(parameters):
            scope.find_var(p.name).get_tensor().set(values(p.shape, at), fluid.CPUPlace())
        feed = {n: values([max(size, 2) for size in block.var(n).shape], 10 + at) for at, n in enumerate(inputs)}
        fetched = exe.run(main, feed=feed, fetch_list=list(results) + [g for _, g in gradients])
        fetched = [np.asarray(one) for one in fetched]
    count = len(results)
    return {
        "parameters": [[p.name, list(p.shape)] for p in parameters],
        "results": [one.tolist() for one in fetched[:count]],
        "gradients": dict(zip([n for n, _ in gradients], [one.tolist() for one in fetched[count:]])),  # noqa: B905
    }
