"""Every operator that draws element by element runs as a kernel by itself, with the bits of its reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import tstatic as paddle
from tests.helpers.chips import chip
from tests.helpers.drawn import PLAIN
from tests.helpers.soak import SOAK
from tests.interpret.kernels import by_kernel_and_reference
from tests.interpret.test_script import run_here
from tests.kernels import registry
from tstatic import devices, static
from tstatic.devices.cuda import CudaDevice
from tstatic.fusion.codegen.define import draws
from tstatic.ir.build import emit
from tstatic.ir.opdef import OPS, REQUIRED
from tstatic.ir.rng import RngKey
from tstatic.ir.types import dtype_of

TIMES = 8 if SOAK else 1

KEYS = st.builds(
    RngKey,
    seed=st.integers(0, 2**64 - 1),
    place=st.integers(0, 2**10),
    position=st.integers(0, 2**32 - 1),
    run=st.integers(0, 2**31 - 1),
)
DTYPES = st.sampled_from(["float32", "float64", "float16", "bfloat16"])
SHAPES = st.lists(st.integers(1, 9), min_size=0, max_size=3).map(tuple)
MOMENTS = st.sampled_from([(0.0, 1.0), (0.0, 0.02), (-3.0, 1.0), (1e-3, 1e4), (0.25, 0.0)])
SEEDS = st.sampled_from([0, 11, -5])


@seed(5)
@settings(max_examples=25 * TIMES, **PLAIN)
@given(key=KEYS, dtype=DTYPES, shape=SHAPES, moments=MOMENTS, own=SEEDS, form=st.sampled_from(["", "like", "batch"]))
def test_normal_numbers(
    key: RngKey, dtype: str, shape: tuple[int, ...], moments: tuple[float, float], own: int, form: str
) -> None:
    attrs: dict[str, Any] = {"mean": moments[0], "std": moments[1], "seed": own}
    kind = dtype_of(dtype)
    if form == "like":
        by_kernel_and_reference(OPS["gaussian_inplace"], {"X": np.zeros(shape, kind.np)}, attrs, key, 1)
    elif form == "batch":
        attrs |= {"shape": (7, -1), "dtype": kind, "input_dim_idx": 0, "output_dim_idx": 1}
        given = {"Input": np.zeros((5, 2), np.float32)}
        by_kernel_and_reference(OPS["gaussian_random_batch_size_like"], given, attrs, key, 1)
    else:
        by_kernel_and_reference(OPS["gaussian_random"], {}, {**attrs, "shape": shape, "dtype": kind}, key, 1)


@seed(6)
@settings(max_examples=25 * TIMES, **PLAIN)
@given(
    key=KEYS,
    dtype=DTYPES,
    shape=SHAPES,
    moments=MOMENTS,
    limits=st.sampled_from(
        [(-2.0, 2.0), (0.5, 6.0), (-1e-3, 1e-3), (-9.0, -7.0), (-40.0, -39.0), (7.0, 37.5), (-50.0, 50.0)]
    ),
    own=SEEDS,
)
def test_truncated_normal_numbers(
    key: RngKey, dtype: str, shape: tuple[int, ...], moments: tuple[float, float], limits: tuple[float, float], own: int
) -> None:
    """Limits far out as well, where probabilities are 0 or 1, or have few bits."""
    attrs = {"mean": moments[0], "std": moments[1], "a": limits[0], "b": limits[1], "seed": own}
    by_kernel_and_reference(
        OPS["truncated_gaussian_random"], {}, {**attrs, "shape": shape, "dtype": dtype_of(dtype)}, key, 1
    )


@seed(7)
@settings(max_examples=25 * TIMES, **PLAIN)
@given(
    key=KEYS,
    shape=SHAPES,
    limits=st.sampled_from(
        [(0, 1), (-5, 12), (0, 2**31 - 1), (-(2**31), 2**31), (0, 2**32), (0, 2**32 + 1), (3, 2**63), (-(2**63), 2**63 - 1),
         (-(2**63), 2**63)]
    ),
    own=SEEDS,
)  # fmt: skip
def test_whole_numbers(key: RngKey, shape: tuple[int, ...], limits: tuple[int, int], own: int) -> None:
    low, high = limits
    for dtype in ("int32", "int64") if low >= -(2**31) and high <= 2**31 else ("int64",):
        attrs = {"low": low, "high": high, "seed": own, "shape": shape, "dtype": dtype_of(dtype)}
        by_kernel_and_reference(OPS["randint"], {}, attrs, key, 1)


@seed(8)
@settings(max_examples=10 * TIMES, **PLAIN)
@given(key=KEYS, dtype=DTYPES, shape=SHAPES, own=SEEDS)
def test_coin_flips(key: RngKey, dtype: str, shape: tuple[int, ...], own: int) -> None:
    chances = np.random.default_rng(1).choice([0.0, 0.25, 0.5, 0.75, 1.0, -0.0, 0.3], shape).astype(dtype_of(dtype).np)
    by_kernel_and_reference(OPS["bernoulli"], {"X": np.asarray(chances)}, {"seed": own}, key, 1)


@seed(9)
@settings(max_examples=10 * TIMES, **PLAIN)
@given(
    key=KEYS,
    dtype=DTYPES,
    diagonal=st.sampled_from([(4, 5), (1, -7), (1, 3), (3, -1), (2, 0), (20, 0), (5, 2)]),
    value=st.sampled_from([1.0, 0.1, -3.0]),
)
def test_uniform_numbers_with_a_diagonal(key: RngKey, dtype: str, diagonal: tuple[int, int], value: float) -> None:
    attrs = {
        "shape": (4, 5),
        "dtype": dtype_of(dtype),
        "diag_num": diagonal[0],
        "diag_step": diagonal[1],
        "diag_val": value,
    }
    by_kernel_and_reference(OPS["uniform_random"], {}, attrs, key, 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_normal_numbers(dtype: str) -> None:
    """So many that rare cases are among them: quarters of a turn, the ends of the fractions of the logarithm."""
    attrs = {"shape": (20001,), "dtype": dtype_of(dtype)}
    for name in ("gaussian_random", "truncated_gaussian_random"):
        by_kernel_and_reference(OPS[name], {}, attrs, RngKey(3, position=2, run=1), 1)


def test_modules_of_single_draws_pass_their_own_check(tmp_path: Path) -> None:
    """Run as a script, a module compares what it draws with numpy's functions, in the form of its own text."""
    checked = set()
    for name, made in registry.draws((5, 6)):
        for kernel in made if not name.startswith("dropout") else made[:1]:
            if kernel.code not in checked:
                checked.add(kernel.code)
                code, printed = run_here(kernel.text, tmp_path / f"{kernel.name}.py")
                assert code == 0, f"{printed}\n{kernel.text}"
    assert len(checked) > 20


