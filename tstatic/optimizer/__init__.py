"""Update rules and learning rates.

* ``optimizer``  the base class: minimize, clipping, decay, accumulators
* ``rules``      SGD, Momentum, Adam, AdamW, Adamax, Adagrad, Adadelta, RMSProp, Lamb
* ``legacy``     their 1.x spellings
* ``lr``         schedulers
* ``decay_ops``  the 1.x decays, as ops of the program
* ``lr_base``, ``lr_decay``, ``lr_cycle``  their base class and kinds
* ``row_mask``   which rows of a sparse gradient are updated
"""

from tstatic.optimizer import decay_ops, legacy, lr
from tstatic.optimizer.optimizer import Optimizer
from tstatic.optimizer.rules import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Lamb, Momentum, RMSProp

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lamb",
    "Momentum",
    "Optimizer",
    "RMSProp",
    "decay_ops",
    "legacy",
    "lr",
]
