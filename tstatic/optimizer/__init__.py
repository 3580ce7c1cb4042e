"""Update rules and learning rates.

* ``optimizer``       the base class: minimize, clipping, decay, accumulators, rows of sparse gradients
* ``rules``           SGD, Momentum, Adam, AdamW, Adamax, Adagrad, Adadelta, RMSProp, Lamb, and their 1.x spellings
* ``fluid_rules``     LarsMomentum, Ftrl, DecayedAdagrad, Dpsgd
* ``gradient_merge``  the optimizer that updates once in several runs
* ``averages``      ExponentialMovingAverage, ModelAverage
* ``mixed_precision``, ``bfloat16``  the optimizer of ``static.amp``, which leaves out steps that overflow
* ``wrapper``, ``lookahead``, ``recompute``  optimizers around another one
* ``lr_decay``, ``lr``  schedulers: the base class and decays; all others
* ``decay_ops``       the 1.x decays, as ops of the program
* ``decay_formulas``  what the two have in common
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(
    __name__,
    modules="decay_ops lr",
    others={"tstatic.optimizer.optimizer": "Optimizer"},
)