# -------------------------------------------------------------------------------------------------------------- programs
def drawing_ops() -> list[str]:
    """Every operator that says how kernels draw its numbers."""
    return sorted(kind for kind in OPS if draws(OPS[kind]))


def attributes(kind: str) -> dict[str, Any]:
    """Those of an operator's first sample, with numbers that are drawn."""
    definition = OPS[kind]
    assert definition.domain is not None
    samples = [*definition.domain.attrs, *(case.attrs for case in definition.domain.cases)]
    needed = {n for n, spec in definition.attrs.items() if spec.default is REQUIRED}
    found = next(sample for sample in samples if needed <= sample.keys())
    return {n: v for n, v in found.items() if n not in ("shape", "is_test", "seed", "dtype")}


class Net:
    """A program with each of the operators, whose float results make a loss, and the step that trains it."""

    def __init__(self, own: int, program_seed: int) -> None:
        self.main, self.startup = static.Program(), static.Program()
        self.main.random_seed = self.startup.random_seed = program_seed
        with paddle.utils.unique_name.guard(), static.program_guard(self.main, self.startup):
            x = static.data("x", [None, 6])
            w = static.create_parameter([6, 6], "float32", default_initializer=paddle.nn.initializer.TruncatedNormal())
            chances = paddle.nn.functional.sigmoid(paddle.matmul(x, w))
            self.made, parts = {}, []
            for kind in drawing_ops():
                definition, more = OPS[kind], {**attributes(kind), "seed": own}
                if "shape" in definition.attrs:
                    more["shape"] = (-1, 6) if definition.inputs else (4, 6)
                given = {s.name: chances for s in definition.inputs if not s.optional}
                out = emit(kind, given, more)
                self.made[kind] = out[0] if isinstance(out, list | tuple) else out
                parts.append(paddle.mean(paddle.cast(self.made[kind], "float32")))
            self.loss = paddle.add_n(parts)
            self.copy = self.main.clone()
            paddle.optimizer.SGD(0.5).minimize(self.loss)
        self.weight = w

    def run(self, device: str, form: str) -> list[Any]:
        """What three runs fetch, from the same start."""
        paddle.seed(21)
        exe, scope, found = static.Executor(paddle.CPUPlace()), static.Scope(), []
        feed = {"x": np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6)}
        fetches, more = [*self.made.values(), self.loss, self.weight], {}
        program: Any = self.main
        if form == "copy":
            program = self.copy
        elif form == "pruned":
            fetches, more = [self.made["gaussian_random"], self.made["dropout"]], {"use_prune": True}
        elif form == "places":
            program = static.CompiledProgram(self.main).with_data_parallel(
                self.loss.name, places=[paddle.CPUPlace()] * 2
            )
        with devices.use(device), static.scope_guard(scope):
            exe.run(self.startup)
            for _ in range(3):
                found += exe.run(program, feed=feed, fetch_list=fetches, **more)
        return found


