"""Updates of parameters by optimizers.

* ``adaptive``: The adaptive updates beside Adam: adamax, adagrad, adadelta, rmsprop, lamb.
* ``decayed_adagrad``, ``dpsgd``, ``ftrl``, ``lars_momentum``: A file for each of the updates that only 1.x had.
* ``common``: The common updates: sgd, momentum, adam, adamw.
* ``loss_scaling``: Loss scaling of mixed precision: unscale gradients and look for infinities, then move the scale.
* ``merge_gradient``: The sum of a gradient over several runs.
* ``_slots``, ``_torch``: Slots that several updates have, and what their torch forms share.
* ``_moved``: Numbers that an update itself moves on, such as powers of decay rates.
* ``_update``: What the op definitions of optimizer updates share: inference, tiles, and flat blocks in the type that
  is computed in.
"""
