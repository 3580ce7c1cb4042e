"""A value that an op reads twice gets the gradients of both places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.oracles import flat
from tests.ops.sampler import Sample, op_types, samples
from tstatic import static
from tstatic.ir.build import emit
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.types import dtype_of


def _places(definition: OpDef, sample: Sample) -> list[tuple[int, int]]:
    """Returns slot and position of the values of one list that have one shape and dtype."""
    found: dict[Any, list[tuple[int, int]]] = {}
    for i, slot in enumerate(definition.inputs):
        for k, array in enumerate(flat(sample.ins[i]) if slot.many else ()):
            if dtype_of(array.dtype).is_float:
                found.setdefault((i, array.shape, array.dtype), []).append((i, k))
    return max(found.values(), key=len, default=[])


def _gradients(definition: OpDef, sample: Sample, places: list[tuple[int, int]], one: bool) -> list[Any]:
    """Returns the gradients of the values at some places, which are one Variable or several that are equal."""
    main, feed = static.Program(), {}
    with static.program_guard(main, static.Program()):
        inputs: dict[str, Any] = {}
        asked = []
        shared = None
        for i, slot in enumerate(definition.inputs):
            for k, array in enumerate(flat(sample.ins[i])):
                if (i, k) in places and one and shared is not None:
                    variable = shared
                else:
                    variable = static.data(f"x{i}_{k}", array.shape, array.dtype.name)
                    variable.stop_gradient = (i, k) not in places
                    first = flat(sample.ins[places[0][0]])[places[0][1]]
                    feed[variable.name] = first if (i, k) in places else array
                    if (i, k) in places:
                        shared = variable
                        asked.append(variable)
                inputs.setdefault(slot.name, []).append(variable)
        made = emit(definition.type, inputs, dict(sample.attrs))
        outs = [o for o in flat(list(made) if isinstance(made, tuple | list) else made) if o.dtype.is_float]
        grads = [g for g in static.gradients(outs, asked) if g is not None]
        return static.Executor().run(main, feed=feed, fetch_list=grads) if grads else []


def _comparable(definition: OpDef) -> list[tuple[Sample, list[tuple[int, int]]]]:
    drawn = [(sample, _places(definition, sample)) for sample in samples(definition, 3, ("float32",), limit=6)]
    return [(sample, places) for sample, places in drawn if len(places) > 1]


def _is_asked(definition: OpDef) -> bool:
    # A function of the user's is not in a sample.
    graded = definition.grad is not None and not definition.of
    return graded and all(spec.kind != "function" for spec in definition.attrs.values())


LISTS = [t for t in op_types(0) if _is_asked(op_def(t))]


@pytest.mark.parametrize("type", [t for t in LISTS if _comparable(op_def(t))])
def test_gradients_of_a_list_with_one_value_twice_are_added_up(type: str) -> None:
    """Guards ``add_n([x, x])``, whose gradient was 1."""
    definition = op_def(type)
    for sample, places in _comparable(definition):
        apart = _gradients(definition, sample, places, one=False)
        if not apart:
            continue  # values of which only the shape is read
        (together,) = _gradients(definition, sample, places, one=True)
        assert len(apart) == len(places)
        np.testing.assert_allclose(together, sum(apart), rtol=1e-5, atol=1e-6)
