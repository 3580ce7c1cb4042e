# Made from the registry of public names by `make api`.
from tstatic.optimizer.optimizer import Optimizer as Optimizer
from tstatic.optimizer.rules import Adadelta as _Adadelta
from tstatic.optimizer.rules import Adagrad as _Adagrad
from tstatic.optimizer.rules import Adam as _Adam
from tstatic.optimizer.rules import AdamW as _AdamW
from tstatic.optimizer.rules import Adamax as _Adamax
from tstatic.optimizer.rules import Lamb as _Lamb
from tstatic.optimizer.rules import Momentum as _Momentum
from tstatic.optimizer.rules import RMSProp as _RMSProp
from tstatic.optimizer.rules import SGD as _SGD
from typing import Any

class Adadelta(_Adadelta):
    def __init__(self, learning_rate: Any = ..., epsilon: Any = ..., rho: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class AdadeltaOptimizer(_Adadelta):
    def __init__(self, learning_rate: Any = ..., epsilon: Any = ..., rho: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class Adagrad(_Adagrad):
    def __init__(self, learning_rate: Any, epsilon: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., name: Any = ..., initial_accumulator_value: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class AdagradOptimizer(_Adagrad):
    def __init__(self, learning_rate: Any, epsilon: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., name: Any = ..., initial_accumulator_value: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class Adam(_Adam):
    def __init__(self, learning_rate: Any = ..., beta1: Any = ..., beta2: Any = ..., epsilon: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., lazy_mode: Any = ..., multi_precision: Any = ..., use_multi_tensor: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class AdamOptimizer(_Adam):
    def __init__(self, learning_rate: Any = ..., beta1: Any = ..., beta2: Any = ..., epsilon: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., lazy_mode: Any = ..., multi_precision: Any = ..., use_multi_tensor: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class AdamW(_AdamW):
    def __init__(self, learning_rate: Any = ..., beta1: Any = ..., beta2: Any = ..., epsilon: Any = ..., parameter_list: Any = ..., regularization: Any = ..., lr_ratio: Any = ..., apply_decay_param_fun: Any = ..., grad_clip: Any = ..., lazy_mode: Any = ..., multi_precision: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class Adamax(_Adamax):
    def __init__(self, learning_rate: Any = ..., beta1: Any = ..., beta2: Any = ..., epsilon: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class AdamaxOptimizer(_Adamax):
    def __init__(self, learning_rate: Any = ..., beta1: Any = ..., beta2: Any = ..., epsilon: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class Lamb(_Lamb):
    def __init__(self, learning_rate: Any = ..., lamb_weight_decay: Any = ..., beta1: Any = ..., beta2: Any = ..., epsilon: Any = ..., parameter_list: Any = ..., grad_clip: Any = ..., exclude_from_weight_decay_fn: Any = ..., multi_precision: Any = ..., always_adapt: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ..., regularization: Any = ...) -> None: ...

class LambOptimizer(_Lamb):
    def __init__(self, learning_rate: Any = ..., lamb_weight_decay: Any = ..., beta1: Any = ..., beta2: Any = ..., epsilon: Any = ..., parameter_list: Any = ..., grad_clip: Any = ..., exclude_from_weight_decay_fn: Any = ..., multi_precision: Any = ..., always_adapt: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ..., regularization: Any = ...) -> None: ...

class Momentum(_Momentum):
    def __init__(self, learning_rate: Any = ..., momentum: Any = ..., parameter_list: Any = ..., use_nesterov: Any = ..., regularization: Any = ..., grad_clip: Any = ..., multi_precision: Any = ..., rescale_grad: Any = ..., use_multi_tensor: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class MomentumOptimizer(_Momentum):
    def __init__(self, learning_rate: Any = ..., momentum: Any = ..., parameter_list: Any = ..., use_nesterov: Any = ..., regularization: Any = ..., grad_clip: Any = ..., multi_precision: Any = ..., rescale_grad: Any = ..., use_multi_tensor: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class RMSProp(_RMSProp):
    def __init__(self, learning_rate: Any, rho: Any = ..., epsilon: Any = ..., momentum: Any = ..., centered: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class RMSPropOptimizer(_RMSProp):
    def __init__(self, learning_rate: Any, rho: Any = ..., epsilon: Any = ..., momentum: Any = ..., centered: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class SGD(_SGD):
    def __init__(self, learning_rate: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., multi_precision: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

class SGDOptimizer(_SGD):
    def __init__(self, learning_rate: Any = ..., parameter_list: Any = ..., regularization: Any = ..., grad_clip: Any = ..., multi_precision: Any = ..., name: Any = ..., *, flatten_param_grads: Any = ..., align_size: Any = ...) -> None: ...

__all__ = [
    "Adadelta",
    "AdadeltaOptimizer",
    "Adagrad",
    "AdagradOptimizer",
    "Adam",
    "AdamOptimizer",
    "AdamW",
    "Adamax",
    "AdamaxOptimizer",
    "Lamb",
    "LambOptimizer",
    "Momentum",
    "MomentumOptimizer",
    "Optimizer",
    "RMSProp",
    "RMSPropOptimizer",
    "SGD",
    "SGDOptimizer",
]
