"""Which functions of generated modules only a chip launches, found by their plans; and a fault for each of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from tests.helpers.attention_blocks import block_recipe
from tests.helpers.attention_programs import attention_recipe
from tests.helpers.drawn import BY_NAME, only
from tests.helpers.epilogue_programs import epilogue_recipe
from tstatic import static, testing
from tstatic.fusion.codegen.kernel import Kernel, Launch
from tstatic.target import CHIPS, DEFAULT_TARGET, TINY, Target

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
OTHER_CHIPS = tuple(
    replace(DEFAULT_TARGET, multiprocessors=count, l2_bytes=size) for count, size in ((14, 4 << 20), (512, 1 << 28))
)
"""A part of a chip, and a larger one than there is: what a plan asks of the size of a chip has other answers."""


def functions(code: str) -> dict[str, set[str]]:
    """Function of a module -> those of its functions that it calls; a local variable may be called like one."""
    tree = ast.parse(code)
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    calls = {}
    for name, node in found.items():
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        own = {n.id for n in names if isinstance(n.ctx, ast.Store)} | {a.arg for a in node.args.args}
        calls[name] = ({n.id for n in names} - own) & found.keys()
    return calls


def reached(kernel: Kernel, targets: tuple[Target, ...], candidates: bool) -> set[str]:
    """The functions that run on some of these targets: launched by plans, or by candidates, too, or called."""
    calls = functions(kernel.code)
    pending = [
        launch.function
        for target in targets
        for way in (kernel.candidates(target) if candidates else [kernel.plan(target)])
        for launch in way.launches
        if isinstance(launch, Launch)
    ]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += calls[name]
    return found


def dead(kernel: Kernel) -> set[str]:
    """The functions of a module that nothing launches anywhere, and nothing that is launched calls."""
    everywhere = reached(kernel, (*CHIPS, *OTHER_CHIPS), candidates=True) | reached(kernel, (TINY,), candidates=False)
    return functions(kernel.code).keys() - everywhere


def only_on_chips(kernel: Kernel) -> set[str]:
    """The functions that run on some chip and not in the interpreter, of a kernel of several parts without the part's number."""
    found = reached(kernel, CHIPS, candidates=True) - reached(kernel, (TINY,), candidates=False)
    return {re.sub(r"^part\d+_", "", name) for name in found}


# --------------------------------------------------------------------------------------------------------------- samples
@dataclass(frozen=True)
class Sample:
    """A drawn program, and the switch under which it has the kernels."""

    draw: Callable[[int, str], testing.Recipe]
    number: int
    fusion: str

    def __str__(self) -> str:
        return f"{self.draw.__name__}-{self.number}"

    @property
    def recipe(self) -> testing.Recipe:
        return self.draw(self.number, "gradients")

    @property
    def strategy(self) -> static.BuildStrategy:
        return only(BY_NAME[self.fusion].switch)

    @cache  # noqa: B019 - a handful of samples
    def kernels(self) -> tuple[Kernel, ...]:
        built = self.recipe.build()
        told = static.CompiledProgram(built.main, self.strategy).explain(
            fetch_list=built.fetches, feed_shapes={n: np.shape(a) for n, a in built.feeds.items()}
        )
        return tuple(told.kernels)


ATTENTION = Sample(attention_recipe, 2, "dot_product_attention")
HALF_ATTENTION = Sample(attention_recipe, 6, "dot_product_attention")
BLOCK = Sample(block_recipe, 1, "attention")
LOW_BLOCK = Sample(block_recipe, 8, "attention")
PRODUCT = Sample(epilogue_recipe, 4, "gemm_epilogue")
TWO_PRODUCTS = Sample(epilogue_recipe, 6, "gemm_epilogue")
LOW_PRODUCT = Sample(epilogue_recipe, 9, "gemm_epilogue")
SAMPLES = (ATTENTION, HALF_ATTENTION, BLOCK, LOW_BLOCK, PRODUCT, TWO_PRODUCTS, LOW_PRODUCT)


# ---------------------------------------------------------------------------------------------------------------- faults
@dataclass(frozen=True)
class FunctionFault:
    """A fault in one function that only a chip launches.

    Attributes:
        sample: A program whose kernels have the function.
        function: Its name, without the number of a part.
        pattern, by: What is replaced in its text.
    """

    sample: Sample
    function: str
    pattern: str
    by: str

    def __str__(self) -> str:
        return f"{self.sample}-{self.function}"

    def plant(self, text: str) -> str:
        """Returns a module's text with the fault."""

        def broken(found: re.Match[str]) -> str:
            return re.sub(self.pattern, self.by, found[0], flags=re.MULTILINE)

        whole = rf"^def (part\d+_)?{self.function}\(.*?(?=\n\n\n)"
        return re.sub(whole, broken, text, flags=re.MULTILINE | re.DOTALL)


_SUMS = r"\(d - sums\[(None, :|:, None)\]\)"
_SAVED = r"saved\[None, :\]"
_MADE = r"total = wide\((tl\.load.*)\)$", r"total = 1.25 * wide(\1)"
_PRODUCT = r"total = (\w*product\(.*)$", r"total = 1.25 * \1"

FAULTS = (
    FunctionFault(ATTENTION, "weight_rows", r"/ total\[:, None\]", "/ (total[:, None] + 0.25)"),
    FunctionFault(ATTENTION, "gradient_rows", _SUMS, "d"),
    FunctionFault(ATTENTION, "row_sums", r"tl\.sum\(a \* b, 1\)", "tl.sum(a, 1)"),
    FunctionFault(ATTENTION, "keys", _SUMS, "d"),
    FunctionFault(ATTENTION, "values", _SAVED, "(0.75 * saved[None, :])"),
    FunctionFault(HALF_ATTENTION, "keys", _SUMS, "d"),
    FunctionFault(HALF_ATTENTION, "values", _SAVED, "(0.75 * saved[None, :])"),
    FunctionFault(BLOCK, "weight_rows", r"total \* tl\.exp\(top - shift\) \+ tl\.sum", "total + 1.5 * tl.sum"),
    FunctionFault(BLOCK, "gradient_rows", r"- rest\[:, None\]\)", "- rest[:, None] - 0.125)"),
    FunctionFault(BLOCK, "strip_sums", r"total \+= tl\.sum", "total -= tl.sum"),
    FunctionFault(BLOCK, "combine", *_MADE),
    FunctionFault(PRODUCT, "combine", *_MADE),
    FunctionFault(PRODUCT, "kernel", *_PRODUCT),
    FunctionFault(TWO_PRODUCTS, "second_kernel", *_PRODUCT),
    FunctionFault(LOW_PRODUCT, "go_on", *_MADE),
    FunctionFault(LOW_PRODUCT, "rest", r"to_bf16\((v\d+)\)", r"to_bf16(0.5 * \1)"),
)
QUICK = (FAULTS[0], FAULTS[12], FAULTS[15])
"""Those of every run: a function between the library's products, one that is an alternative, one that another calls."""


def missed() -> Iterator[str]:
    """Yields the functions of the samples that only chips launch, and that no fault is planted in."""
    planted = {(fault.sample, fault.function) for fault in FAULTS}
    names = {function for _, function in planted}
    for sample in SAMPLES:
        for kernel in sample.kernels():
            yield from only_on_chips(kernel) - names
