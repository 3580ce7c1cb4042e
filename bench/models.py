"""Whole training steps in Paddle's static API, for plans on paper: GPT-2 124M and BERT-base in float32 and bfloat16, ResNet-50.

Nothing is run.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """A training step.

    Attributes:
        title: What stands in the table.
        build: ``(paddle) -> loss``: builds the step, update included, in the default program.
        feeds: Input -> shape.
        parameters: How many numbers are learned, as published; a build that has others is wrong.
        lacks: What the published training has and this step has not.
        tf32: Whether ``FLAGS_allow_tf32`` is set: products of float32 may be rounded to TF32.
    """

    title: str
    build: Callable[[Any], Any]
    feeds: Mapping[str, Shape]
    parameters: int
    lacks: str = ""
    tf32: bool = False

    @contextlib.contextmanager
    def flags(self, paddle: Any) -> Iterator[None]:
        """The step's flags, while it is compiled or run."""
        before = paddle.get_flags("FLAGS_allow_tf32")
        paddle.set_flags({"FLAGS_allow_tf32": self.tf32})
        try:
            yield
        finally:
            paddle.set_flags(before)


def _heads(paddle: Any, part: Any, heads: int, size: int) -> Any:
    return paddle.transpose(paddle.reshape(part, [0, 0, heads, size]), [0, 2, 1, 3])


def _attention(paddle: Any, n: Any, mask: Any, width: int, heads: int, dropout: float) -> Any:
    """Self-attention over ``n`` of ``[batch, tokens, width]``; the mask is added to the scores."""
    nn, functional = paddle.static.nn, paddle.nn.functional
    size = width // heads
    qkv = nn.fc(n, 3 * width, num_flatten_dims=2)
    q, k, v = (_heads(paddle, part, heads, size) for part in paddle.split(qkv, 3, axis=2))
    scores = paddle.scale(paddle.matmul(q, k, transpose_y=True), 1 / math.sqrt(size)) + mask
    weights = functional.softmax(scores)
    if dropout:
        weights = functional.dropout(weights, dropout)
    mixed = paddle.reshape(paddle.transpose(paddle.matmul(weights, v), [0, 2, 1, 3]), [0, 0, width])
    return nn.fc(mixed, width, num_flatten_dims=2)


def _feed_forward(paddle: Any, n: Any, width: int, approximate: bool) -> Any:
    nn = paddle.static.nn
    n = paddle.nn.functional.gelu(nn.fc(n, 4 * width, num_flatten_dims=2), approximate=approximate)
    return nn.fc(n, width, num_flatten_dims=2)


def _minimize(paddle: Any, optimizer: Any, loss: Any, low: bool) -> None:
    """Adds the update; ``low``: everything in bfloat16 but what is summed, and float32 copies of the parameters."""
    if low:
        # The means, and the loss that is read, stay in float32: in bfloat16 they would have three digits.
        lists = paddle.static.amp.AutoMixedPrecisionLists(
            custom_black_list=["reduce_mean"], custom_black_varnames=[loss.name], dtype="bfloat16"
        )
        # bfloat16 has the range of float32: no gradient vanishes, so that the loss needs no factor.
        optimizer = paddle.static.amp.decorate(
            optimizer,
            lists,
            init_loss_scaling=1.0,
            use_dynamic_loss_scaling=False,
            level="O2",
            dtype="bfloat16",
            master_weight=True,
        )
    optimizer.minimize(loss)


def _mean_loss(paddle: Any, logits: Any, label: Any) -> Any:
    return paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(logits, label))


# ---------------------------------------------------------------------------------------------------------------- GPT-2
GPT = {"layers": 12, "width": 768, "heads": 12, "tokens": 1024, "vocabulary": 50304, "batch": 8}


def _causal(paddle: Any, tokens: int) -> Any:
    """Minus infinity where a token would see a later one: a constant, as compilers see it."""
    return paddle.triu(paddle.full([tokens, tokens], float("-inf"), "float32"), 1)


def _gpt(paddle: Any, low: bool = False, fed: bool = False) -> Any:
    nn = paddle.static.nn
    width, tokens, words = GPT["width"], GPT["tokens"], GPT["vocabulary"]
    ids = paddle.static.data("ids", [GPT["batch"], tokens], "int64")
    label = paddle.static.data("label", [GPT["batch"], tokens, 1], "int64")
    mask = paddle.static.data("mask", [tokens, tokens], "float32") if fed else _causal(paddle, tokens)
    h = nn.embedding(ids, [words, width], param_attr=paddle.ParamAttr(name="tokens"))
    h = h + paddle.static.create_parameter([tokens, width], "float32", name="positions")
    for _ in range(GPT["layers"]):
        n = nn.layer_norm(h, begin_norm_axis=2)
        h = h + _attention(paddle, n, mask, width, GPT["heads"], 0.0)
        h = h + _feed_forward(paddle, nn.layer_norm(h, begin_norm_axis=2), width, approximate=True)
    h = nn.layer_norm(h, begin_norm_axis=2)
    tied = paddle.static.default_main_program().global_block().var("tokens")
    loss = _mean_loss(paddle, paddle.matmul(h, tied, transpose_y=True), label)
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    _minimize(paddle, paddle.optimizer.AdamW(3e-4, weight_decay=0.1, grad_clip=clip), loss, low)
    return loss


# ----------------------------------------------------------------------------------------------------------------- BERT
BERT = {"layers": 12, "width": 768, "heads": 12, "tokens": 128, "vocabulary": 30522, "batch": 64, "masked": 1280}


