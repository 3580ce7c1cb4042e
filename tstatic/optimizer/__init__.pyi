# Made from the registry of public names by `make api`.
from tstatic.optimizer import decay_ops as decay_ops
from tstatic.optimizer import lr as lr
from tstatic.optimizer.optimizer import Optimizer as Optimizer
from tstatic.optimizer.rules import Adadelta as Adadelta
from tstatic.optimizer.rules import Adagrad as Adagrad
from tstatic.optimizer.rules import Adam as Adam
from tstatic.optimizer.rules import AdamW as AdamW
from tstatic.optimizer.rules import Adamax as Adamax
from tstatic.optimizer.rules import Lamb as Lamb
from tstatic.optimizer.rules import Momentum as Momentum
from tstatic.optimizer.rules import RMSProp as RMSProp
from tstatic.optimizer.rules import SGD as SGD

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lamb",
    "Momentum",
    "Optimizer",
    "RMSProp",
    "SGD",
    "decay_ops",
    "lr",
]
