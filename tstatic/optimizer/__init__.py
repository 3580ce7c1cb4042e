"""Update rules and learning rates.

* ``optimizer``  the base class: minimize, clipping, decay, accumulators
* ``rules``      SGD, Momentum, Adam, AdamW, Adamax, Adagrad, Adadelta, RMSProp, Lamb
* ``legacy``     their 1.x spellings
* ``lr``         schedulers
"""

from tstatic.optimizer import legacy, lr
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
    "legacy",
    "lr",
]