def _bert(paddle: Any, low: bool = False) -> Any:
    nn, functional = paddle.static.nn, paddle.nn.functional
    width, tokens, batch = BERT["width"], BERT["tokens"], BERT["batch"]
    ids, kinds = (paddle.static.data(name, [batch, tokens], "int64") for name in ("ids", "kinds"))
    mask = paddle.static.data("mask", [batch, 1, 1, tokens], "float32")
    places = paddle.static.data("places", [BERT["masked"]], "int64")
    label = paddle.static.data("label", [BERT["masked"], 1], "int64")
    follows = paddle.static.data("follows", [batch, 1], "int64")
    h = nn.embedding(ids, [BERT["vocabulary"], width], param_attr=paddle.ParamAttr(name="words"))
    h = h + paddle.static.create_parameter([tokens * 4, width], "float32", name="positions")[:tokens]
    h = h + nn.embedding(kinds, [2, width])
    h = functional.dropout(nn.layer_norm(h, begin_norm_axis=2), 0.1)
    for _ in range(BERT["layers"]):
        mixed = functional.dropout(_attention(paddle, h, mask, width, BERT["heads"], 0.1), 0.1)
        h = nn.layer_norm(h + mixed, begin_norm_axis=2)
        wide = functional.dropout(_feed_forward(paddle, h, width, approximate=False), 0.1)
        h = nn.layer_norm(h + wide, begin_norm_axis=2)
    pooled = nn.fc(h[:, 0], width, activation="tanh")
    told = paddle.gather(paddle.reshape(h, [batch * tokens, width]), places)
    told = nn.layer_norm(functional.gelu(nn.fc(told, width)))
    words = paddle.static.default_main_program().global_block().var("words")
    bias = paddle.static.create_parameter([BERT["vocabulary"]], "float32", name="words.b", is_bias=True)
    loss = _mean_loss(paddle, paddle.matmul(told, words, transpose_y=True) + bias, label)
    loss = loss + _mean_loss(paddle, nn.fc(pooled, 2), follows)
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    _minimize(paddle, paddle.optimizer.AdamW(1e-4, weight_decay=0.01, grad_clip=clip), loss, low)
    return loss


# --------------------------------------------------------------------------------------------------------------- ResNet
RESNET = {"batch": 256, "side": 224, "classes": 1000}
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks, and channels of their inner convolutions."""


def _resnet(paddle: Any) -> Any:
    nn, functional = paddle.static.nn, paddle.nn.functional

    def norm(x: Any, channels: int, size: int, stride: int, act: str | None) -> Any:
        x = nn.conv2d(x, channels, size, stride, size // 2, bias_attr=False, data_format="NHWC")
        return nn.batch_norm(x, act=act, data_layout="NHWC")

    x = paddle.static.data("x", [RESNET["batch"], RESNET["side"], RESNET["side"], 3], "float32")
    label = paddle.static.data("label", [RESNET["batch"], 1], "int64")
    h = norm(x, 64, 7, 2, "relu")
    h = functional.max_pool2d(h, 3, 2, 1, data_format="NHWC")
    for stage, (blocks, channels) in enumerate(STAGES):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            short = h if block else norm(h, 4 * channels, 1, stride, None)
            inner = norm(norm(h, channels, 1, 1, "relu"), channels, 3, stride, "relu")
            h = functional.relu(norm(inner, 4 * channels, 1, 1, None) + short)
    h = functional.adaptive_avg_pool2d(h, 1, data_format="NHWC")
    loss = _mean_loss(paddle, nn.fc(h, RESNET["classes"]), label)
    paddle.optimizer.Momentum(0.1, 0.9, weight_decay=paddle.regularizer.L2Decay(1e-4)).minimize(loss)
    return loss


_GPT_FEEDS: Mapping[str, Shape] = {"ids": (8, 1024), "label": (8, 1024, 1)}
_BERT_FEEDS: Mapping[str, Shape] = {
    "ids": (64, 128), "kinds": (64, 128), "mask": (64, 1, 1, 128), "places": (1280,), "label": (1280, 1), "follows": (64, 1),
}  # fmt: skip
_TF32 = "fp32 throughout, products in TF32"
_LOW = "AMP O2: bfloat16, float32 copies of the parameters"

MODELS: dict[str, Model] = {
    "gpt": Model(
        "GPT-2 124M, 8 x 1024 tokens, AdamW, clip by global norm", _gpt, _GPT_FEEDS, 124_475_904,
        f"{_TF32}; dropout 0", tf32=True,
    ),
    "gpt-fed": Model(
        "GPT-2 124M with the causal mask fed, 8 x 1024 tokens, AdamW, clip by global norm", partial(_gpt, fed=True),
        {**_GPT_FEEDS, "mask": (1024, 1024)}, 124_475_904, f"{_TF32}; dropout 0; a fed mask is none that compilers know",
        tf32=True,
    ),
    "gpt-bf16": Model(
        "GPT-2 124M in bfloat16, 8 x 1024 tokens, AdamW, clip by global norm", partial(_gpt, low=True), _GPT_FEEDS,
        124_475_904, f"{_LOW}; dropout 0",
    ),
    "bert": Model(
        "BERT-base, 64 x 128 tokens, AdamW, clip by global norm", _bert, _BERT_FEEDS, 110_106_428, _TF32, tf32=True,
    ),
    "bert-bf16": Model(
        "BERT-base in bfloat16, 64 x 128 tokens, AdamW, clip by global norm", partial(_bert, low=True), _BERT_FEEDS,
        110_106_428, _LOW,
    ),
    "resnet": Model(
        "ResNet-50, 256 x 224 x 224, NHWC, Momentum with L2", _resnet,
        {"x": (256, 224, 224, 3), "label": (256, 1)}, 25_557_032, "fp32 throughout",
    ),
}  # fmt: skip
