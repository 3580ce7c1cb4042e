"""Attention, encoder and decoder against torch's modules with the same weights; caches step by step; names and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.layer_check import check_error, check_layer, randomise, sample
from tstatic import nn, static
from tstatic.errors import NotFoundError, ProgramError, ProgramTypeError, ShapeError
from tstatic.nn.layer.transformer import _convert_param_attr_to_list

torch = pytest.importorskip("torch")
HERE = "test_transformer.py"


def attention(p: Any, first: int, prefix: str) -> dict[str, Any]:
    """Torch's parameters of an attention whose four Linear layers are numbered from ``first``."""
    w = [p[f"linear_{first + i}.w_0"].T for i in range(4)]
    b = [p[f"linear_{first + i}.b_0"] for i in range(4)]
    return {
        f"{prefix}in_proj_weight": torch.cat(w[:3]),
        f"{prefix}in_proj_bias": torch.cat(b[:3]),
        f"{prefix}out_proj.weight": w[3],
        f"{prefix}out_proj.bias": b[3],
    }


def block(p: Any, first: int, norm: int, prefix: str, decoder: bool) -> dict[str, Any]:
    """Torch's parameters of an encoder or decoder layer."""
    own = attention(p, first, f"{prefix}self_attn.")
    if decoder:
        own |= attention(p, first + 4, f"{prefix}multihead_attn.")
        first += 4
    for i in (0, 1):
        own[f"{prefix}linear{i + 1}.weight"] = p[f"linear_{first + 4 + i}.w_0"].T
        own[f"{prefix}linear{i + 1}.bias"] = p[f"linear_{first + 4 + i}.b_0"]
    return own | norms(p, norm, [f"{prefix}norm{i + 1}" for i in range(3 if decoder else 2)])


def norms(p: Any, first: int, names: list[str]) -> dict[str, Any]:
    """Torch's parameters of layer norms."""
    own = {}
    for i, name in enumerate(names):
        own[f"{name}.weight"], own[f"{name}.bias"] = p[f"layer_norm_{first + i}.w_0"], p[f"layer_norm_{first + i}.b_0"]
    return own


def call(module: Any, own: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    return torch.func.functional_call(module.double(), own, args, kwargs)


# ------------------------------------------------------------------------------------------------------------ attention
FLOAT_MASK = sample(5, 5, seed=3)
BOOL_MASK = np.tril(np.ones((5, 5), bool))


@pytest.mark.parametrize(
    "mask", [None, FLOAT_MASK, BOOL_MASK, BOOL_MASK.astype("int64")], ids=["none", "float", "bool", "int"]
)
def test_self_attention(mask: Any) -> None:
    other = None if mask is None else torch.tensor(mask if mask.dtype == np.float64 else mask == 0)
    run = check_layer(
        lambda x: nn.MultiHeadAttention(8, 2)(x, attn_mask=None if mask is None else paddle.assign(mask)),
        lambda p, x: call(
            torch.nn.MultiheadAttention(8, 2, batch_first=True), attention(p, 0, ""), x, x, x, attn_mask=other
        )[0],
        {"x": sample(3, 5, 8)},
        parameters=[f"linear_{i}.{n}_0" for i in range(4) for n in "wb"],
        result="linear_7.tmp_1",
    )
    assert [t for t in run.ops() if t != "assign_value"][:4] == [
        "matmul_v2",
        "elementwise_add",
        "reshape2",
        "transpose2",
    ]
    assert "softmax_0.tmp_0" in run.main.global_block().vars


def test_cross_attention_with_other_widths() -> None:
    def reference(p: Any, q: Any, k: Any, v: Any) -> Any:
        own = {f"{n}_proj_weight": p[f"linear_{i}.w_0"].T for i, n in enumerate("qkv")}
        own["in_proj_bias"] = torch.cat([p[f"linear_{i}.b_0"] for i in range(3)])
        own |= {"out_proj.weight": p["linear_3.w_0"].T, "out_proj.bias": p["linear_3.b_0"]}
        return call(torch.nn.MultiheadAttention(8, 2, kdim=3, vdim=5, batch_first=True), own, q, k, v)[0]

    check_layer(
        lambda q, k, v: nn.MultiHeadAttention(8, 2, kdim=3, vdim=5)(q, k, v),
        reference,
        {"q": sample(2, 4, 8), "k": sample(2, 6, 3), "v": sample(2, 6, 5)},
    )


def test_weights_are_returned_on_request() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 5, 8])
        _, weights = nn.MultiHeadAttention(8, 2, need_weights=True)(x)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    (value,) = exe.run(main, feed={"x": sample(3, 5, 8).astype("float32")}, fetch_list=[weights])
    assert value.shape == (3, 2, 5, 5)
    np.testing.assert_allclose(value.sum(-1), 1.0, rtol=1e-5)


