"""What makes the host wait for a GPU is found without one: every torch form only queues work, or its op says why it does not.

Forms run on tensors of the CPU. A dispatch mode sees the ATen calls, a function mode the Python ones: that a value goes to the
host, or a list of numbers to the device, shows on the CPU in no ATen call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.ops.oracles import check_lower, run_torch
from tests.ops.sampler import Sample, op_types, samples
from tests.ops.test_torch_forms import call, outputs, run_on_meta, tensors
from tstatic import static
from tstatic.devices.torch.forms import torch_form
from tstatic.ir import traits
from tstatic.ir.frozen import freeze
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.torch_tables import Tables, fresh

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

FROM_NUMPY = torch.from_numpy
ON_DEVICE = [t for t in op_types() if op_def(t).torch_run != "host"]

ON_CPU_ALONE = {"adamw": "torch's fused Adam takes numbers, and the form calls it for tensors of the CPU alone"}
"""Ops whose forms read values of tensors in the host's memory, and why not elsewhere: on tensors without values they run."""

TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
"""What torch says itself of calls that read values on the host, or find sizes by them."""

CHECKED = "its kernels tell the host whether they converged, or how large results are"
INSIDE = {
    "_linalg_check_errors": "it reads whether a matrix was singular",
    **dict.fromkeys(
        ("linalg_eig", "_linalg_eigh", "_linalg_eigvals", "_linalg_svd", "linalg_lstsq", "linalg_matrix_exp"), CHECKED
    ),
    **dict.fromkeys(("_ctc_loss", "_use_cudnn_ctc_loss", "_cudnn_ctc_loss"), "lengths are read on the host"),
    **dict.fromkeys(
        ("normal", "multinomial", "embedding_renorm_", "_pack_padded_sequence"), "values are checked on the host"
    ),
}
"""Calls of which neither a tag nor the CPU shows that they wait for a GPU."""

READS = (
    "item", "tolist", "numpy", "__array__", "cpu", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__",
    "__iter__",
)  # fmt: skip
"""Methods of tensors that bring values to the host."""


class Waits(TorchDispatchMode):
    """Collects the ATen calls that wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _waits(function, args, kwargs or {}):
            self.found[function.name()] = None
        return function(*args, **(kwargs or {}))


def _waits(function: Any, args: Any, kwargs: Mapping[str, Any]) -> bool:
    name = function.name().removeprefix("aten::").partition(".")[0]
    if name in INSIDE:
        return True
    if name in ("index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"):
        # The positions where a mask is true are counted first.
        return any(isinstance(t, torch.Tensor) and t.dtype in (torch.bool, torch.uint8) for t in tree_leaves(args[1]))
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name == "histc":
        low, high = (*args[2:4], 0, 0)[:2]
        return bool(low == high) and args[0].numel() > 0
    return any(tag in function.tags for tag in TAGS)


class Moves(TorchFunctionMode):
    """Collects the Python calls that bring values to the host, or numbers of the host to the device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Moves:
        # It makes a tensor of no tensor, which no mode sees.
        self._patch.setattr(torch, "from_numpy", partial(self._from_numpy, torch.from_numpy))
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patch.undo()

    def _from_numpy(self, function: Any, array: Any) -> Any:
        self.found["from_numpy"] = None
        return function(array)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", str(function))
        if name in READS and (name != "__iter__" or args[0].dim() == 0):
            self.found[name] = None
        elif name in ("tensor", "as_tensor"):
            # One number stays on the host and is an argument of the kernel.
            if kwargs.get("device") is not None or np.ndim(args[0]):
                self.found[f"{name} of numbers of the host"] = None
        elif name == "new_tensor":
            self.found[name] = None
        elif name in ("__getitem__", "__setitem__"):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(one, list | range | np.ndarray) for one in index):
                self.found["an index that is a list of the host"] = None
        return function(*args, **kwargs)


def once(torch: Any, values: Any, dtype: Any, device: Any) -> Any:
    """In the place of the tables of a bound op, which are copied to the device once, and without a wait."""
    with torch._C.DisableTorchFunction(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "from_numpy", FROM_NUMPY)
        return fresh(torch, values, dtype, device)


def waits_of(definition: OpDef, found: Iterator[Sample]) -> dict[str, Sample]:
    """What a form waits by -> the first sample where it does."""
    assert definition.lower is not None
    form = definition.lower
    if "tables" in inspect.signature(form).parameters:
        definition = replace(definition, lower=_with_tables(form))
    seen: dict[str, Sample] = {}
    for sample in found:
        ins = tensors(sample, "cpu")
        outs = outputs(definition, sample, "cpu") if definition.torch_run == "out" else None
        with torch.no_grad(), Moves() as moves, Waits() as waits:
            call(definition, sample, ins, "cpu", outs)
        for name in (*waits.found, *moves.found):
            seen.setdefault(name, sample)
    return seen


