"""Calls of sequence layers that Paddle 1.8.5 and tstatic answer alike; the file runs on Python 3.7, too."""

from __future__ import annotations

import numpy as np


def ramp(*shape):
    """Numbers that are all different, of both signs, near 1."""
    count = int(np.prod(shape))
    return (((np.arange(count) * 7919) % 1009) / 504.5 - 1.0).astype("float32").reshape(shape)


def ids(count, high):
    """Numbers of words."""
    return ((np.arange(count) * 7919) % 1009 % high).astype("int64").reshape(-1, 1)


X = (ramp(6, 3), [[2, 0, 3, 1]])
NESTED = (ramp(6, 3), [[2, 1], [2, 0, 4]])
WORDS = (ids(6, 9), [[2, 1, 3]])


def attr(fluid, name, *shape):
    """A parameter with numbers of its own."""
    values = ramp(*shape) * 0.5
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(values))


def _lstm(fluid, v, peepholes=False, **more):
    bias = 28 if peepholes else 16
    return list(
        fluid.layers.dynamic_lstm(
            v["x"],
            16,
            use_peepholes=peepholes,
            param_attr=attr(fluid, "w", 4, 16),
            bias_attr=attr(fluid, "b", 1, bias),
            **more,
        )
    )


def _gru(fluid, v, **more):
    return [
        fluid.layers.dynamic_gru(
            v["x"], 4, param_attr=attr(fluid, "w", 4, 12), bias_attr=attr(fluid, "b", 1, 12), **more
        )
    ]


def _lstmp(fluid, v, peepholes=True, **more):
    bias = 28 if peepholes else 16
    return list(
        fluid.layers.dynamic_lstmp(
            v["x"],
            16,
            3,
            use_peepholes=peepholes,
            param_attr=fluid.ParamAttr(initializer=fluid.initializer.Constant(0.1)),
            bias_attr=attr(fluid, "b", 1, bias),
            **more,
        )
    )


LSTM_X = (ramp(7, 16), [[2, 4, 1]])
GRU_X = (ramp(7, 12), [[2, 4, 1]])
STATE = (ramp(3, 4), None)

