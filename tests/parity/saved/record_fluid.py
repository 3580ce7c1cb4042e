"""Saves models as Paddle 1.x does: ``.venv-fluid/bin/python tests/parity/saved/record_fluid.py`` (Python 3.7)."""

import os
import sys

import numpy as np

FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "data", "paddle-1.8")


def mlp(fluid):
    """Dense layers, dropout, means of one element."""
    layers = fluid.layers
    x, y = fluid.data("x", [None, 12]), fluid.data("label", [None, 1], "int64")
    answer = layers.fc(layers.dropout(layers.fc(x, 16, act="relu"), 0.3), 4, act="softmax")
    outputs = [answer, layers.mean(answer), layers.reduce_sum(answer), layers.reduce_sum(answer, dim=1, keep_dim=True)]
    return [x], outputs, layers.mean(layers.cross_entropy(answer, y))


def conv(fluid):
    """Convolutions with batch norm and pooling."""
    layers = fluid.layers
    x, y = fluid.data("image", [None, 1, 12, 12]), fluid.data("label", [None, 1], "int64")
    h = layers.pool2d(layers.batch_norm(layers.conv2d(x, 4, 3, padding=1), act="relu"), 2, "max", 2)
    h = fluid.nets.simple_img_conv_pool(h, 3, 4, 2, 2, act="relu")
    answer = layers.fc(h, 4, act="softmax")
    return [x], [answer], layers.mean(layers.cross_entropy(answer, y))


def words(fluid):
    """Embeddings, moves of axes, two inputs of one dense layer."""
    layers = fluid.layers
    ids, y = fluid.data("ids", [None, 6], "int64"), fluid.data("label", [None, 1], "int64")
    mean = layers.reduce_mean(fluid.embedding(ids, [20, 8]), dim=1)
    same = layers.squeeze(layers.unsqueeze(mean, [1]), [1])
    answer = layers.fc([mean, same], 4, act="softmax")
    outputs = [answer, layers.transpose(mean, [1, 0]), layers.reshape(mean, [-1, 2, 4]), layers.concat([mean, same], 1)]
    return [ids], outputs, layers.mean(layers.cross_entropy(answer, y))


def sentences(fluid):
    """Rows of several lengths."""
    layers = fluid.layers
    ids, y = fluid.data("words", [None, 1], "int64", lod_level=1), fluid.data("label", [None, 1], "int64")
    h = layers.embedding(ids, [20, 8])
    pooled = [
        layers.sequence_pool(h, "sum"),
        layers.sequence_pool(layers.fc(h, 8, act="tanh"), "max"),
        layers.sequence_pool(layers.sequence_conv(h, 6, 3, act="relu"), "last"),
    ]
    answer = layers.fc(pooled, 4, act="softmax")
    return [ids], [answer, layers.sequence_softmax(layers.fc(h, 1))], layers.mean(layers.cross_entropy(answer, y))


def feed(seed):
    """As in ``models.py``."""
    draw = np.random.RandomState(seed)
    x, image = draw.uniform(-1, 1, (4, 12)).astype("float32"), draw.uniform(-1, 1, (4, 1, 12, 12)).astype("float32")
    ids, _ = draw.randint(0, 20, (4, 6)).astype("int64"), draw.randint(0, 20, (4, 6))
    return {"x": x, "image": image, "ids": ids, "label": draw.randint(0, 4, (4, 1)).astype("int64")}


def main(folder):
    """Writes the files, and what each model answers."""
    from paddle import fluid

    # Else each operator is saved with the paths and lines of this machine.
    fluid.framework.traceback.format_stack = lambda *limits, **limit: []
    answers = {}
    for build in (mlp, conv, words, sentences):
        name, program, startup = build.__name__, fluid.Program(), fluid.Program()
        program.random_seed = startup.random_seed = 7
        with fluid.scope_guard(fluid.Scope()), fluid.program_guard(program, startup), fluid.unique_name.guard():
            feeds, outputs, loss = build(fluid)
            fluid.optimizer.Adam(0.01).minimize(loss)
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            for step in range(5 if name != "sentences" else 0):
                given = {n: v for n, v in feed(step).items() if program.global_block().has_var(n)}
                exe.run(program, feed=given, fetch_list=[loss])
            names = [var.name for var in feeds]
            path = os.path.join(folder, name)
            # One file for each variable; for one model, all of them in one file.
            one = "__params__" if name in ("conv", "sentences") else None
            fluid.io.save_inference_model(path, names, outputs, exe, program, params_filename=one)
            if name == "mlp":
                fluid.io.save_persistables(exe, folder, program, "mlp_all")
                fluid.save(program, os.path.join(folder, "mlp_training"))
                os.remove(os.path.join(folder, "mlp_training.pdmodel"))
            loaded, names, results = fluid.io.load_inference_model(path, exe, params_filename=one)
            given = {n: v for n, v in feed(99).items() if n in names}
            if name == "sentences":
                rows = np.arange(7).reshape(7, 1).astype("int64")
                given["words"] = fluid.create_lod_tensor(rows, [[2, 4, 1]], fluid.CPUPlace())
            for i, value in enumerate(exe.run(loaded, feed=given, fetch_list=results, return_numpy=False)):
                answers["%s.%d" % (name, i)] = np.array(value)  # noqa: UP031
    np.savez_compressed(os.path.join(folder, "answers.npz"), **answers)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
