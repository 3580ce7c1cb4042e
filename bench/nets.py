"""The measured nets: one definition in Paddle's static API, which tstatic and Paddle both run, and their initial values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# GPT
LAYERS, WIDTH, HEADS, TOKENS, VOCABULARY = 4, 256, 4, 128, 512


@dataclass(frozen=True)
class Init:
    """A parameter's shape and initial values: uniform in ``[-limit, limit]``, or ``fill`` when ``limit`` is 0."""

    shape: tuple[int, ...]
    limit: float = 0.0
    fill: float = 0.0


@dataclass(frozen=True)
class Net:
    """A training step, or the forward part alone.

    Attributes:
        title: What stands in the table.
        parameters: Name -> initial values; the same in every peer.
        build: ``(paddle) -> fetched``: builds the net in the default program, with its optimizer if it is trained.
        feed: ``(generator) -> feed``.
        trained: Whether a step updates the parameters.
        feeds: How many different feeds are drawn; steps take turns with them.
    """

    title: str
    parameters: Mapping[str, Init]
    build: Callable[[Any], Any]
    feed: Callable[[np.random.Generator], dict[str, Array]]
    trained: bool = True
    feeds: int = 1


def initial_values(net: Net) -> dict[str, Array]:
    """The initial values of all parameters, from one seed."""
    rng = np.random.default_rng(2026)
    values = {}
    for name, init in net.parameters.items():
        drawn = rng.uniform(-1, 1, init.shape) * init.limit if init.limit else np.full(init.shape, init.fill)
        values[name] = drawn.astype(np.float32)
    return values


def _dense(name: str, fan_in: int, fan_out: int) -> dict[str, Init]:
    return {f"{name}.w": Init((fan_in, fan_out), math.sqrt(6 / (fan_in + fan_out))), f"{name}.b": Init((fan_out,))}


def _norm(name: str, size: int) -> dict[str, Init]:
    return {f"{name}.w": Init((size,), fill=1.0), f"{name}.b": Init((size,))}


def _attrs(paddle: Any, name: str) -> dict[str, Any]:
    return {"weight_attr": paddle.ParamAttr(name=f"{name}.w"), "bias_attr": paddle.ParamAttr(name=f"{name}.b")}


def _norm_attrs(paddle: Any, name: str) -> dict[str, Any]:
    return {"param_attr": paddle.ParamAttr(name=f"{name}.w"), "bias_attr": paddle.ParamAttr(name=f"{name}.b")}


def _mean_loss(paddle: Any, logits: Any, label: Any) -> Any:
    return paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(logits, label))


# ------------------------------------------------------------------------------------------------------------------ MLP
def _mlp(paddle: Any) -> Any:
    x = paddle.static.data("x", [None, 784], "float32")
    label = paddle.static.data("label", [None, 1], "int64")
    h = paddle.static.nn.fc(x, 1024, activation="relu", **_attrs(paddle, "fc1"))
    h = paddle.static.nn.fc(h, 1024, activation="relu", **_attrs(paddle, "fc2"))
    loss = _mean_loss(paddle, paddle.static.nn.fc(h, 10, **_attrs(paddle, "fc3")), label)
    paddle.optimizer.Adam(learning_rate=1e-3).minimize(loss)
    return loss


def _mlp_feed(rng: np.random.Generator) -> dict[str, Array]:
    return {"x": rng.random((128, 784), np.float32), "label": rng.integers(0, 10, (128, 1))}


# ------------------------------------------------------------------------------------------------------------------ CNN
def _cnn(paddle: Any) -> Any:
    nn, functional = paddle.static.nn, paddle.nn.functional
    x = paddle.static.data("x", [None, 3, 32, 32], "float32")
    label = paddle.static.data("label", [None, 1], "int64")
    h = nn.conv2d(x, 32, 3, padding=1, act="relu", **_norm_attrs(paddle, "conv1"))
    h = functional.max_pool2d(h, 2, 2)
    h = nn.conv2d(h, 64, 3, padding=1, **_norm_attrs(paddle, "conv2"))
    h = nn.batch_norm(h, act="relu", momentum=0.9, epsilon=1e-5, **_norm_attrs(paddle, "bn"))
    h = functional.max_pool2d(h, 2, 2)
    h = nn.fc(h, 128, activation="relu", **_attrs(paddle, "fc1"))
    loss = _mean_loss(paddle, nn.fc(h, 10, **_attrs(paddle, "fc2")), label)
    paddle.optimizer.Momentum(learning_rate=0.01, momentum=0.9).minimize(loss)
    return loss