# ------------------------------------------------------------------------------------------------------ encoder, decoder
BLOCK = ["norm_first", "norm_last"]


@pytest.mark.parametrize("before", [True, False], ids=BLOCK)
def test_encoder_layer(before: bool) -> None:
    module = torch.nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", batch_first=True, norm_first=before)
    check_layer(
        lambda x: nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", normalize_before=before)(x),
        lambda p, x: call(module.train(), block(p, 0, 0, "", decoder=False), x),
        {"x": sample(3, 5, 8)},
        parameters=[
            *(f"linear_{i}.{n}_0" for i in range(6) for n in "wb"), *(f"layer_norm_{i}.{n}_0" for i in (0, 1) for n in "wb"),
        ],
    )  # fmt: skip


@pytest.mark.parametrize("before", [True, False], ids=BLOCK)
def test_decoder_layer(before: bool) -> None:
    module = torch.nn.TransformerDecoderLayer(8, 2, 12, 0.0, "relu", batch_first=True, norm_first=before)
    mask = np.triu(np.full((4, 4), -np.inf), 1)
    check_layer(
        lambda y, x: nn.TransformerDecoderLayer(8, 2, 12, 0.0, normalize_before=before)(
            y, x, tgt_mask=paddle.assign(mask)
        ),
        lambda p, y, x: call(module, block(p, 0, 0, "", decoder=True), y, x, tgt_mask=torch.tensor(mask)),
        {"y": sample(3, 4, 8), "x": sample(3, 5, 8, seed=1)},
    )


def test_transformer() -> None:
    module = torch.nn.Transformer(8, 2, 2, 2, 12, 0.0, batch_first=True)

    def build(x: Any, y: Any) -> Any:
        net = nn.Transformer(8, 2, 2, 2, 12, 0.0)
        return net(x, y, tgt_mask=net.generate_square_subsequent_mask(4))

    def reference(p: Any, x: Any, y: Any) -> Any:
        own = block(p, 0, 0, "encoder.layers.0.", decoder=False) | block(p, 6, 3, "encoder.layers.1.", decoder=False)
        own |= norms(p, 2, ["encoder.norm"])
        own |= block(p, 12, 5, "decoder.layers.0.", decoder=True) | block(p, 22, 9, "decoder.layers.1.", decoder=True)
        own |= norms(p, 8, ["decoder.norm"])
        return call(module, own, x, y, tgt_mask=module.generate_square_subsequent_mask(4).double())

    check_layer(build, reference, {"x": sample(3, 5, 8), "y": sample(3, 4, 8, seed=1)})


def test_dropout_is_off_after_eval() -> None:
    x = static.data("x", [None, 5, 8])
    net = nn.Transformer(8, 2, 1, 1, 12, 0.5, attn_dropout=0.2, act_dropout=0.1)
    net(x, x)
    net.eval()
    net(x, x)
    drops = [op for op in static.default_main_program().global_block().ops if op.type == "dropout"]
    assert [op.attr("is_test") for op in drops] == [False] * (len(drops) // 2) + [True] * (len(drops) // 2)
    assert sorted(op.attr("dropout_prob") for op in drops[: len(drops) // 2]) == [0.1] * 2 + [0.2] * 3 + [0.5] * 5


def run_both(build: Any, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """Fetches several results of one program with random parameters."""
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with static.program_guard(main, startup):
        outs = build(*(static.data(n, [None, *a.shape[1:]]) for n, a in feeds.items()))
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup, scope=scope)
    randomise(main, scope)
    return exe.run(main, feed={n: a.astype("float32") for n, a in feeds.items()}, fetch_list=outs, scope=scope)


def test_caches_give_step_by_step_what_a_mask_gives_at_once() -> None:
    def build(x: Any, y: Any) -> list[Any]:
        decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, 0.0), 2, nn.LayerNorm(8))
        mask = nn.Transformer(8, 2, 1, 1, 12).generate_square_subsequent_mask(3)
        whole = decoder(y, x, tgt_mask=mask)
        cache, steps = decoder.gen_cache(x), []
        for i in range(3):
            step, cache = decoder(y[:, i : i + 1], x, cache=cache)
            steps.append(step)
        assert isinstance(cache[0][0], nn.MultiHeadAttention.Cache)
        assert isinstance(cache[0][1], nn.MultiHeadAttention.StaticCache)
        zipped = decoder.gen_cache(x, do_zip=True)
        assert [len(z) for z in zipped] == [2, 2]
        return [whole, paddle.concat(steps, axis=1)]

    whole, steps = run_both(build, {"x": sample(2, 5, 8), "y": sample(2, 3, 8, seed=1)})
    np.testing.assert_allclose(steps, whole, rtol=2e-4, atol=2e-5)


def test_the_encoder_takes_caches_too() -> None:
    def build(x: Any) -> list[Any]:
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.0), 2)
        mask = nn.Transformer(8, 2, 1, 1, 12).generate_square_subsequent_mask(2)
        cache, steps = encoder.gen_cache(x), []
        for i in range(2):
            step, cache = encoder(x[:, i : i + 1], cache=cache)
            steps.append(step)
        return [encoder(x, mask), paddle.concat(steps, axis=1)]

    whole, steps = run_both(build, {"x": sample(2, 2, 8)})
    np.testing.assert_allclose(steps, whole, rtol=2e-4, atol=2e-5)


