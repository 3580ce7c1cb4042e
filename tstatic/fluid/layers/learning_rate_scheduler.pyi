# Made from the registry of public names by `make api`.
from tstatic.optimizer.decay_ops import _decay_step_counter as _decay_step_counter
from tstatic.optimizer.decay_ops import cosine_decay as cosine_decay
from tstatic.optimizer.decay_ops import exponential_decay as exponential_decay
from tstatic.optimizer.decay_ops import inverse_time_decay as inverse_time_decay
from tstatic.optimizer.decay_ops import linear_lr_warmup as linear_lr_warmup
from tstatic.optimizer.decay_ops import natural_exp_decay as natural_exp_decay
from tstatic.optimizer.decay_ops import noam_decay as noam_decay
from tstatic.optimizer.decay_ops import piecewise_decay as piecewise_decay
from tstatic.optimizer.decay_ops import polynomial_decay as polynomial_decay

__all__ = [
    "_decay_step_counter",
    "cosine_decay",
    "exponential_decay",
    "inverse_time_decay",
    "linear_lr_warmup",
    "natural_exp_decay",
    "noam_decay",
    "piecewise_decay",
    "polynomial_decay",
]
