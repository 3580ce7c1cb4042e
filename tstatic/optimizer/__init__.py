"""Update rules and learning rates.

* ``optimizer``       the base class: minimize, clipping, decay, accumulators, rows of sparse gradients
* ``rules``           SGD, Momentum, Adam, AdamW, Adamax, Adagrad, Adadelta, RMSProp, Lamb, and their 1.x spellings
* ``lr_decay``, ``lr``  schedulers: the base class and decays; all others
* ``decay_ops``       the 1.x decays, as ops of the program
"""

from tstatic.optimizer import decay_ops, lr
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
    "lr",
]