def _cnn_feed(rng: np.random.Generator) -> dict[str, Array]:
    return {"x": rng.random((64, 3, 32, 32), np.float32), "label": rng.integers(0, 10, (64, 1))}


# ------------------------------------------------------------------------------------------------------------------ GPT
def causal_mask() -> Array:
    """Added to the scores: a large negative number where a token would see a later one."""
    return np.triu(np.full((TOKENS, TOKENS), -1e9, np.float32), 1)


def _gpt(paddle: Any) -> Any:
    nn, functional = paddle.static.nn, paddle.nn.functional
    ids = paddle.static.data("ids", [None, TOKENS], "int64")
    label = paddle.static.data("label", [None, TOKENS, 1], "int64")
    h = nn.embedding(ids, [VOCABULARY, WIDTH], param_attr=paddle.ParamAttr(name="tokens"))
    h = h + paddle.static.create_parameter([TOKENS, WIDTH], "float32", name="positions")
    mask = paddle.assign(causal_mask())
    size = WIDTH // HEADS

    def heads(part: Any) -> Any:
        return paddle.transpose(paddle.reshape(part, [0, 0, HEADS, size]), [0, 2, 1, 3])

    for layer in range(LAYERS):
        name = f"block{layer}."
        n = nn.layer_norm(h, begin_norm_axis=2, **_norm_attrs(paddle, name + "ln1"))
        qkv = nn.fc(n, 3 * WIDTH, num_flatten_dims=2, **_attrs(paddle, name + "qkv"))
        q, k, v = (heads(part) for part in paddle.split(qkv, 3, axis=2))
        scores = paddle.scale(paddle.matmul(q, k, transpose_y=True), 1 / math.sqrt(size)) + mask
        mixed = paddle.matmul(functional.softmax(scores), v)
        mixed = paddle.reshape(paddle.transpose(mixed, [0, 2, 1, 3]), [0, 0, WIDTH])
        h = h + nn.fc(mixed, WIDTH, num_flatten_dims=2, **_attrs(paddle, name + "out"))
        n = nn.layer_norm(h, begin_norm_axis=2, **_norm_attrs(paddle, name + "ln2"))
        n = nn.fc(n, 4 * WIDTH, num_flatten_dims=2, **_attrs(paddle, name + "up"))
        n = functional.gelu(n, approximate=True)
        h = h + nn.fc(n, WIDTH, num_flatten_dims=2, **_attrs(paddle, name + "down"))
    h = nn.layer_norm(h, begin_norm_axis=2, **_norm_attrs(paddle, "ln"))
    loss = _mean_loss(paddle, nn.fc(h, VOCABULARY, num_flatten_dims=2, **_attrs(paddle, "head")), label)
    paddle.optimizer.AdamW(learning_rate=3e-4, weight_decay=0.1).minimize(loss)
    return loss


def _gpt_parameters() -> dict[str, Init]:
    found = {"tokens": Init((VOCABULARY, WIDTH), 0.035), "positions": Init((TOKENS, WIDTH), 0.035)}
    for layer in range(LAYERS):
        name = f"block{layer}."
        found |= (
            _norm(name + "ln1", WIDTH) | _dense(name + "qkv", WIDTH, 3 * WIDTH) | _dense(name + "out", WIDTH, WIDTH)
        )
        found |= _norm(name + "ln2", WIDTH) | _dense(name + "up", WIDTH, 4 * WIDTH)
        found |= _dense(name + "down", 4 * WIDTH, WIDTH)
    return found | _norm("ln", WIDTH) | _dense("head", WIDTH, VOCABULARY)


