"""Names of data types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tstatic.errors import DTypeError
from tstatic.ir.types import DTYPES, dtype_of

WORDS = ("int", "float", "double", "single", "half", "short", "byte", "long", "i4", "f4", "intc", "bool_", "ubyte")


@pytest.mark.parametrize("word", [*WORDS, int, float, bool, "<f8", ">i8"], ids=str)
def test_a_word_that_numpy_knows_means_the_same_here(word: Any) -> None:
    # On Windows "long" has 32 bits; names are the same everywhere here.
    expected = np.dtype("int64") if word == "long" else np.dtype(word).newbyteorder("=")
    assert dtype_of(word).np == expected


@pytest.mark.parametrize("name", DTYPES)
def test_a_type_is_known_by_its_name_its_numpy_type_and_itself(name: str) -> None:
    dtype = DTYPES[name]
    for spelled in (name, f"paddle.{name}", dtype.np, dtype.np.type, dtype):
        assert dtype_of(spelled) is dtype
        assert dtype == spelled


@pytest.mark.parametrize("word", ["flaot32", "uint", "clongdouble", "U3", "float32, int8", str, object, ""], ids=repr)
def test_any_other_word_is_refused(word: Any) -> None:
    with pytest.raises(DTypeError, match="dtype"):
        dtype_of(word)