# ------------------------------------------------------------------------------------------------- attributes and errors
def test_attributes_are_spread_over_parts() -> None:
    assert [a.name for a in _convert_param_attr_to_list(paddle.ParamAttr(name="q"), 3)] == ["q_0", "q_1", "q_2"]
    assert _convert_param_attr_to_list(False, 2) == [False, False]
    mixed = _convert_param_attr_to_list([True, False, "z"], 3)
    assert (mixed[0], mixed[1], mixed[2].name) == (None, False, "z")
    assert all(a.name is None for a in _convert_param_attr_to_list(None, 2))


def test_biases_can_be_left_out() -> None:
    net = nn.Transformer(8, 2, 1, 1, 12, bias_attr=[False, None])
    own = {n for n, _ in net.named_parameters()}
    assert "encoder.layers.0.self_attn.q_proj.bias" not in own
    assert "encoder.layers.0.linear1.bias" in own
    assert "decoder.layers.0.cross_attn.q_proj.bias" not in own
    assert "decoder.layers.0.linear1.bias" in own


def test_custom_stacks_take_the_place_of_the_own_ones() -> None:
    encoder = nn.Linear(8, 8)

    class Twice(nn.Layer):
        def forward(self, tgt: Any, memory: Any, tgt_mask: Any, memory_mask: Any) -> Any:
            return paddle.add(tgt, memory)

    class First(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = encoder

        def forward(self, src: Any, mask: Any) -> Any:
            return self.inner(src)

    x = static.data("x", [None, 5, 8])
    net = nn.Transformer(8, 2, custom_encoder=First(), custom_decoder=Twice())
    net(x, x)
    assert len(net.parameters()) == 2


BAD = {
    "attention: heads": (lambda: nn.MultiHeadAttention(7, 2), ShapeError, "num_heads=2"),
    "attention: width": (lambda: nn.MultiHeadAttention(0, 2), ShapeError, "embed_dim"),
    "layer: size": (lambda: nn.TransformerEncoderLayer(8, 2, -1), ShapeError, "dim_feedforward"),
    "layer: activation": (lambda: nn.TransformerEncoderLayer(8, 2, 4, activation="rleu"), NotFoundError, "rleu"),
    "layer: attributes": (
        lambda: nn.TransformerEncoderLayer(8, 2, 4, weight_attr=[None] * 3),
        ProgramError,
        "2 values",
    ),
    "encoder: layers": (lambda: nn.TransformerEncoder(nn.ReLU(), 0), ShapeError, "num_layers"),
    "encoder: kind": (lambda: nn.TransformerEncoder(nn.ReLU(), 2), ProgramError, "_config"),
    "transformer: attributes": (lambda: nn.Transformer(8, 2, 1, 1, 4, weight_attr=[]), ProgramError, "1, 2 or 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_constructors_are_refused(name: str) -> None:
    make, kind, words = BAD[name]
    check_error(make, kind, words=words, file=HERE)


def test_bad_queries_are_refused() -> None:
    layer = nn.MultiHeadAttention(8, 2)
    flat = static.data("flat", [None, 8])
    check_error(lambda: layer(flat), ShapeError, words="3 dimensions", file=HERE)
    check_error(lambda: layer(3), ProgramTypeError, words="query", file=HERE)
