"""Small networks in Paddle's static API; `paddle` is the module under test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _classify(paddle: Any, logits: Any, optimizer: Any) -> Any:
    label = paddle.static.data("label", [None, 1], "int64")
    loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, label))
    optimizer.minimize(loss)
    return loss


def mlp(paddle: Any) -> Any:
    x = paddle.static.data("x", [None, 12])
    h = paddle.static.nn.fc(paddle.static.nn.fc(x, 16, activation="relu"), 16, activation="tanh")
    return _classify(paddle, paddle.static.nn.fc(h, 4), paddle.optimizer.Adam(0.01))


def lenet(paddle: Any) -> Any:
    F, x = paddle.nn.functional, paddle.static.data("x", [None, 1, 12, 12])
    h = F.max_pool2d(paddle.static.nn.conv2d(x, 4, 3, padding=1, act="relu"), 2)
    h = F.max_pool2d(paddle.static.nn.conv2d(h, 6, 3, act="relu"), 2)
    return _classify(paddle, paddle.static.nn.fc(h, 4), paddle.optimizer.Momentum(0.05, 0.9))


def resnet(paddle: Any) -> Any:
    F, nn, x = paddle.nn.functional, paddle.static.nn, paddle.static.data("x", [None, 1, 12, 12])
    h = nn.batch_norm(nn.conv2d(x, 6, 3, padding=1, bias_attr=False), act="relu")
    for _ in range(2):
        left = nn.batch_norm(nn.conv2d(h, 6, 3, padding=1, bias_attr=False), act="relu")
        left = nn.batch_norm(nn.conv2d(left, 6, 3, padding=1, bias_attr=False))
        h = F.relu(left + h)
    pooled = paddle.flatten(F.adaptive_avg_pool2d(h, 1), 1)
    decay = paddle.regularizer.L2Decay(1e-3)
    return _classify(paddle, nn.fc(pooled, 4), paddle.optimizer.Momentum(0.05, 0.9, weight_decay=decay))


def mobilenet(paddle: Any) -> Any:
    F, nn, x = paddle.nn.functional, paddle.nn, paddle.static.data("x", [None, 1, 12, 12])
    h = F.relu6(nn.BatchNorm2D(6)(nn.Conv2D(1, 6, 3, stride=2, padding=1, bias_attr=False)(x)))
    h = F.relu6(nn.BatchNorm2D(6)(nn.Conv2D(6, 6, 3, padding=1, groups=6, bias_attr=False)(h)))
    h = F.hardswish(nn.Conv2D(6, 8, 1)(h))
    return _classify(paddle, nn.Linear(8, 4)(paddle.mean(h, axis=[2, 3])), paddle.optimizer.RMSProp(0.01))


def words(paddle: Any) -> Any:
    ids = paddle.static.data("ids", [None, 6], "int64")
    h = paddle.mean(paddle.static.nn.embedding(ids, [20, 8]), axis=1)
    return _classify(paddle, paddle.static.nn.fc(h, 4), paddle.optimizer.Adagrad(0.1))


def encoder(paddle: Any) -> Any:
    nn, ids = paddle.nn, paddle.static.data("ids", [None, 6], "int64")
    h = nn.Embedding(20, 8)(ids)
    h = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0), 2)(h)
    return _classify(paddle, nn.Linear(8, 4)(paddle.mean(h, axis=1)), paddle.optimizer.Momentum(0.05, 0.9))


def gpt(paddle: Any) -> Any:
    nn, F = paddle.nn, paddle.nn.functional
    ids, after = paddle.static.data("ids", [None, 6], "int64"), paddle.static.data("after", [None, 6], "int64")
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
    loss = F.cross_entropy(paddle.reshape(nn.Linear(8, 20)(h), [-1, 20]), paddle.reshape(after, [-1, 1]))
    paddle.optimizer.AdamW(0.01, grad_clip=nn.ClipGradByGlobalNorm(1.0)).minimize(loss)
    return loss


def autoencoder(paddle: Any) -> Any:
    nn, F, x = paddle.nn, paddle.nn.functional, paddle.static.data("x", [None, 1, 12, 12])
    h = F.leaky_relu(nn.Conv2D(1, 4, 4, stride=2, padding=1)(x), 0.2)
    out = F.sigmoid(nn.Conv2DTranspose(4, 1, 4, stride=2, padding=1)(h))
    loss = F.mse_loss(out, F.sigmoid(x))
    paddle.optimizer.Adam(0.02, weight_decay=1e-3).minimize(loss)
    return loss


def unet(paddle: Any) -> Any:
    nn, F, x = paddle.nn, paddle.nn.functional, paddle.static.data("x", [None, 1, 12, 12])
    first = F.elu(nn.GroupNorm(2, 4)(nn.Conv2D(1, 4, 3, padding=1)(x)))
    deep = F.elu(nn.Conv2D(4, 6, 3, padding=1)(F.avg_pool2d(first, 2)))
    up = F.interpolate(deep, scale_factor=2, mode="bilinear")
    out = nn.Conv2D(10, 1, 1)(paddle.concat([first, up], axis=1))
    target = paddle.cast(x > 0.2, "float32")
    loss = F.binary_cross_entropy_with_logits(out, target)
    paddle.optimizer.Adamax(0.02).minimize(loss)
    return loss


def recurrent(paddle: Any) -> Any:
    static, x = paddle.static, paddle.static.data("x", [None, 12])
    weight = paddle.create_parameter([8, 8], "float32", name="recurrent")
    projected = static.nn.fc(x, 8)
    # Paddle's loop writes into the variables it is given: the copy keeps the projection as it is.
    start = projected * 1.0
    i, n = paddle.full([1], 0, "int64"), paddle.full([1], 4, "int64")
    last = static.nn.while_loop(
        lambda i, h: i < n, lambda i, h: [i + 1, paddle.tanh(paddle.matmul(h, weight) + projected)], [i, start]
    )[1]
    return _classify(paddle, static.nn.fc(last, 4), paddle.optimizer.SGD(0.2))


def wide_and_deep(paddle: Any) -> Any:
    nn, ids, x = paddle.static.nn, paddle.static.data("ids", [None, 6], "int64"), paddle.static.data("x", [None, 12])
    wide = paddle.sum(nn.embedding(ids, [20, 1], is_sparse=True), axis=1)
    deep = paddle.concat([paddle.flatten(nn.embedding(ids, [20, 4]), 1), x], axis=1)
    deep = nn.fc(nn.fc(deep, 16, activation="relu"), 1)
    label = paddle.cast(paddle.static.data("label", [None, 1], "int64") > 1, "float32")
    loss = paddle.mean(paddle.nn.functional.binary_cross_entropy(paddle.nn.functional.sigmoid(wide + deep), label))
    paddle.optimizer.SGD(0.1).minimize(loss)
    return loss


def sparse_adam(paddle: Any) -> Any:
    ids = paddle.static.data("ids", [None, 6], "int64")
    h = paddle.mean(paddle.static.nn.embedding(ids, [20, 8], is_sparse=True), axis=1)
    return _classify(paddle, paddle.static.nn.fc(h, 4), paddle.optimizer.Adam(0.02))


def siamese(paddle: Any) -> Any:
    nn, F, x = paddle.nn, paddle.nn.functional, paddle.static.data("x", [None, 12])
    tower = nn.Sequential(nn.Linear(6, 8), nn.Swish(), nn.Linear(8, 4))
    left, right = paddle.split(x, 2, axis=1)
    alike = F.cosine_similarity(tower(left), tower(right), axis=1)
    loss = paddle.mean(F.square_error_cost(alike, paddle.sin(paddle.sum(x, axis=1))))
    paddle.optimizer.Adadelta(1.0).minimize(loss)
    return loss


def styles(paddle: Any) -> Any:
    nn, F, x = paddle.nn, paddle.nn.functional, paddle.static.data("x", [None, 1, 12, 12])
    h = F.relu(nn.InstanceNorm2D(4)(nn.Conv2D(1, 4, 3, bias_attr=False)(F.pad(x, [1, 1, 1, 1], mode="reflect"))))
    h = F.pixel_shuffle(nn.PReLU(4)(h), 2)
    loss = F.smooth_l1_loss(F.avg_pool2d(h, 2), F.tanh(x)) + 0.1 * F.l1_loss(paddle.mean(h), paddle.full([], 0.5))
    paddle.optimizer.Lamb(0.02).minimize(loss)
    return loss


def schedule_and_clip(paddle: Any) -> Any:
    nn, x = paddle.static.nn, paddle.static.data("x", [None, 12])
    h = nn.layer_norm(nn.fc(x, 16, activation="softplus"))
    rate = paddle.optimizer.lr.PolynomialDecay(0.1, 20)
    clip = paddle.nn.ClipGradByNorm(0.5)
    return _classify(paddle, nn.fc(h, 4), paddle.optimizer.Momentum(rate, 0.9, use_nesterov=True, grad_clip=clip))


NETS: dict[str, Callable[[Any], Any]] = {
    n.__name__: n
    for n in (
        mlp,
        lenet,
        resnet,
        mobilenet,
        words,
        encoder,
        gpt,
        autoencoder,
        unet,
        recurrent,
        wide_and_deep,
        siamese,
        styles,
        schedule_and_clip,
        sparse_adam,
    )
}

FEEDS: dict[str, tuple[str, ...]] = {
    "mlp": ("x", "label"),
    "lenet": ("image", "label"),
    "resnet": ("image", "label"),
    "mobilenet": ("image", "label"),
    "words": ("ids", "label"),
    "encoder": ("ids", "label"),
    "gpt": ("ids", "after"),
    "autoencoder": ("image",),
    "unet": ("image",),
    "recurrent": ("x", "label"),
    "wide_and_deep": ("ids", "x", "label"),
    "siamese": ("x",),
    "sparse_adam": ("ids", "label"),
    "styles": ("image",),
    "schedule_and_clip": ("x", "label"),
}


def feed(name: str, step: int, ramp: Any) -> dict[str, Any]:
    """What a network is fed with in a step: four rows, other values in each of five steps."""
    drawn = {
        "x": ("x", [4, 12], "float32", -1.0, 1.0),
        "image": ("x", [4, 1, 12, 12], "float32", -1.0, 1.0),
        "ids": ("ids", [4, 6], "int64", 0, 19),
        "after": ("after", [4, 6], "int64", 0, 19),
        "label": ("label", [4, 1], "int64", 0, 3),
    }
    return {drawn[k][0]: ramp(*drawn[k][1:], 7 * (step % 5) + n) for n, k in enumerate(FEEDS[name])}
