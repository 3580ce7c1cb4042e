"""Feed-forward blocks in all their forms, as recipes: norms, dropouts, biases, residual, activation, and sizes beyond one tile."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tstatic import testing
from tstatic.ir.opdef import ValueRange
from tstatic.testing import Input, Step

ACTIVATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gelu", {"approximate": False}), ("gelu", {"approximate": True}), ("relu", {}), ("silu", {}), ("tanh", {}),
)  # fmt: skip
UPSCALE, DOWNGRADE = "upscale_in_train", "downgrade_in_infer"
SMALL = ValueRange(-0.6, 0.6)


@dataclass(frozen=True)
class Block:
    """One form of a block.

    Attributes:
        leading: Sizes before the last axis.
        width, inner: Size of the last axis, and of that between the two products.
        product: ``mul`` or ``matmul_v2``.
        turned: With ``matmul_v2``, whether the weights are stored transposed.
        act: Type and attributes.
        norm: Where the layer norm stands: ``pre``, ``post``, ``both`` or nowhere.
        dropout: Probabilities of the two dropouts; 0: there is none.
        implementation, is_test: Of both.
        biases: Whether the products have one.
        residual: Whether the input is added: on the ``left``, on the ``right`` or not.
        dtype: Of all but the norms' parameters.
    """

    leading: tuple[int, ...] = (3, 7)
    width: int = 19
    inner: int = 35
    product: str = "mul"
    turned: tuple[bool, bool] = (False, False)
    act: tuple[str, dict[str, Any]] = ACTIVATIONS[0]
    norm: str = ""
    dropout: tuple[float, float] = (0.0, 0.0)
    implementation: tuple[str, str] = (UPSCALE, UPSCALE)
    is_test: tuple[bool, bool] = (False, False)
    biases: tuple[bool, bool] = (True, True)
    residual: str = "left"
    dtype: str = "float32"

    @property
    def rank(self) -> int:
        return len(self.leading) + 1


class _Writer:
    def __init__(self, block: Block, parameters: bool) -> None:
        self.block = block
        self.parameters = parameters
        self.inputs: list[Input] = []
        self.steps: list[Step] = []

    def given(self, name: str, shape: Sequence[int], dtype: str = "", learned: bool = True) -> str:
        number, dtype = len(self.inputs), dtype or self.block.dtype
        values = SMALL if learned else ValueRange()
        # Parameters are float32: those of other types are casts of them.
        own = self.parameters and learned
        wide = "float32" if own else dtype
        self.inputs.append(Input(name, tuple(shape), wide, values, 100 + number, own))
        if dtype == wide:
            return name
        return self.step("cast", {"X": name}, f"{name}_low", {"in_dtype": wide, "out_dtype": dtype})

    def step(self, kind: str, ins: dict[str, str], out: str, attrs: dict[str, Any], **more: str) -> str:
        slot = "Y" if kind == "layer_norm" else "Out"
        self.steps.append(Step.of(kind, ins, {slot: out, **more}, attrs))
        return out

    def norm(self, x: str, number: int) -> str:
        ins = {"X": x, "Scale": self.given(f"scale{number}", (self.block.width,), "float32")}
        ins["Bias"] = self.given(f"shift{number}", (self.block.width,), "float32")
        attrs = {"begin_norm_axis": self.block.rank - 1, "epsilon": 1e-5}
        more = {"Mean": f"mean{number}", "Variance": f"variance{number}"}
        return self.step("layer_norm", ins, f"norm{number}", attrs, **more)

    def linear(self, x: str, number: int) -> str:
        b = self.block
        sizes = (b.width, b.inner) if number == 1 else (b.inner, b.width)
        turned = b.product != "mul" and b.turned[number - 1]
        weight = self.given(f"w{number}", sizes[::-1] if turned else sizes)
        attrs = {"x_num_col_dims": b.rank - 1} if b.product == "mul" else {"trans_x": False, "trans_y": turned}
        h = self.step(b.product, {"X": x, "Y": weight}, f"product{number}", attrs)
        if b.biases[number - 1]:
            bias = self.given(f"b{number}", sizes[1:])
            axis = b.rank - 1 if b.product == "mul" else -1
            h = self.step("elementwise_add", {"X": h, "Y": bias}, f"biased{number}", {"axis": axis})
        return h

    def dropout(self, x: str, number: int) -> str:
        b = self.block
        if not b.dropout[number - 1]:
            return x
        attrs = {
            "dropout_prob": b.dropout[number - 1],
            "dropout_implementation": b.implementation[number - 1],
            "is_test": b.is_test[number - 1],
        }
        return self.step("dropout", {"X": x}, f"dropped{number}", attrs, Mask=f"mask{number}")


def recipe(block: Block, backward: bool = False, optimizer: str = "", runs: int = 1) -> testing.Recipe:
    """The block between an op before it and one behind it."""
    w = _Writer(block, bool(optimizer))
    x = w.given("x", (*block.leading, block.width), learned=False)
    h = w.norm(x, 1) if block.norm in ("pre", "both") else x
    h = w.linear(h, 1)
    h = w.dropout(w.step(block.act[0], {"X": h}, "activated", block.act[1]), 1)
    h = w.dropout(w.linear(h, 2), 2)
    if block.residual:
        pair = {"X": x, "Y": h} if block.residual == "left" else {"X": h, "Y": x}
        h = w.step("elementwise_add", pair, "total", {"axis": -1})
    if block.norm in ("post", "both"):
        h = w.norm(h, 2)
    floats = tuple(i.name for i in w.inputs)
    return testing.Recipe(tuple(w.inputs), tuple(w.steps), (h,), floats if backward else (), optimizer, runs)


DTYPES = ("float32", "float32", "bfloat16", "float16")


def _any_form(either: Callable[..., Any], between: Callable[[int, int], int], dtypes: Sequence[str]) -> Block:
    """Any form, with odd sizes and two tiles along each axis; the arguments choose one of several values, and a number."""
    test = either(False, False, False, True)
    return Block(
        leading=either((3, 7), (21,), (2, 3, 5), (33,), (50,)),
        width=between(17, 33),
        inner=between(17, 52),
        product=either("mul", "matmul_v2"),
        turned=(either(False, True), either(False, True)),
        act=either(*ACTIVATIONS),
        norm=either("", "pre", "post", "both"),
        dropout=(either(0.0, 0.3), either(0.0, 0.25)),
        implementation=(either(UPSCALE, DOWNGRADE), either(UPSCALE, DOWNGRADE)),
        is_test=(test, test),
        biases=(either(True, True, False), either(True, True, False)),
        residual=either("", "left", "right"),
        dtype=either(*dtypes),
    )


def numbered(number: int) -> Block:
    """Returns a block; the same one for a number."""
    rng = random.Random(number)
    return _any_form(lambda *values: rng.choice(values), rng.randint, DTYPES)


@st.composite
def blocks(draw: st.DrawFn, dtypes: Sequence[str] = DTYPES) -> Block:
    """Any form."""
    return _any_form(
        lambda *values: draw(st.sampled_from(values)), lambda low, high: draw(st.integers(low, high)), dtypes
    )


def recipes(
    backward: bool = False, optimizer: Any = False, runs: int = 1, **kinds: Any
) -> st.SearchStrategy[testing.Recipe]:
    """Programs that consist of one block; arguments as of ``testing.programs``."""
    name = "SGD" if optimizer else ""
    return blocks(**{k: v for k, v in kinds.items() if k == "dtypes"}).map(
        lambda block: recipe(block, backward, name, runs)
    )


__all__ = ["ACTIVATIONS", "DOWNGRADE", "UPSCALE", "Block", "blocks", "numbered", "recipe", "recipes"]
