"""What cannot be imported is refused with the operator and the module's line, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.programs import canonical
from tstatic import errors, static

torch = pytest.importorskip("torch")
nn = torch.nn
HERE = Path(__file__).name


class Of(nn.Module):
    """A module of one function, with a parameter so that a scope could be left with something."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(self, *arguments)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    x = static.data("kept", [None, 3])
    paddle.tanh(x)
    programs = [static.default_main_program(), static.default_startup_program()]
    before = [canonical(program) for program in programs]
    yield
    assert [canonical(program) for program in programs] == before
    assert static.default_main_program() is programs[0]
    assert static.global_scope().local_var_names() == []


def refused(module: Any, example: Any, **options: Any) -> errors.UnsupportedError:
    with pytest.raises(errors.UnsupportedError) as caught:
        paddle.from_torch(module, example, **options)
    return caught.value


def test_an_operator_without_a_converter() -> None:
    error = refused(Of(lambda self, x: torch.linalg.svdvals(self.weight * x)), torch.zeros(2, 3))
    assert error.what.startswith("'aten.linalg_svdvals.default' has no counterpart")
    assert error.op == "aten.linalg_svdvals.default"
    file, _, line = str(error.where).rpartition(":")
    assert Path(file).name == HERE
    assert "self.function(self" in Path(__file__).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    assert "docs/from_torch.md" in str(error)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda self, x: torch.nn.functional.max_pool2d(x[None, None], 2, dilation=2), "with a dilation"),
        (lambda self, x: x[x.isnan()], "with a mask"),
        (lambda self, x: torch.nn.functional.embedding(x.long(), self.weight[:, None], scale_grad_by_freq=True), "by_freq"),
    ],
)  # fmt: skip
def test_arguments_that_a_converter_does_not_take(function: Any, words: str) -> None:
    error = refused(Of(function), torch.zeros(4, 3), dynamic_shapes=None)
    assert words in error.what
    assert HERE in str(error.where)


@pytest.mark.parametrize("function", [lambda self, x: x.nonzero(), lambda self, x: torch.masked_select(x, x > 0)])
def test_results_whose_size_depends_on_values(function: Any) -> None:
    assert "known only when the program runs" in refused(Of(function), torch.ones(2, 3)).what


def test_what_the_builders_refuse_has_the_line_of_the_module() -> None:
    with pytest.raises(errors.TstaticError) as caught:
        paddle.from_torch(Of(lambda self, x: torch.layer_norm(x, (3,), eps=0.5)), torch.zeros(2, 3))
    assert HERE in str(caught.value.where)


def test_a_module_that_torch_does_not_export() -> None:
    error = refused(Of(lambda self, x: x * 2 if x.sum() > 0 else x), torch.zeros(2, 3))
    assert error.what == "torch cannot export the module with this example"
    assert error.__cause__ is not None


def test_an_example_that_the_module_does_not_take() -> None:
    error = refused(nn.Linear(4, 3), torch.zeros(2, 5))
    assert "call the module with the example first" in str(error.fix)
    assert "torch cannot export" in refused(nn.Linear(4, 3), {"wrong": torch.zeros(2, 4)}).what


@pytest.mark.parametrize(
    ("module", "example"),
    [(lambda x: x, torch.zeros(2)), (nn.ReLU(), object()), (nn.ReLU(), ()), (nn.ReLU(), {"input": 1.0})],
)
def test_arguments_of_other_types(module: Any, example: Any) -> None:
    with pytest.raises(errors.ProgramTypeError) as caught:
        paddle.from_torch(module, example)
    assert caught.value.op == "from_torch"
    with pytest.raises(errors.ProgramTypeError):
        paddle.from_torch(nn.ReLU(), torch.zeros(2), prefix=3)  # type: ignore[arg-type]


def test_a_module_that_writes_to_a_parameter() -> None:
    def whole(self: Any, x: Any) -> Any:
        with torch.no_grad():
            self.weight.add_(1)
        return self.weight * x

    def part(self: Any, x: Any) -> Any:
        with torch.no_grad():
            self.weight[0] = 2
        return self.weight * x

    for function in (whole, part):
        assert "writes to its parameter 'weight'" in refused(Of(function), torch.zeros(2, 3)).what


def test_results_that_are_not_tensors() -> None:
    assert "result '1' of the module" in refused(Of(lambda self, x: (x + 1, x.shape[0])), torch.zeros(2, 3)).what
    assert "result '1' of the module" in refused(Of(lambda self, x: (x + 1, 3)), torch.zeros(2, 3)).what


def test_a_type_without_a_counterpart() -> None:
    with pytest.raises(errors.DTypeError, match="float8"):
        paddle.from_torch(Of(lambda self, x: x.to(torch.float8_e4m3fn).float()), torch.zeros(2, 3))


def test_names_that_are_taken() -> None:
    scope = static.Scope()
    with static.scope_guard(scope):
        first = paddle.from_torch(nn.Linear(2, 2), torch.zeros(1, 2))
        before = first.state_dict()
        with pytest.raises(errors.ProgramError) as caught:
            paddle.from_torch(nn.Linear(2, 2), torch.zeros(1, 2))
        assert "prefix=" in str(caught.value.fix)
        assert all(np.array_equal(before[n], a) for n, a in first.state_dict().items())
    with pytest.raises(errors.ProgramError):
        first.state_dict()
    assert list(first.state_dict(scope)) == ["weight", "bias"]