# Name -> (feeds, what is built of them, whether gradients are compared).
CASES = {
    **{
        f"sequence_pool {kind}": ({"x": X}, lambda f, v, kind=kind: [f.layers.sequence_pool(v["x"], kind, pad_value=0.5)], True)
        for kind in ("sum", "average", "sqrt", "max", "first", "last")
    },
    "sequence_pool of two levels": ({"x": NESTED}, lambda f, v: [f.layers.sequence_pool(v["x"], "average")], True),
    "sequence_pool twice": (
        {"x": NESTED}, lambda f, v: [f.layers.sequence_pool(f.layers.sequence_pool(v["x"], "sum"), "max")], True,
    ),
    "sequence_first_step": ({"x": X}, lambda f, v: [f.layers.sequence_first_step(v["x"])], True),
    "sequence_last_step": ({"x": X}, lambda f, v: [f.layers.sequence_last_step(v["x"])], True),
    "sequence_softmax": (
        {"x": (ramp(6, 1), [[2, 1, 3]])}, lambda f, v: [f.layers.sequence_softmax(v["x"])], True,
    ),
    "sequence_reverse": ({"x": X}, lambda f, v: [f.layers.sequence_reverse(v["x"])], True),
    "concat of rows": (
        {"x": X, "y": (ramp(5, 3) * 2, [[1, 2, 0, 2]])}, lambda f, v: [f.layers.concat([v["x"], v["y"], v["x"]], axis=0)], True,
    ),
    "concat of rows of two levels, pooled": (
        {"x": NESTED, "y": (ramp(3, 3) * 2, [[1], [3]])},
        lambda f, v: [f.layers.sequence_pool(f.layers.concat([v["x"], v["y"]]), "average")], True,
    ),
    "sequence_concat": (
        {"x": X, "y": (ramp(5, 3) * 2, [[1, 2, 0, 2]])}, lambda f, v: [f.layers.sequence_concat([v["x"], v["y"], v["x"]])], True,
    ),
    "sequence_expand rows": (
        {"x": (ramp(3, 2), None), "y": (ramp(5, 1), [[2, 0, 3]])}, lambda f, v: [f.layers.sequence_expand(v["x"], v["y"])], True,
    ),
    "sequence_expand sequences": (
        {"x": (ramp(4, 2), [[2, 2]]), "y": (ramp(4, 1), [[2, 2], [3, 0, 1, 0]])},
        lambda f, v: [f.layers.sequence_expand(v["x"], v["y"], ref_level=0)], True,
    ),
    "sequence_expand inner level": (
        {"x": (ramp(3, 2), None), "y": (ramp(5, 1), [[1, 2], [2, 0, 3]])},
        lambda f, v: [f.layers.sequence_expand(v["x"], v["y"], ref_level=-1)], True,
    ),
    "sequence_expand sequences inner": (
        {"x": (ramp(4, 2), [[1, 2, 1]]), "y": (ramp(5, 1), [[1, 2], [2, 0, 3]])},
        lambda f, v: [f.layers.sequence_expand(v["x"], v["y"], ref_level=1)], True,
    ),
    "sequence_expand_as": (
        {"x": (ramp(3, 2), None), "y": (ramp(5, 1), [[2, 0, 3]])}, lambda f, v: [f.layers.sequence_expand_as(v["x"], v["y"])], True,
    ),
    "sequence_pad": (
        {"x": (ramp(6, 3), [[2, 1, 3]])},
        lambda f, v: list(f.layers.sequence_pad(v["x"], f.layers.fill_constant([1], "float32", 0.25))), True,
    ),
    "sequence_pad with a length": (
        {"x": (ramp(6, 3), [[2, 1, 3]])},
        lambda f, v: list(f.layers.sequence_pad(v["x"], f.layers.assign(np.array([1, 2, 3], "float32")), maxlen=4)), True,
    ),
    "sequence_unpad": (
        {"x": (ramp(3, 4, 2), None), "n": (np.array([3, 1, 4], "int64"), None)},
        lambda f, v: [f.layers.sequence_unpad(v["x"], v["n"])], True,
    ),
    "sequence_reshape": ({"x": (ramp(6, 4), [[2, 1, 3]])}, lambda f, v: [f.layers.sequence_reshape(v["x"], 2)], True),
    "sequence_reshape to wider rows": (
        {"x": (ramp(6, 2), [[2, 4]])}, lambda f, v: [f.layers.sequence_reshape(v["x"], 4)], True,
    ),
    "sequence_slice": (
        {
            "x": (ramp(7, 2), [[3, 1, 3]]), "o": (np.array([[1], [0], [0]], "int64"), None),
            "n": (np.array([[2], [1], [2]], "int64"), None),
        },
        lambda f, v: [f.layers.sequence_slice(v["x"], v["o"], v["n"])], True,
    ),
    "sequence_enumerate": ({"x": WORDS}, lambda f, v: [f.layers.sequence_enumerate(v["x"], 2, pad_value=7)], False),
    "sequence_enumerate wide": ({"x": WORDS}, lambda f, v: [f.layers.sequence_enumerate(v["x"], 4)], False),
    "sequence_scatter": (
        {
            "x": (ramp(3, 6), None), "i": (np.array([[1], [2], [5], [4], [0], [4]], "int64"), [[3, 1, 2]]),
            "u": (ramp(6, 1), [[3, 1, 2]]),
        },
        lambda f, v: [f.layers.sequence_scatter(v["x"], v["i"], v["u"])], True,
    ),
    "sequence_conv": (
        {"x": (ramp(6, 3), [[2, 1, 3]])},
        lambda f, v: [f.layers.sequence_conv(v["x"], 4, 3, param_attr=attr(f, "w", 9, 4), bias_attr=attr(f, "b", 4), act="tanh")],
        True,
    ),
    "sequence_conv from the row itself": (
        {"x": (ramp(6, 3), [[2, 1, 3]])},
        lambda f, v: [f.layers.sequence_conv(v["x"], 2, 4, padding_start=0, param_attr=attr(f, "w", 12, 2), bias_attr=False)],
        True,
    ),
    "row_conv": ({"x": (ramp(6, 3), [[2, 1, 3]])}, lambda f, v: [f.layers.row_conv(v["x"], 2, attr(f, "w", 3, 3))], True),
    "row_conv of a batch": ({"x": (ramp(2, 4, 3), None)}, lambda f, v: [f.layers.row_conv(v["x"], 2, attr(f, "w", 3, 3))], True),
    "lod_reset": ({"x": X}, lambda f, v: [f.layers.lod_reset(v["x"], target_lod=[0, 4, 6])], True),
    "lod_reset to that of another": (
        {"x": X, "y": (ramp(6, 1), [[1, 5]])}, lambda f, v: [f.layers.lod_reset(v["x"], v["y"])], True,
    ),
    "lod_reset by values": (
        {"x": X, "y": (np.array([0, 1, 6], "int32"), None)}, lambda f, v: [f.layers.lod_reset(v["x"], v["y"])], True,
    ),
    "lod_append": (
        {"x": (ramp(6, 3), [[2, 4]])}, lambda f, v: [f.layers.lod_append(v["x"], [0, 1, 2, 3, 4, 5, 6])], False,
    ),
    "im2sequence": (
        {"x": (ramp(2, 2, 4, 3), None)},
        lambda f, v: [f.layers.im2sequence(v["x"], filter_size=[2, 2], stride=[1, 1], padding=[0, 1, 0, 0])], True,
    ),
    "sequence_conv_pool": (
        {"x": (ramp(6, 3), [[2, 1, 3]])},
        lambda f, v: [f.nets.sequence_conv_pool(v["x"], 4, 3, param_attr=attr(f, "w", 9, 4), bias_attr=attr(f, "b", 4))], True,
    ),
    "dynamic_lstm": ({"x": LSTM_X}, _lstm, True),
    "dynamic_lstm backwards": ({"x": LSTM_X}, lambda f, v: _lstm(f, v, is_reverse=True), True),
    "dynamic_lstm with peepholes": ({"x": LSTM_X}, lambda f, v: _lstm(f, v, peepholes=True), True),
    "dynamic_lstm with states": (
        {"x": LSTM_X, "h": STATE, "c": STATE}, lambda f, v: _lstm(f, v, h_0=v["h"], c_0=v["c"], peepholes=True), True,
    ),
    "dynamic_lstm with relu": (
        {"x": LSTM_X},
        lambda f, v: _lstm(f, v, gate_activation="sigmoid", cell_activation="relu", candidate_activation="relu"), True,
    ),
    "dynamic_gru": ({"x": GRU_X}, _gru, True),
    "dynamic_gru backwards": ({"x": GRU_X}, lambda f, v: _gru(f, v, is_reverse=True), True),
    "dynamic_gru with a state": ({"x": GRU_X, "h": STATE}, lambda f, v: _gru(f, v, h_0=v["h"]), True),
    "dynamic_gru as first written": ({"x": GRU_X}, lambda f, v: _gru(f, v, origin_mode=True, candidate_activation="relu"), True),
    "dynamic_lstmp": ({"x": LSTM_X}, _lstmp, True),
    "dynamic_lstmp with clipped cells": ({"x": LSTM_X}, lambda f, v: _lstmp(f, v, cell_clip=0.2), True),
    "dynamic_lstmp with clipped results": (
        {"x": LSTM_X}, lambda f, v: _lstmp(f, v, proj_activation="identity", proj_clip=0.02), True,
    ),
    "dynamic_lstmp without peepholes": (
        {"x": LSTM_X}, lambda f, v: _lstmp(f, v, peepholes=False, proj_activation="identity", is_reverse=True), True,
    ),
    "fill_constant_batch_size_like": (
        {"x": X}, lambda f, v: [f.layers.fill_constant_batch_size_like(v["x"], [-1, 2], "float32", 3.0)], False,
    ),
    "fc over dynamic_lstm": (
        {"x": LSTM_X},
        lambda f, v: [f.layers.sequence_pool(f.layers.fc(_lstm(f, v)[0], 5, param_attr=attr(f, "p", 4, 5)), "max")], True,
    ),
}  # fmt: skip