@pytest.mark.parametrize(
    ("form", "own", "program_seed"),
    [("trained", 0, 0), ("trained", 7, 0), ("copy", 0, 5), ("pruned", 0, 5), ("places", 0, 5), ("places", 7, 0)],
)
def test_programs_draw_what_the_cpu_draws(form: str, own: int, program_seed: int) -> None:
    """Run by run, with every kind of seed; each operator that says how it is drawn is among them."""
    net = Net(own, program_seed)
    assert len(net.made) >= 11
    wanted, got = net.run("cpu", form), net.run("interpret", form)
    assert len(wanted) == len(got) > 3
    assert [a.tobytes() for a in got] == [a.tobytes() for a in wanted]
    one = len(wanted) // 3
    assert wanted[0].tobytes() != wanted[one].tobytes(), "runs draw numbers of their own"


def test_the_class_of_gpus_draws_what_the_cpu_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned as for a chip; no step but a fetch copies to the host."""
    net = Net(0, 5)
    wanted = net.run("cpu", "trained")
    hosted = []
    bind = CudaDevice.bind_reference
    monkeypatch.setattr(CudaDevice, "bind_reference", lambda *args: hosted.append(args[1].type) or bind(*args))
    with chip("gpu", monkeypatch):
        got = net.run("gpu", "trained")
    assert hosted == []
    kinds = [*net.made, "loss", "weight"] * 3
    for kind, a, b in zip(kinds, got, wanted, strict=True):
        # What torch multiplies may have other last bits; what is drawn of no value may not.
        if kind.startswith(("gaussian", "truncated", "uniform", "rand")):
            assert a.tobytes() == b.tobytes(), kind
        assert np.array_equal(a == 0, b == 0), kind
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6, err_msg=kind)


def test_each_of_them_is_a_kernel_by_itself() -> None:
    net = Net(0, 5)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(net.startup)
    compiled = static.CompiledProgram(net.main)
    exe.run(compiled, feed={"x": np.ones((4, 6), np.float32)}, fetch_list=[net.loss])
    alone = {step.op.body[0].type for step in compiled.plan.steps if step.how == "kernel" and len(step.op.body) == 1}
    assert alone >= set(drawing_ops())
