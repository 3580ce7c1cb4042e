"""Ten models that both sides build, train, save and read; ``paddle`` is the module under test, either one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Built:
    """What a function below builds: the inputs of an inference model, its results, and the loss that is trained."""

    feeds: list[Any]
    outputs: list[Any]
    loss: Any
    optimizer: Any


def _classified(paddle: Any, feeds: list[Any], logits: Any, optimizer: Any) -> Built:
    label = paddle.static.data("label", [None, 1], "int64")
    loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, label))
    return Built(feeds, [paddle.nn.functional.softmax(logits)], loss, optimizer)


def mlp(paddle: Any) -> Built:
    nn, F, x = paddle.static.nn, paddle.nn.functional, paddle.static.data("x", [None, 12])
    h = nn.fc(nn.fc(x, 16, activation="relu"), 16, activation="tanh")
    h = F.dropout(h, 0.3) * 0.5 + paddle.exp(-h) - paddle.sqrt(paddle.abs(h) + 1.0)
    return _classified(paddle, [x], nn.fc(h, 4), paddle.optimizer.Adam(0.01))


def lenet(paddle: Any) -> Built:
    F, x = paddle.nn.functional, paddle.static.data("image", [None, 1, 12, 12])
    h = F.max_pool2d(paddle.static.nn.conv2d(x, 4, 3, padding=1, act="relu"), 2)
    h = F.avg_pool2d(paddle.static.nn.conv2d(h, 6, 3, act="relu"), 2)
    return _classified(paddle, [x], paddle.static.nn.fc(h, 4), paddle.optimizer.Momentum(0.05, 0.9))


def resnet(paddle: Any) -> Built:
    F, nn, x = paddle.nn.functional, paddle.static.nn, paddle.static.data("image", [None, 1, 12, 12])
    h = nn.batch_norm(nn.conv2d(x, 6, 3, padding=1, bias_attr=False), act="relu")
    for _ in range(2):
        left = nn.batch_norm(nn.conv2d(h, 6, 3, padding=1, bias_attr=False), act="relu")
        h = F.relu(nn.batch_norm(nn.conv2d(left, 6, 3, padding=1, bias_attr=False)) + h)
    pooled = paddle.flatten(F.adaptive_avg_pool2d(h, 1), 1)
    decay = paddle.regularizer.L2Decay(1e-3)
    return _classified(paddle, [x], nn.fc(pooled, 4), paddle.optimizer.Momentum(0.05, 0.9, weight_decay=decay))


def mobilenet(paddle: Any) -> Built:
    F, nn, x = paddle.nn.functional, paddle.nn, paddle.static.data("image", [None, 1, 12, 12])
    h = F.relu6(nn.BatchNorm2D(6)(nn.Conv2D(1, 6, 3, stride=2, padding=1, bias_attr=False)(x)))
    h = F.relu6(nn.BatchNorm2D(6)(nn.Conv2D(6, 6, 3, padding=1, groups=6, bias_attr=False)(h)))
    h = F.hardswish(nn.Conv2D(6, 8, 1)(h)) * F.hardsigmoid(h.mean(axis=[1, 2, 3], keepdim=True))
    return _classified(paddle, [x], nn.Linear(8, 4)(paddle.mean(h, axis=[2, 3])), paddle.optimizer.RMSProp(0.01))


def words(paddle: Any) -> Built:
    ids = paddle.static.data("ids", [None, 6], "int64")
    table = paddle.static.nn.embedding(ids, [20, 8], is_sparse=True)
    h = paddle.concat([paddle.mean(table, axis=1), paddle.max(table, axis=1)], axis=-1)
    known = paddle.cast(paddle.greater_than(ids, paddle.full_like(ids, 3)), "float32")
    h = h * paddle.unsqueeze(paddle.sum(known, axis=1) + 1.0, 1)
    return _classified(paddle, [ids], paddle.static.nn.fc(h, 4), paddle.optimizer.Adagrad(0.1))


def encoder(paddle: Any) -> Built:
    nn, ids = paddle.nn, paddle.static.data("ids", [None, 6], "int64")
    h = nn.Embedding(20, 8)(ids)
    h = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0), 2)(h)
    built = _classified(paddle, [ids], nn.Linear(8, 4)(paddle.mean(h, axis=1)), paddle.optimizer.Momentum(0.05, 0.9))
    built.outputs.append(paddle.argmax(built.outputs[0], axis=1))
    return built


def gpt(paddle: Any) -> Built:
    nn, F, ids = paddle.nn, paddle.nn.functional, paddle.static.data("ids", [None, 6], "int64")
    after = paddle.static.data("after", [None, 6], "int64")
    h = nn.Embedding(20, 8)(ids) + nn.Embedding(6, 8)(paddle.arange(6))
    mask = paddle.triu(paddle.full([6, 6], -1e4), 1)
    for _ in range(2):
        normal = nn.LayerNorm(8)(h)
        q, k, v = (
            paddle.transpose(paddle.reshape(part, [0, 0, 2, 4]), [0, 2, 1, 3])
            for part in paddle.split(nn.Linear(8, 24, bias_attr=False)(normal), 3, axis=-1)
        )
        attended = paddle.matmul(F.softmax(paddle.matmul(q, k, transpose_y=True) * 0.5 + mask), v)
        h = h + nn.Linear(8, 8)(paddle.reshape(paddle.transpose(attended, [0, 2, 1, 3]), [0, 0, 8]))
        h = h + nn.Linear(32, 8)(F.gelu(nn.Linear(8, 32)(nn.LayerNorm(8)(h)), approximate=True))
    logits = nn.Linear(8, 20)(h)
    loss = F.cross_entropy(paddle.reshape(logits, [-1, 20]), paddle.reshape(after, [-1, 1]))
    best, where = paddle.topk(F.log_softmax(logits), 3)
    optimizer = paddle.optimizer.AdamW(0.01, grad_clip=nn.ClipGradByGlobalNorm(1.0))
    return Built([ids], [best, where, paddle.slice(logits, [1], [2], [5])], loss, optimizer)


def autoencoder(paddle: Any) -> Built:
    nn, F, x = paddle.nn, paddle.nn.functional, paddle.static.data("image", [None, 1, 12, 12])
    h = F.leaky_relu(nn.Conv2D(1, 4, 4, stride=2, padding=1)(x), 0.2)
    out = F.sigmoid(nn.Conv2DTranspose(4, 1, 4, stride=2, padding=1)(h))
    return Built(
        [x],
        [out, paddle.clip(h, -0.1, 0.1)],
        F.mse_loss(out, F.sigmoid(x)),
        paddle.optimizer.Adam(0.02, weight_decay=1e-3),
    )


def unet(paddle: Any) -> Built:
    nn, F, x = paddle.nn, paddle.nn.functional, paddle.static.data("image", [None, 1, 12, 12])
    first = F.elu(nn.GroupNorm(2, 4)(nn.Conv2D(1, 4, 3, padding=1)(F.pad(x, [1, 1, 1, 1], mode="reflect"))))
    deep = F.elu(nn.InstanceNorm2D(6)(nn.Conv2D(4, 6, 3, padding=1)(F.avg_pool2d(first, 2))))
    up = nn.PReLU(6)(F.interpolate(deep, scale_factor=2, mode="bilinear"))
    out = nn.Conv2D(10, 1, 1)(paddle.concat([first, up], axis=1))
    target = paddle.cast(F.pad(x, [1, 1, 1, 1]) > 0.2, "float32")
    loss = F.binary_cross_entropy_with_logits(out, target)
    return Built([x], [F.sigmoid(out), F.pixel_shuffle(first, 2)], loss, paddle.optimizer.Adamax(0.02))


def recurrent(paddle: Any) -> Built:
    static, x = paddle.static, paddle.static.data("x", [None, 12])
    weight = paddle.create_parameter([8, 8], "float32", name="recurrent")
    projected = static.nn.fc(x, 8)
    i, n = paddle.full([1], 0, "int64"), paddle.full([1], 4, "int64")
    last = static.nn.while_loop(
        lambda i, h: i < n,
        lambda i, h: [i + 1, paddle.tanh(paddle.matmul(h, weight) + projected)],
        [i, projected * 1.0],
    )[1]
    far = static.nn.cond(paddle.mean(last) > 0.0, lambda: last * 2.0, lambda: last - 1.0)
    built = _classified(paddle, [x], static.nn.fc(last, 4), paddle.optimizer.SGD(0.2))
    built.outputs.append(far)
    return built


MODELS: dict[str, Callable[[Any], Built]] = {
    m.__name__: m for m in (mlp, lenet, resnet, mobilenet, words, encoder, gpt, autoencoder, unet, recurrent)
}


def feed(seed: int) -> dict[str, Any]:
    """Four rows for every input that a model may have."""
    draw = np.random.RandomState(seed)
    return {
        "x": draw.uniform(-1, 1, (4, 12)).astype("float32"),
        "image": draw.uniform(-1, 1, (4, 1, 12, 12)).astype("float32"),
        "ids": draw.randint(0, 20, (4, 6)).astype("int64"),
        "after": draw.randint(0, 20, (4, 6)).astype("int64"),
        "label": draw.randint(0, 4, (4, 1)).astype("int64"),
    }


def trained(paddle: Any, name: str, steps: int = 5) -> tuple[Any, Built, Any]:
    """Builds a model in new programs and trains it a little; returns the program, what stands in it, and the executor."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    main.random_seed = startup.random_seed = 7
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        built = MODELS[name](paddle)
        built.optimizer.minimize(built.loss)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(startup)
    needed = {var.name for var in main.list_vars() if getattr(var, "is_data", False)}
    for step in range(steps):
        given = {key: value for key, value in feed(step).items() if key in needed}
        exe.run(main, feed=given, fetch_list=[built.loss])
    return main, built, exe


def inferred(paddle: Any, program: Any, feeds: list[str], fetches: list[Any], exe: Any) -> list[Any]:
    """What an inference model answers to a batch that was not trained on."""
    given = feed(99)
    return [
        np.asarray(value) for value in exe.run(program, feed={name: given[name] for name in feeds}, fetch_list=fetches)
    ]


def checked(paddle: Any, program: Any) -> Any:
    """The sums of all persistable values of a program, by the names of their variables."""
    scope = paddle.static.global_scope()
    names = sorted(var.name for var in program.list_vars() if var.persistable and scope.find_var(var.name) is not None)
    values = (np.array(scope.find_var(name).get_tensor()) for name in names if name not in ("feed", "fetch"))
    return np.asarray([np.abs(value.astype("float64")).sum() for value in values])
