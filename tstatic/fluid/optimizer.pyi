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
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class AdadeltaOptimizer(_Adadelta):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class Adagrad(_Adagrad):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class AdagradOptimizer(_Adagrad):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class Adam(_Adam):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class AdamOptimizer(_Adam):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class AdamW(_AdamW):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class Adamax(_Adamax):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class AdamaxOptimizer(_Adamax):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class Lamb(_Lamb):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class LambOptimizer(_Lamb):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class Momentum(_Momentum):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class MomentumOptimizer(_Momentum):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class RMSProp(_RMSProp):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class RMSPropOptimizer(_RMSProp):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class SGD(_SGD):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class SGDOptimizer(_SGD):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

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
