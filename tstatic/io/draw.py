"""Random numbers of data sets and samplers that follow ``paddle.seed``."""

from __future__ import annotations

import numpy as np

from tstatic.runtime import random

_state: tuple[int, np.random.Generator] = (-1, np.random.default_rng(0))


def generator() -> np.random.Generator:
    """Returns the process's generator, which ``paddle.seed`` starts anew."""
    global _state
    epoch = random.epoch()
    if _state[0] != epoch:
        _state = epoch, np.random.default_rng(random.current(0))
    return _state[1]
