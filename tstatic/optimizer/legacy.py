"""The 1.x spellings of the optimizers: ``parameter_list`` and ``regularization`` instead of today's names."""

from __future__ import annotations

import inspect
from typing import Any

from tstatic.ir.opdef import export
from tstatic.no_effect import no_effect
from tstatic.optimizer import rules
from tstatic.optimizer.optimizer import Optimizer

_TODAY = {"parameter_list": "parameters", "regularization": "weight_decay"}
_FLAT = "``BuildStrategy.fuse_all_optimizer_ops`` updates several parameters at once"


def _signature(today: type[Optimizer]) -> inspect.Signature:
    """Today's arguments under their old names, and by keyword those that only 1.x had."""
    old = {new: name for name, new in _TODAY.items()}
    found = [p.replace(name=old.get(n, n)) for n, p in inspect.signature(today).parameters.items()]
    more: dict[str, Any] = {"flatten_param_grads": False, "align_size": -1}
    if all(p.name != "regularization" for p in found):
        more["regularization"] = None
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([*found, *(inspect.Parameter(n, keyword, default=value) for n, value in more.items())])


def _doc(today: type[Optimizer]) -> str:
    """Today's docstring, with the old spelling in its example."""
    return inspect.cleandoc(today.__doc__ or "").replace(
        f"paddle.optimizer.{today.__name__}(", f"fluid.optimizer.{today.__name__}("
    )


def _legacy(today: type[Optimizer], *spellings: str) -> type[Optimizer]:
    """A subclass that takes the old keywords; positional arguments keep today's order up to the rule's own."""
    signature = _signature(today)
    own = set(inspect.signature(today).parameters)

    class Legacy(today):  # type: ignore[misc, valid-type]
        __doc__ = f"1.x spelling of :class:`optimizer.{today.__name__}`.\n\n{_doc(today)}"
        __signature__ = signature

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            given = {next((o for o, n in _TODAY.items() if n == name), name): value for name, value in kwargs.items()}
            try:
                bound = signature.bind(*args, **given)
            except TypeError as error:
                raise TypeError(f"{today.__name__}Optimizer() {error}") from None
            settings = {_TODAY.get(name, name): value for name, value in bound.arguments.items()}
            super().__init__(**{name: value for name, value in settings.items() if name in own})
            if "weight_decay" not in own:
                self._set_decay(settings.get("weight_decay"))

    Legacy.__name__ = f"{today.__name__}Optimizer"
    Legacy.__qualname__ = Legacy.__name__
    no_effect(flatten_param_grads=_FLAT, align_size=_FLAT)(Legacy)
    for name in spellings:
        export(name)(Legacy)
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
