"""Torch forms in every dtype that an op takes, also those that its domain does not name."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.cpu.test_torch_device import run_on_device
from tests.ops.sampler import Sample, op_types, run, samples
from tstatic.errors import TstaticError
from tstatic.ir.evaluate import infer_outputs, metas_of
from tstatic.ir.opdef import OpDef, op_def

torch = pytest.importorskip("torch")

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "complex64")
"""Beside floats, which every domain has."""


def taken(definition: OpDef, dtype: str) -> Iterator[tuple[Sample, list[Any]]]:
    """Yields inputs in a dtype, and what the reference makes of them; nothing if the op refuses the dtype."""
    if (dtype == "complex64" and not definition.complex) or (dtype != "complex64" and definition.of):
        return  # integers have no gradients
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            for sample in samples(definition, 2, dtypes=[dtype], layouts=("contiguous",), limit=2):
                infer_outputs(definition, metas_of(sample.ins), definition.complete(sample.attrs))
                yield sample, run(definition, sample)
        # What draws the values may not know the dtype: then no op of its kind takes it.
        except (TstaticError, TypeError, ValueError, OverflowError, AttributeError):
            return


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_form_takes_what_its_reference_takes(dtype: str) -> None:
    failed: list[str] = []
    count = 0
    for definition in map(op_def, op_types()):
        if definition.lower is None or definition.host_reason:
            continue
        for sample, wanted in taken(definition, dtype):
            count += 1
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    found = run_on_device(definition, sample)
            except Exception as error:
                failed.append(f"{definition.type} {dict(sample.attrs)}: {type(error).__name__}: {error}")
                continue
            for a, b in zip(wanted, found, strict=True):
                if isinstance(a, np.ndarray) and a.dtype.kind in "iub" and not np.array_equal(a, b):
                    failed.append(f"{definition.type} {dict(sample.attrs)}: {b} instead of {a}")
                if (
                    isinstance(a, np.ndarray)
                    and a.dtype.kind == "c"
                    and not np.allclose(a, b, 1e-3, 1e-3, equal_nan=True)
                ):
                    failed.append(f"{definition.type} {dict(sample.attrs)}: {b} instead of {a}")
    assert not failed, "\n".join(failed)
    assert count > 150