def _with_tables(form: Callable[..., Any], tables: Callable[..., Any] = once) -> Callable[..., Any]:
    def lower(*args: Any, **kwargs: Any) -> Any:
        return form(*args, **kwargs, tables=tables)

    lower.__signature__ = inspect.signature(form)  # type: ignore[attr-defined]
    return lower


def on_device(definition: OpDef) -> Iterator[Sample]:
    """One sample of each of its cases, but for those that run on the host."""
    names = [slot.name for slot in definition.inputs]
    for sample in samples(definition, 1, layouts=("contiguous",)):
        given = {name for name, value in zip(names, sample.ins, strict=True) if value is not None}
        if not definition.host_reason_of(given.__contains__):
            yield sample


@pytest.mark.parametrize("type", ON_DEVICE)
def test_a_form_only_queues_work_or_its_op_says_why_not(type: str) -> None:
    """Guards against forms that keep the host from running ahead of a GPU, and that no graph of a GPU can hold."""
    definition = op_def(type)
    found = waits_of(definition, on_device(definition))
    if type in ON_CPU_ALONE:
        for sample in on_device(definition):
            run_on_meta(definition, sample)
        return
    told = "; ".join(f"{name} in {sample}" for name, sample in found.items())
    assert bool(found) == definition.has(traits.Waits), told or f"nothing waits: {definition.why(traits.Waits)}"


WIDE = Sample((np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4),), {}, "float32")
PLANTED: dict[str, Callable[[Any, Any], Any]] = {
    "item": lambda torch, x: x * x.sum().item(),
    "__bool__": lambda torch, x: x * 2 if x.any() else x,
    "__float__": lambda torch, x: x * float(x.max()),
    "tolist": lambda torch, x: x * x[0].tolist()[0],
    "numpy": lambda torch, x: x * x.numpy().max(),
    "__array__": lambda torch, x: x * float(np.asarray(x).max()),
    "cpu": lambda torch, x: x.cpu() + x,
    "aten::nonzero": lambda torch, x: x.index_add(0, torch.nonzero(x[:, 0] > 9)[:, 0], x[:0]),
    "aten::_unique2": lambda torch, x: x * len(torch.unique(x)),
    "aten::unique_consecutive": lambda torch, x: x * len(torch.unique_consecutive(x)),
    "aten::masked_select": lambda torch, x: x * torch.masked_select(x, x > 0).sum(),
    "aten::bincount": lambda torch, x: x * torch.bincount((x[0] > 0).long()).sum(),
    "aten::index.Tensor": lambda torch, x: x * x[x > 0].sum(),
    "aten::index_put_": lambda torch, x: _put(x.clone(), x > 0),
    "aten::repeat_interleave.Tensor": lambda torch, x: x * torch.repeat_interleave(x[0], (x[0] > 0).long()).sum(),
    "aten::equal": lambda torch, x: x * torch.equal(x, x),
    "aten::_local_scalar_dense": lambda torch, x: x * torch.is_nonzero(x.sum()),
    "aten::_linalg_check_errors": lambda torch, x: torch.linalg.inv(x + 9 * torch.eye(4)),
    "aten::_linalg_eigh": lambda torch, x: torch.linalg.eigh(x)[1],
    "aten::histc": lambda torch, x: x * torch.histc(x, 3).sum(),
    "_ctc_loss": lambda torch, x: x * torch.nn.functional.ctc_loss(
        x.log_softmax(1)[:, None], (x[:1, :2] > 9).long() + 1, torch.tensor([4]), torch.tensor([2])
    ),
    "tensor of numbers of the host": lambda torch, x: x * torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device),
    "as_tensor of numbers of the host": lambda torch, x: x * torch.as_tensor(2.0, device=x.device),
    "new_tensor": lambda torch, x: x * x.new_tensor(2.0),
    "from_numpy": lambda torch, x: x * torch.from_numpy(np.ones(4, np.float32)).to(x.device),
    "an index that is a list of the host": lambda torch, x: x[[0, 1, 2, 3]],
}  # fmt: skip


def _put(x: Any, mask: Any) -> Any:
    x[mask] = x[mask] * 2
    return x


@pytest.mark.parametrize("name", PLANTED)
def test_a_wait_that_somebody_plants_is_seen(name: str) -> None:
    found = waits_of(replace(op_def("tanh_shrink"), lower=PLANTED[name]), iter([WIDE]))
    assert any(name in one for one in found), list(found)
    assert not waits_of(
        replace(op_def("tanh_shrink"), lower=lambda torch, x: x * torch.tensor(2.0) + x[1:2]), iter([WIDE])
    )