def _gpt_feed(rng: np.random.Generator) -> dict[str, Array]:
    text = rng.integers(0, VOCABULARY, (16, TOKENS + 1))
    return {"ids": np.ascontiguousarray(text[:, :-1]), "label": np.ascontiguousarray(text[:, 1:, None])}


# ------------------------------------------------------------------------------------- what a step costs beside arithmetic
def _small(paddle: Any) -> Any:
    x = paddle.static.data("x", [4, 8], "float32")
    h = paddle.static.nn.fc(x, 16, activation="relu", **_attrs(paddle, "fc1"))
    loss = paddle.mean(paddle.static.nn.fc(h, 1, **_attrs(paddle, "fc2")))
    paddle.optimizer.Adam(learning_rate=1e-3).minimize(loss)
    return loss


def _small_feed(rng: np.random.Generator) -> dict[str, Array]:
    return {"x": rng.random((4, 8), np.float32)}


LINEARS, LINEAR_WIDTH = 5, 256


def _infer(paddle: Any) -> Any:
    h = paddle.static.data("x", [1, LINEAR_WIDTH], "float32")
    for layer in range(1, LINEARS + 1):
        h = paddle.static.nn.fc(h, LINEAR_WIDTH, **_attrs(paddle, f"fc{layer}"))
    return h


def _infer_parameters() -> dict[str, Init]:
    layers = [_dense(f"fc{layer}", LINEAR_WIDTH, LINEAR_WIDTH) for layer in range(1, LINEARS + 1)]
    return {name: init for layer in layers for name, init in layer.items()}


def _infer_feed(rng: np.random.Generator) -> dict[str, Array]:
    return {"x": rng.random((1, LINEAR_WIDTH), np.float32)}


# ------------------------------------------------------------------------------------------------- residual and depthwise
RESIDUAL_WIDTHS, RESIDUAL_BLOCKS = (16, 32, 64), 3
DEPTHWISE_LAYERS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1))
"""Filters and stride of every pair of a depthwise and a 1 x 1 convolution."""