def run(fluid, name):
    """Builds and runs a case; returns the results with their LoD, and the gradients of the sum of squares of the first."""
    feeds, build, differentiated = CASES[name]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        given = {}
        for key, (array, lengths) in feeds.items():
            shape = [None, *array.shape[1:]]
            given[key] = fluid.data(key, shape, str(array.dtype), lod_level=len(lengths or ()))
            given[key].stop_gradient = array.dtype != np.float32
        outs = build(fluid, given)
        wanted = []
        if differentiated:
            # Of the first result only: Paddle's LSTM has no gradient of cells.
            loss = fluid.layers.reduce_sum(fluid.layers.square(outs[0]))
            sources = [v for v in given.values() if not v.stop_gradient] + main.global_block().all_parameters()
            found = fluid.gradients(loss, sources)
            wanted = [(s.name, g) for s, g in zip(sources, found) if g is not None]  # noqa: B905 - Python 3.7
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    feed = {
        key: fluid.create_lod_tensor(array, lengths, place) if lengths else array
        for key, (array, lengths) in feeds.items()
    }
    with fluid.scope_guard(fluid.Scope() if hasattr(fluid, "Scope") else fluid.core.Scope()):
        exe.run(startup)
        done = exe.run(main, feed=feed, fetch_list=[*outs, *(g for _, g in wanted)], return_numpy=False)
    count = len(outs)
    return {
        "results": [{"values": np.array(t).tolist(), "lod": t.lod()} for t in done[:count]],
        "gradients": {key: np.array(t).tolist() for (key, _), t in zip(wanted, done[count:])},  # noqa: B905 - Python 3.7
    }
