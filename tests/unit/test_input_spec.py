"""``static.InputSpec``."""

from __future__ import annotations

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.errors import DTypeError, ProgramError, ProgramTypeError
from tstatic.static import InputSpec


def test_none_is_minus_one_and_specs_compare_by_what_they_say() -> None:
    spec = InputSpec([None, 3], "float32", "x")
    assert spec.shape == (-1, 3)
    assert (spec.dtype, spec.name, spec.stop_gradient) == (paddle.float32, "x", False)
    assert repr(spec) == "InputSpec(shape=(-1, 3), dtype=tstatic.float32, name=x, stop_gradient=False)"
    assert spec == InputSpec((-1, 3), np.float32, "x")
    assert hash(spec) == hash(InputSpec([-1, 3], name="x"))
    for other in (InputSpec([2, 3], "float32", "x"), InputSpec([None, 3], "int64", "x"), InputSpec([None, 3]), 3):
        assert spec != other
    assert spec != InputSpec([None, 3], "float32", "x", stop_gradient=True)


def test_a_spec_is_made_from_values() -> None:
    x = static.data("x", [2, None], "int64")
    assert InputSpec.from_tensor(x) == InputSpec([2, None], "int64", "x")
    assert InputSpec.from_tensor(x, "y").name == "y"
    assert InputSpec.from_numpy(np.ones((2, 3))) == InputSpec([2, 3], "float64")
    assert InputSpec.from_numpy(np.ones(1, "float32"), name="z").name == "z"


def test_batch_and_unbatch_change_the_spec_itself() -> None:
    spec = InputSpec([3])
    assert spec.batch(4) is spec
    assert spec.shape == (4, 3)
    assert spec.batch([None]).shape == (-1, 4, 3)
    assert spec.unbatch() is spec
    assert spec.shape == (4, 3)
    with pytest.raises(ProgramError, match=r"Length of batch_size: \[1, 2\] shall be 1, but received 2"):
        spec.batch([1, 2])
    with pytest.raises(ProgramTypeError, match="must be an int"):
        spec.batch("4")
    with pytest.raises(ProgramError, match="Not support to unbatch"):
        InputSpec([]).unbatch()


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ProgramTypeError, match=r"should be one of \(tuple, list\), but received int"):
        InputSpec(3)  # type: ignore[arg-type]
    with pytest.raises(ProgramTypeError, match="must be an int or None"):
        InputSpec([2.5])  # type: ignore[list-item]
    with pytest.raises(DTypeError, match="no dtype named 'nothing'"):
        InputSpec([2], "nothing")