def _conv_norm(paddle: Any, x: Any, name: str, filters: int, kernel: int, stride: int, groups: int, act: Any) -> Any:
    nn, attr = paddle.static.nn, paddle.ParamAttr(name=f"{name}.conv.w")
    x = nn.conv2d(x, filters, kernel, stride, kernel // 2, groups=groups, param_attr=attr, bias_attr=False)
    return nn.batch_norm(x, act=act, momentum=0.9, epsilon=1e-5, **_norm_attrs(paddle, f"{name}.bn"))


def _conv_norm_parameters(name: str, filters: int, channels: int, kernel: int) -> dict[str, Init]:
    limit = math.sqrt(6 / (channels * kernel * kernel))
    return {f"{name}.conv.w": Init((filters, channels, kernel, kernel), limit), **_norm(f"{name}.bn", filters)}


def residual_blocks() -> list[tuple[str, int, int, int]]:
    """Name, channels, filters and stride of every block of the residual net."""
    blocks, channels = [], RESIDUAL_WIDTHS[0]
    for stage, filters in enumerate(RESIDUAL_WIDTHS):
        for index in range(RESIDUAL_BLOCKS):
            blocks.append((f"block{stage}{index}", channels, filters, 2 if stage and not index else 1))
            channels = filters
    return blocks


def _classify(paddle: Any, h: Any, label: Any) -> Any:
    h = paddle.mean(h, axis=[2, 3])
    loss = _mean_loss(paddle, paddle.static.nn.fc(h, 10, **_attrs(paddle, "fc")), label)
    paddle.optimizer.Momentum(learning_rate=0.01, momentum=0.9).minimize(loss)
    return loss


def _residual(paddle: Any) -> Any:
    x = paddle.static.data("x", [None, 3, 32, 32], "float32")
    label = paddle.static.data("label", [None, 1], "int64")
    h = _conv_norm(paddle, x, "stem", RESIDUAL_WIDTHS[0], 3, 1, 1, "relu")
    for name, channels, filters, stride in residual_blocks():
        short = h
        if channels != filters:
            short = _conv_norm(paddle, h, f"{name}.short", filters, 1, stride, 1, None)
        h = _conv_norm(paddle, h, f"{name}.first", filters, 3, stride, 1, "relu")
        h = _conv_norm(paddle, h, f"{name}.second", filters, 3, 1, 1, None)
        h = paddle.nn.functional.relu(paddle.add(h, short))
    return _classify(paddle, h, label)


def _residual_parameters() -> dict[str, Init]:
    found = _conv_norm_parameters("stem", RESIDUAL_WIDTHS[0], 3, 3)
    for name, channels, filters, _ in residual_blocks():
        if channels != filters:
            found |= _conv_norm_parameters(f"{name}.short", filters, channels, 1)
        found |= _conv_norm_parameters(f"{name}.first", filters, channels, 3)
        found |= _conv_norm_parameters(f"{name}.second", filters, filters, 3)
    return found | _dense("fc", RESIDUAL_WIDTHS[-1], 10)


def _depthwise(paddle: Any) -> Any:
    x = paddle.static.data("x", [None, 3, 32, 32], "float32")
    label = paddle.static.data("label", [None, 1], "int64")
    h, channels = _conv_norm(paddle, x, "stem", 32, 3, 1, 1, "relu"), 32
    for index, (filters, stride) in enumerate(DEPTHWISE_LAYERS):
        h = _conv_norm(paddle, h, f"layer{index}.depth", channels, 3, stride, channels, "relu")
        h = _conv_norm(paddle, h, f"layer{index}.point", filters, 1, 1, 1, "relu")
        channels = filters
    return _classify(paddle, h, label)


def _depthwise_parameters() -> dict[str, Init]:
    found, channels = _conv_norm_parameters("stem", 32, 3, 3), 32
    for index, (filters, _) in enumerate(DEPTHWISE_LAYERS):
        found |= _conv_norm_parameters(f"layer{index}.depth", channels, 1, 3)
        found |= _conv_norm_parameters(f"layer{index}.point", filters, channels, 1)
        channels = filters
    return found | _dense("fc", channels, 10)


# ----------------------------------------------------------------------------------------------------------- recommender
TABLES, TABLE_ROWS, TABLE_WIDTH, DENSE = 26, 20_000, 16, 13


def _recommender(paddle: Any) -> Any:
    nn = paddle.static.nn
    dense = paddle.static.data("dense", [None, DENSE], "float32")
    slots = paddle.static.data("slots", [None, TABLES], "int64")
    label = paddle.static.data("label", [None, 1], "float32")
    parts = [dense]
    for index, slot in enumerate(paddle.split(slots, TABLES, axis=1)):
        rows = nn.embedding(slot, [TABLE_ROWS, TABLE_WIDTH], param_attr=paddle.ParamAttr(name=f"table{index}.w"))
        parts.append(paddle.reshape(rows, [-1, TABLE_WIDTH]))
    h = nn.fc(paddle.concat(parts, axis=1), 256, activation="relu", **_attrs(paddle, "fc1"))
    h = nn.fc(h, 128, activation="relu", **_attrs(paddle, "fc2"))
    logit = nn.fc(h, 1, **_attrs(paddle, "fc3"))
    loss = paddle.nn.functional.binary_cross_entropy_with_logits(logit, label)
    paddle.optimizer.Adam(learning_rate=1e-3).minimize(loss)
    return loss


def _recommender_parameters() -> dict[str, Init]:
    tables = {f"table{index}.w": Init((TABLE_ROWS, TABLE_WIDTH), 0.05) for index in range(TABLES)}
    return tables | _dense("fc1", DENSE + TABLES * TABLE_WIDTH, 256) | _dense("fc2", 256, 128) | _dense("fc3", 128, 1)


def _recommender_feed(rng: np.random.Generator) -> dict[str, Array]:
    return {
        "dense": rng.random((512, DENSE), np.float32),
        "slots": rng.integers(0, TABLE_ROWS, (512, TABLES)),
        "label": rng.integers(0, 2, (512, 1)).astype(np.float32),
    }


# -------------------------------------------------------------------------------------- sizes that depend on values
SIZES = 24
"""How many feeds, whose sizes differ, take turns."""
BERT_LAYERS, BERT_WIDTH, BERT_TOKENS, BERT_BATCH, WORDS, MASKED = 4, 128, 64, 10, 1024, 0.15
"""60 to 140 positions are masked."""


def _bert(paddle: Any, fed: bool) -> Any:
    nn, functional = paddle.static.nn, paddle.nn.functional
    ids = paddle.static.data("ids", [None, BERT_TOKENS], "int64")
    label = paddle.static.data("label", [None, BERT_TOKENS, 1], "int64")
    h = nn.embedding(ids, [WORDS, BERT_WIDTH], param_attr=paddle.ParamAttr(name="tokens"))
    h = h + paddle.static.create_parameter([BERT_TOKENS, BERT_WIDTH], "float32", name="positions")
    h = nn.layer_norm(h, begin_norm_axis=2, **_norm_attrs(paddle, "ln"))
    size = BERT_WIDTH // HEADS

    def heads(part: Any) -> Any:
        return paddle.transpose(paddle.reshape(part, [0, 0, HEADS, size]), [0, 2, 1, 3])

    for layer in range(BERT_LAYERS):
        name = f"block{layer}."
        qkv = nn.fc(h, 3 * BERT_WIDTH, num_flatten_dims=2, **_attrs(paddle, name + "qkv"))
        q, k, v = (heads(part) for part in paddle.split(qkv, 3, axis=2))
        scores = paddle.scale(paddle.matmul(q, k, transpose_y=True), 1 / math.sqrt(size))
        mixed = paddle.matmul(functional.softmax(scores), v)
        mixed = paddle.reshape(paddle.transpose(mixed, [0, 2, 1, 3]), [0, 0, BERT_WIDTH])
        h = h + nn.fc(mixed, BERT_WIDTH, num_flatten_dims=2, **_attrs(paddle, name + "out"))
        h = nn.layer_norm(h, begin_norm_axis=2, **_norm_attrs(paddle, name + "ln1"))
        n = functional.gelu(nn.fc(h, 4 * BERT_WIDTH, num_flatten_dims=2, **_attrs(paddle, name + "up")))
        h = h + nn.fc(n, BERT_WIDTH, num_flatten_dims=2, **_attrs(paddle, name + "down"))
        h = nn.layer_norm(h, begin_norm_axis=2, **_norm_attrs(paddle, name + "ln2"))
    if fed:
        where = paddle.static.data("where", [None, 2], "int64")
    else:
        where = paddle.nonzero(paddle.static.data("mask", [None, BERT_TOKENS], "int64"))
    h, label = paddle.gather_nd(h, where), paddle.gather_nd(label, where)
    h = functional.gelu(nn.fc(h, BERT_WIDTH, **_attrs(paddle, "transform")))
    h = nn.layer_norm(h, begin_norm_axis=1, **_norm_attrs(paddle, "ln_head"))
    loss = _mean_loss(paddle, nn.fc(h, WORDS, **_attrs(paddle, "head")), label)
    paddle.optimizer.AdamW(learning_rate=3e-4, weight_decay=0.01).minimize(loss)
    return loss


def _bert_parameters() -> dict[str, Init]:
    found = {
        "tokens": Init((WORDS, BERT_WIDTH), 0.035),
        "positions": Init((BERT_TOKENS, BERT_WIDTH), 0.035),
        **_norm("ln", BERT_WIDTH),
    }
    for layer in range(BERT_LAYERS):
        name = f"block{layer}."
        found |= _dense(name + "qkv", BERT_WIDTH, 3 * BERT_WIDTH) | _dense(name + "out", BERT_WIDTH, BERT_WIDTH)
        found |= _norm(name + "ln1", BERT_WIDTH) | _norm(name + "ln2", BERT_WIDTH)
        found |= _dense(name + "up", BERT_WIDTH, 4 * BERT_WIDTH) | _dense(name + "down", 4 * BERT_WIDTH, BERT_WIDTH)
    return (
        found
        | _dense("transform", BERT_WIDTH, BERT_WIDTH)
        | _norm("ln_head", BERT_WIDTH)
        | _dense("head", BERT_WIDTH, WORDS)
    )


def _bert_feed(rng: np.random.Generator) -> dict[str, Array]:
    text = rng.integers(0, WORDS, (BERT_BATCH, BERT_TOKENS))
    mask = (rng.random(text.shape) < MASKED).astype(np.int64)
    return {"ids": np.where(mask, 0, text), "label": text[..., None], "mask": mask}


def _bert_feed_fed(rng: np.random.Generator) -> dict[str, Array]:
    feed = _bert_feed(rng)
    where = np.argwhere(feed.pop("mask"))
    return {**feed, "where": where}


SAMPLED_WORDS, SAMPLED_WIDTH, SENTENCES, SENTENCE = 10_000, 128, 32, 20


def _sampled(paddle: Any, fed: bool) -> Any:
    """Predicts the next word among the different words of the batch, by the rows that these have in a table of outputs."""
    nn = paddle.static.nn
    ids = paddle.static.data("ids", [None, SENTENCE], "int64")
    label = paddle.static.data("label", [None, SENTENCE], "int64")
    shape = [SAMPLED_WORDS, SAMPLED_WIDTH]
    h = nn.embedding(ids, shape, param_attr=paddle.ParamAttr(name="tokens"))
    h = paddle.reshape(h, [-1, SAMPLED_WIDTH])
    h = nn.fc(h, 2 * SAMPLED_WIDTH, activation="relu", **_attrs(paddle, "fc1"))
    h = nn.fc(h, SAMPLED_WIDTH, activation="tanh", **_attrs(paddle, "fc2"))
    if fed:
        words = paddle.static.data("words", [None], "int64")
        place = paddle.static.data("place", [None], "int64")
    else:
        words, place = paddle.unique(label, return_inverse=True)
    rows = nn.embedding(words, shape, param_attr=paddle.ParamAttr(name="outputs"))
    logits = paddle.matmul(h, rows, transpose_y=True)
    loss = _mean_loss(paddle, logits, paddle.reshape(place, [-1, 1]))
    paddle.optimizer.Adam(learning_rate=1e-3).minimize(loss)
    return loss


def _sampled_parameters() -> dict[str, Init]:
    table = Init((SAMPLED_WORDS, SAMPLED_WIDTH), 0.05)
    dense = _dense("fc1", SAMPLED_WIDTH, 2 * SAMPLED_WIDTH) | _dense("fc2", 2 * SAMPLED_WIDTH, SAMPLED_WIDTH)
    return {"tokens": table, "outputs": table, **dense}


def _sampled_feed(rng: np.random.Generator) -> dict[str, Array]:
    # Words of a language: the n-th is 1 / n as frequent as the first. Paddle runs with a numpy whose `zipf` draws other numbers.
    words = (SAMPLED_WORDS ** rng.random((SENTENCES, SENTENCE + 1))).astype(np.int64) - 1
    return {"ids": np.ascontiguousarray(words[:, :-1]), "label": np.ascontiguousarray(words[:, 1:])}


def _sampled_feed_fed(rng: np.random.Generator) -> dict[str, Array]:
    feed = _sampled_feed(rng)
    words, place = np.unique(feed.pop("label"), return_inverse=True)
    return {**feed, "words": words, "place": place.reshape(-1)}


NETS = {
    "mlp": Net(
        "MLP 784-1024-1024-10, batch 128, Adam",
        _dense("fc1", 784, 1024) | _dense("fc2", 1024, 1024) | _dense("fc3", 1024, 10),
        _mlp,
        _mlp_feed,
    ),
    "cnn": Net(
        "CNN conv32-pool-conv64-bn-pool-fc128-fc10, 3x32x32, batch 64, Momentum",
        {
            "conv1.w": Init((32, 3, 3, 3), 0.3),
            "conv1.b": Init((32,)),
            "conv2.w": Init((64, 32, 3, 3), 0.08),
            "conv2.b": Init((64,)),
            **_norm("bn", 64),
            **_dense("fc1", 64 * 8 * 8, 128),
            **_dense("fc2", 128, 10),
        },
        _cnn,
        _cnn_feed,
    ),
    "gpt": Net("GPT, 4 layers, width 256, 4 heads, 128 tokens, batch 16, AdamW", _gpt_parameters(), _gpt, _gpt_feed),
    "residual": Net(
        "Residual net of 20 layers with batch norm (16-32-64), 3x32x32, batch 64, Momentum",
        _residual_parameters(),
        _residual,
        _cnn_feed,
    ),
    "depthwise": Net(
        "Depthwise net of 5 pairs (64 to 256 filters) with batch norm, 3x32x32, batch 64, Momentum",
        _depthwise_parameters(),
        _depthwise,
        _cnn_feed,
    ),
    "recommender": Net(
        "Recommender: 26 tables of 20,000 x 16, 13 numbers, dense 256-128-1, batch 512, Adam",
        _recommender_parameters(),
        _recommender,
        _recommender_feed,
    ),
    "small": Net(
        "Hot step: x[4, 8] -> fc 16 relu -> fc 1, Adam",
        _dense("fc1", 8, 16) | _dense("fc2", 16, 1),
        _small,
        _small_feed,
    ),
    "infer": Net(
        "Inference of 5 linear layers of 256, batch 1", _infer_parameters(), _infer, _infer_feed, trained=False
    ),
    "bert": Net(
        f"BERT masked language model of {BERT_LAYERS} layers, width {BERT_WIDTH}, {BERT_TOKENS} tokens, batch {BERT_BATCH}, "
        f"{WORDS} words: gather_nd of nonzero, AdamW",
        _bert_parameters(),
        partial(_bert, fed=False),
        _bert_feed,
        feeds=SIZES,
    ),
    "sampled": Net(
        f"Softmax over the different words of a batch ({SENTENCES} x {SENTENCE} of {SAMPLED_WORDS}): rows of unique ids, Adam",
        _sampled_parameters(),
        partial(_sampled, fed=False),
        _sampled_feed,
        feeds=SIZES,
    ),
    "bert fed": Net(
        "The same with positions that are fed",
        _bert_parameters(),
        partial(_bert, fed=True),
        _bert_feed_fed,
        feeds=SIZES,
    ),
    "sampled fed": Net(
        "The same with words that are fed",
        _sampled_parameters(),
        partial(_sampled, fed=True),
        _sampled_feed_fed,
        feeds=SIZES,
    ),
}


# --------------------------------------------------------------------------------------------------------- tiny programs
TINY_SIZE = 8


def tiny_ops(paddle: Any, count: int) -> Any:
    """Builds a chain of ``count`` small operators in the default program; returns the last value."""
    x = paddle.static.data("x", [TINY_SIZE], "float32")
    a = paddle.static.data("a", [TINY_SIZE], "float32")
    b = paddle.static.data("b", [TINY_SIZE], "float32")
    for index in range(count):
        kind = index % 4
        if kind == 0:
            x = paddle.multiply(x, a)
        elif kind == 1:
            x = paddle.add(x, b)
        elif kind == 2:
            x = paddle.nn.functional.relu(x)
        else:
            x = paddle.tanh(x)
    return x


def tiny_feed() -> dict[str, Array]:
    """Inputs of the tiny program."""
    rng = np.random.default_rng(7)
    return {name: rng.random(TINY_SIZE, np.float32) + np.float32(0.5) for name in ("x", "a", "b")}


def tiny_bound(count: int, feed: Mapping[str, Array]) -> tuple[list[tuple[Any, tuple[Any, ...]]], Array]:
    """The same chain as calls of numpy ufuncs bound to two buffers in turn, and where the result lies.

    This is the floor: what Python itself takes to call that many ufuncs.
    """
    buffers = [np.empty(TINY_SIZE, np.float32) for _ in range(2)]
    zero = np.zeros((), np.float32)
    calls: list[tuple[Any, tuple[Any, ...]]] = []
    x = feed["x"]
    for index in range(count):
        out = buffers[index % 2]
        kind = index % 4
        if kind == 0:
            calls.append((np.multiply, (x, feed["a"], out)))
        elif kind == 1:
            calls.append((np.add, (x, feed["b"], out)))
        elif kind == 2:
            # Only the keyword names an output here, and a call with keywords is slower; ``fmax`` costs the same.
            calls.append((np.fmax, (x, zero, out)))
        else:
            calls.append((np.tanh, (x, out)))
        x = out
    return calls, x
