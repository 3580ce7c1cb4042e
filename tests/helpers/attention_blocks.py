"""Multi-head attention blocks in all their forms, as recipes: how queries, keys and values are packed, and what is around them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tstatic import testing
from tstatic.ir.opdef import ValueRange
from tstatic.testing import Input, Step

PACKINGS = ("parts", "three", "index", "heads", "slices", "separate", "pair")
"""Parts of the last axis that become heads; ``[3, heads, size]``, whose entries are unbound or indexed; ``[heads, 3 * size]``,
split within each head; slices of the last axis; three values; one value, and two packed as ``[2, heads, size]``."""
SMALL = ValueRange(-0.6, 0.6)
NO = {"trans_x": False, "trans_y": False}


@dataclass(frozen=True)
class Block:
    """One form of a block.

    Attributes:
        batch, rows, heads, size: Sizes; the input is ``[batch, rows, width]``, and ``heads * size`` the width.
        packing: One of ``PACKINGS``.
        projected: Whether products make queries, keys and values of the input, and one more the result; else they are fed.
        product: ``mul`` or ``matmul_v2``.
        biases: Whether the products have one.
        scale: What is multiplied by ``size ** -0.5``: ``query``, ``scores`` or nothing.
        mask: Shape that is added to the scores: ``pairs``, ``keys`` or nothing.
        dropout: Probabilities of those behind the weights and behind the last product; 0: there is none.
        norm: Where the layer norm stands: ``pre``, ``post`` or nowhere.
        residual: Whether the input is added: on the ``left``, on the ``right`` or not.
        dtype: Of all but the norm's parameters.
    """

    batch: int = 2
    rows: int = 19
    heads: int = 2
    size: int = 8
    packing: str = "parts"
    projected: bool = False
    product: str = "mul"
    biases: bool = True
    scale: str = "scores"
    mask: str = ""
    dropout: tuple[float, float] = (0.0, 0.0)
    norm: str = ""
    residual: str = ""
    dtype: str = "float32"

    @property
    def width(self) -> int:
        return self.heads * self.size


class _Writer:
    def __init__(self, block: Block, parameters: bool) -> None:
        self.block = block
        self.parameters = parameters
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.masks: list[str] = []

    def given(self, name: str, shape: Sequence[int], dtype: str = "", learned: bool = True) -> str:
        number, dtype = len(self.inputs), dtype or self.block.dtype
        own = self.parameters and learned
        wide = "float32" if own else dtype
        self.inputs.append(Input(name, tuple(shape), wide, SMALL if learned else ValueRange(), 100 + number, own))
        if dtype == wide:
            return name
        return self.step("cast", {"X": name}, f"{name}_low", {"in_dtype": wide, "out_dtype": dtype})

    def step(self, kind: str, ins: dict[str, Any], out: Any, attrs: dict[str, Any], **more: str) -> Any:
        slot = "Y" if kind == "layer_norm" else "Out"
        self.steps.append(Step.of(kind, ins, {slot: out, **more}, attrs))
        return out

    # ------------------------------------------------------------------------------------------------------------- parts
    def norm(self, x: str) -> str:
        ins = {"X": x, "Scale": self.given("scale", (self.block.width,), "float32")}
        ins["Bias"] = self.given("shift", (self.block.width,), "float32")
        return str(
            self.step(
                "layer_norm", ins, "norm", {"begin_norm_axis": 2, "epsilon": 1e-5}, Mean="mean", Variance="variance"
            )
        )

    def linear(self, x: str, name: str, columns: int) -> str:
        b = self.block
        weight = self.given(f"w_{name}", (b.width, columns))
        attrs = {"x_num_col_dims": 2} if b.product == "mul" else NO
        h = self.step(b.product, {"X": x, "Y": weight}, f"product_{name}", attrs)
        if b.biases:
            bias = self.given(f"b_{name}", (columns,))
            axis = 2 if b.product == "mul" else -1
            h = self.step("elementwise_add", {"X": h, "Y": bias}, f"biased_{name}", {"axis": axis})
        return str(h)

    def made(self, x: str, name: str, columns: int) -> str:
        """Returns what holds queries, keys or values: a product, or an input."""
        if self.block.projected:
            return self.linear(x, name, columns)
        return self.given(name, (self.block.batch, self.block.rows, columns))

    def reshape(self, x: str, out: str, *shape: int) -> str:
        return str(self.step("reshape2", {"X": x}, out, {"shape": (self.block.batch, self.block.rows, *shape)}))

    def transpose(self, x: str, out: str, *axes: int) -> str:
        return str(self.step("transpose2", {"X": x}, out, {"axis": axes}))

    def split(self, x: str, outs: Sequence[str], axis: int) -> list[str]:
        attrs = {"num": len(outs), "sections": (), "axis": axis}
        return list(self.step("split", {"X": x}, tuple(outs), attrs))

    def as_heads(self, x: str, name: str) -> str:
        shaped = self.reshape(x, f"{name}_shaped", self.block.heads, self.block.size)
        return self.transpose(shaped, f"{name}_heads", 0, 2, 1, 3)

    def sliced(self, x: str, out: str, axis: int, start: int, end: int, gone: bool) -> str:
        attrs = {"axes": (axis,), "starts": (start,), "ends": (end,), "decrease_axis": (axis,) if gone else ()}
        return str(self.step("slice", {"Input": x}, out, attrs))

    def apart(self, x: str) -> tuple[str, str, str]:
        """Returns queries, keys and values, ``[batch, heads, rows, size]`` each."""
        b, w = self.block, self.block.width
        names = ("q", "k", "v")
        if b.packing == "separate":
            q, k, v = (self.as_heads(self.made(x, n, w), n) for n in names)
            return q, k, v
        if b.packing == "pair":
            q = self.as_heads(self.made(x, "q", w), "q")
            shaped = self.reshape(self.made(x, "kv", 2 * w), "kv_shaped", 2, b.heads, b.size)
            turned = self.transpose(shaped, "kv_turned", 2, 0, 3, 1, 4)
            k, v = self.step("unbind", {"X": turned}, ("k_heads", "v_heads"), {"axis": 0, "num": 2})
            return q, k, v
        packed = self.made(x, "qkv", 3 * w)
        if b.packing == "parts":
            parts = self.split(packed, [f"{n}_part" for n in names], 2)
            q, k, v = (self.as_heads(part, n) for part, n in zip(parts, names, strict=True))
        elif b.packing == "slices":
            parts = [self.sliced(packed, f"{n}_part", 2, i * w, (i + 1) * w, False) for i, n in enumerate(names)]
            q, k, v = (self.as_heads(part, n) for part, n in zip(parts, names, strict=True))
        elif b.packing == "heads":
            turned = self.transpose(self.reshape(packed, "shaped", b.heads, 3 * b.size), "turned", 0, 2, 1, 3)
            q, k, v = self.split(turned, [f"{n}_heads" for n in names], 3)
        else:
            turned = self.transpose(self.reshape(packed, "shaped", 3, b.heads, b.size), "turned", 2, 0, 3, 1, 4)
            heads = tuple(f"{n}_heads" for n in names)
            if b.packing == "three":
                q, k, v = self.step("unbind", {"X": turned}, heads, {"axis": 0, "num": 3})
            else:
                q, k, v = (self.sliced(turned, n, 0, i, i + 1, True) for i, n in enumerate(heads))
        return q, k, v

    def core(self, q: str, k: str, v: str) -> str:
        b = self.block
        factor = {"scale": b.size**-0.5, "bias": 0.0}
        if b.scale == "query":
            q = self.step("scale", {"X": q}, "q_scaled", factor)
        scores = self.step("matmul_v2", {"X": q, "Y": k}, "scores", {"trans_x": False, "trans_y": True})
        if b.scale == "scores":
            scores = self.step("scale", {"X": scores}, "scaled", factor)
        if b.mask:
            shape = (b.rows, b.rows) if b.mask == "pairs" else (b.batch, 1, 1, b.rows)
            self.masks.append("mask")
            self.inputs.append(Input("mask", shape, b.dtype, ValueRange(-20.0, 2.0), 7, False))
            scores = self.step("elementwise_add", {"X": scores, "Y": "mask"}, "masked", {"axis": -1})
        weights = self.dropout(self.step("softmax", {"X": scores}, "weights", {"axis": -1}), 0)
        return str(self.step("matmul_v2", {"X": weights, "Y": v}, "mixed", NO))

    def dropout(self, x: str, number: int) -> str:
        rate = self.block.dropout[number]
        if not rate:
            return x
        attrs = {"dropout_prob": rate, "dropout_implementation": "upscale_in_train", "is_test": False}
        return str(self.step("dropout", {"X": x}, f"dropped{number}", attrs, Mask=f"mask{number}"))


def recipe(block: Block, kind: str = "forward", runs: int = 2) -> testing.Recipe:
    """Returns the program of a block.

    Args:
        block: Its form.
        kind: ``forward``, ``gradients`` (those of all inputs but the mask) or ``training``.
        runs: Steps of a training.
    """
    w = _Writer(block, kind == "training")
    x = w.given("x", (block.batch, block.rows, block.width), learned=False) if block.projected else ""
    h = w.norm(x) if block.projected and block.norm == "pre" else x
    mixed = w.core(*w.apart(h))
    out = w.reshape(w.transpose(mixed, "turned_back", 0, 2, 1, 3), "joined", block.width)
    if block.projected:
        out = w.dropout(w.linear(out, "out", block.width), 1)
        if block.residual:
            pair = {"X": x, "Y": out} if block.residual == "left" else {"X": out, "Y": x}
            out = w.step("elementwise_add", pair, "total", {"axis": -1})
        if block.norm == "post":
            out = w.norm(out)
    learned = tuple(i.name for i in w.inputs if i.name not in w.masks)
    trained = kind == "training"
    return testing.Recipe(
        tuple(w.inputs), tuple(w.steps), (out,), learned if kind == "gradients" else (), "SGD" if trained else "",
        runs if trained else 1,
    )  # fmt: skip


def drawn_block(number: int, **fixed: Any) -> Block:
    """Returns a block with odd sizes, of any form; the same one for a number."""
    pick = random.Random(number).choice
    drawn: dict[str, Any] = {
        "batch": pick((1, 2)), "rows": pick((17, 19, 33)), "heads": pick((1, 2, 3)), "size": pick((5, 8, 16)),
        "packing": PACKINGS[number % len(PACKINGS)], "product": pick(("mul", "matmul_v2")), "biases": pick((True, True, False)),
        "scale": pick(("query", "scores", "scores", "")), "mask": pick(("", "pairs", "keys")),
        "dropout": (pick((0.0, 0.3)), pick((0.0, 0.25))), "norm": pick(("", "pre", "post")),
        "residual": pick(("", "left", "right")), "dtype": pick(("float32", "float32", "bfloat16", "float16")),
    }  # fmt: skip
    return Block(**{**drawn, **fixed})


def layout_recipe(number: int, kind: str = "forward", runs: int = 2) -> testing.Recipe:
    """Returns a program with an attention whose operands are packed; the same one for a number."""
    return recipe(drawn_block(number, **({"dtype": "float32"} if kind == "training" else {})), kind, runs)


def block_recipe(number: int, kind: str = "forward", runs: int = 2) -> testing.Recipe:
    """Returns a program of a whole block; the same one for a number."""
    more = {"dtype": "float32"} if kind == "training" else {}
    return recipe(drawn_block(number, projected=True, **more), kind, runs)