@pytest.mark.parametrize("type", ON_CPU_ALONE)
def test_a_form_that_reads_values_of_tensors_of_the_cpu_does(type: str) -> None:
    assert waits_of(op_def(type), on_device(op_def(type))), ON_CPU_ALONE[type]


# --------------------------------------------------------------------------------------------- what forms do instead of waiting
WITH_ROWS = [t for t in ON_DEVICE if any(slot.name == "Rows" for slot in op_def(t).inputs)]


@pytest.mark.parametrize("given", [(1, 2, 4), (0,), ()], ids=len)
@pytest.mark.parametrize("type", WITH_ROWS)
def test_rows_that_stand_for_none_are_left_alone(type: str, given: tuple[int, ...]) -> None:
    """Only the device knows how many rows there are: the form computes all of them, and the others must change nothing."""
    definition = op_def(type)
    at, grad, param = ([slot.name for slot in definition.inputs].index(n) for n in ("Rows", "Grad", "Param"))
    found = [s for s in on_device(definition) if s.ins[at] is not None]
    assert found
    for sample in found:
        count = sample.ins[param].shape[0]
        rows = np.full(5, count)
        rows[: len(given)] = given
        gradients = np.resize(sample.ins[grad], (5, *sample.ins[grad].shape[1:])) * np.arange(1, 6).reshape(-1, 1)
        # What lies behind the rows nobody wrote.
        gradients[len(given) :] = np.nan
        ins = list(sample.ins)
        ins[at], ins[grad] = rows.astype(sample.ins[at].dtype), gradients.astype(sample.ins[grad].dtype)
        check_lower(definition, replace(sample, ins=tuple(ins)))
        torch_results = run_torch(definition, replace(sample, ins=tuple(ins)))
        others = np.setdiff1d(np.arange(count), given)
        assert np.array_equal(np.asarray(torch_results[0])[others], sample.ins[param][others])


class Copied:
    """In the place of the module: counts the tensors that are made of numbers of the host."""

    def __init__(self) -> None:
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def from_numpy(self, array: Any) -> Any:
        self.count += 1
        return torch.from_numpy(array)


def test_a_bound_op_copies_its_tables_once() -> None:
    """A second run, which a graph may capture, has no copy left in it."""
    form = torch_form(op_def("shape"))
    assert form is not None
    main = static.Program()
    with static.program_guard(main, static.Program()):
        y = paddle.shape(static.data("x", [3, 5]))
    [op] = freeze(main, ["x"], [y.name]).ops
    module, out = Copied(), torch.zeros(2, dtype=torch.int32)
    bound = form.bind_tensors(module, "cpu", op, [torch.zeros(3, 5)], [out], list)
    assert bound is not None
    for _ in range(3):
        bound[0](*bound[1])
        assert out.tolist() == [3, 5]
        out.zero_()
    assert module.count == 1


def test_tables_are_those_of_the_numbers_the_dtype_and_the_shape() -> None:
    tables, module = Tables(), Copied()
    first = tables(module, [1.0, 2.0], torch.float32, "cpu")
    assert first.tolist() == [1.0, 2.0]
    assert tables(module, (1.0, 2.0), torch.float32, "cpu") is first
    made = [
        tables(module, [1, 2], torch.float32, "cpu"), tables(module, [1.0, 2.0], torch.bfloat16, "cpu"),
        tables(module, [[1.0, 2.0]], torch.float32, "cpu"), tables(module, [True, False], torch.bool, "cpu"),
        tables(module, range(0), torch.int64, "cpu"),
    ]  # fmt: skip
    assert [(tuple(t.shape), t.dtype) for t in made] == [
        ((2,), torch.float32), ((2,), torch.bfloat16), ((1, 2), torch.float32), ((2,), torch.bool), ((0,), torch.int64),
    ]  # fmt: skip
    assert module.count == 6


def test_a_form_never_gives_its_tables_away() -> None:
    """The result may be written to: the next run would find other numbers."""
    for type in ON_DEVICE:
        definition = op_def(type)
        form = definition.lower
        if form is None or "tables" not in inspect.signature(form).parameters:
            continue
        for sample in on_device(definition):
            tables = Tables()
            bound = replace(definition, lower=_with_tables(form, tables))
            results = tree_leaves(call(bound, sample, tensors(sample, "cpu"), "cpu"))
            kept = {t.untyped_storage().data_ptr() for t in tables.made() if t.numel()}
            assert kept.isdisjoint(t.untyped_storage().data_ptr() for t in results if t is not None), type
