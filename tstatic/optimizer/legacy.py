"""The 1.x spellings of the optimizers: ``parameter_list`` and ``regularization`` instead of today's names."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import spelled
from tstatic.optimizer import rules
from tstatic.optimizer.optimizer import Optimizer


def _legacy(today: type[Optimizer], *spellings: str) -> type[Optimizer]:
    """A subclass that takes the old keywords; positional arguments keep today's order up to the rule's own."""

    class Legacy(today):  # type: ignore[misc, valid-type]
        __doc__ = f"1.x spelling of :class:`optimizer.{today.__name__}`.\n\n{today.__doc__}"

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if "parameter_list" in kwargs:
                kwargs["parameters"] = kwargs.pop("parameter_list")
            if "regularization" in kwargs:
                kwargs["weight_decay"] = kwargs.pop("regularization")
            for unused in ("flatten_param_grads", "align_size", "lazy_mode_"):
                kwargs.pop(unused, None)
            super().__init__(*args, **kwargs)

    Legacy.__name__ = f"{today.__name__}Optimizer"
    Legacy.__qualname__ = Legacy.__name__
    for name in spellings:
        spelled(name)(Legacy)
    return Legacy


for _rule in (
    rules.SGD,
    rules.Momentum,
    rules.Adam,
    rules.Adamax,
    rules.Adagrad,
    rules.Adadelta,
    rules.RMSProp,
    rules.Lamb,
):
    _legacy(_rule, f"fluid.optimizer.{_rule.__name__}", f"fluid.optimizer.{_rule.__name__}Optimizer")
_legacy(rules.AdamW, "fluid.optimizer.AdamW")
