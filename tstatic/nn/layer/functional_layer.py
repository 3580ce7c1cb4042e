"""Layers without parameters, each made from one function of ``nn.functional`` and its signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from tstatic.errors import ProgramTypeError
from tstatic.ir.checks import check_choice
from tstatic.ir.export import PUBLIC_API, export
from tstatic.nn.layer.layers import Layer


class FunctionalLayer(Layer):
    """Base of layers that only call a function: the constructor takes its settings, a call its inputs, by place or by name.

    A setting is also an attribute, read at each call. ``training`` is not a setting but follows ``train()`` and ``eval()``.
    """

    _function: ClassVar[Callable[..., Any]]
    _inputs: ClassVar[inspect.Signature]
    _settings: ClassVar[inspect.Signature]
    _follows_training: ClassVar[bool]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        cls = type(self)
        found = _bound(cls._settings, cls.__name__, cls.__name__, args, kwargs)
        if "reduction" in found:
            check_choice(found["reduction"], ("mean", "sum", "none", "batchmean"), "reduction", cls.__name__)
        for name, value in found.items():
            setattr(self, name, value)

    def _call(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
        cls = type(self)
        given = _bound(cls._inputs, f"{cls.__name__}.forward", cls.__name__, inputs, named)
        settings = {name: getattr(self, name) for name in cls._settings.parameters}
        if cls._follows_training:
            settings["training"] = self.training
        return cls._function(*given.values(), **settings)

    def extra_repr(self) -> str:
        """Returns all settings but the name."""
        return ", ".join(f"{n}={getattr(self, n)}" for n in type(self)._settings.parameters if n != "name")


def _bound(
    signature: inspect.Signature, called: str, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns all arguments by name, with defaults.

    Raises:
        ProgramTypeError: If they are not those of the signature.
    """
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ProgramTypeError(
            f"{called} got arguments that it does not take: {error}",
            expected=f"{called}{signature}",
            received=", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())]) or "nothing",
            fix=f"call it as {called}{signature}",
            op=op,
        ) from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _forward(inputs: inspect.Signature, function: str) -> Callable[..., Any]:
    """Returns the method ``forward`` of a class whose calls have these parameters."""

    def forward(self: FunctionalLayer, *inputs: Any, **named: Any) -> Any:
        return self._call(inputs, named)

    forward.__doc__ = f"Calls :func:`nn.functional.{function}` with the layer's settings."
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    forward.__signature__ = inputs.replace(parameters=[own, *inputs.parameters.values()])  # type: ignore[attr-defined]
    return forward


def _example(doc: str, name: str, function: str, inputs: int) -> str:
    """Returns the example of a function's docstring with a layer in place of each call."""

    def layer(call: re.Match[str]) -> str:
        given = call[1].split(", ")
        return f"paddle.nn.{name}({', '.join(given[inputs:])})({', '.join(given[:inputs])})"

    _, head, text = doc.partition("\n\nExample:\n")
    return head + re.sub(rf"paddle\.(?:nn\.functional\.)?{function}\(([^()]*)\)", layer, text.split("\n\n")[0])


def _arguments(doc: str, settings: Sequence[str]) -> str:
    """Returns the part of a function's docstring that documents the settings of its layer."""
    part = re.search(r"\nArgs:\n(.*?)(?:\n\n|\Z)", doc, re.DOTALL)
    rows = []
    for names, text in re.findall(r"^    (\w[\w, ]*): (.*(?:\n     .*)*)", part[1] if part else "", re.MULTILINE):
        kept = [name for name in names.split(", ") if name in settings]
        rows += [f"    {', '.join(kept)}: {text}"] if kept else []
    return "\n\nArgs:\n" + "\n".join(rows) if rows else ""


def functional_layer(
    name: str,
    function: str,
    inputs: int = 1,
    without: Sequence[str] = (),
    order: Sequence[str] = (),
    names: Sequence[str] = (),
) -> type[FunctionalLayer]:
    """Makes and spells ``nn.<name>`` from ``nn.functional.<function>``.

    Args:
        name: Class name.
        function: The function; its first ``inputs`` parameters are inputs, the others settings.
        inputs: How many a call takes.
        without: Parameters that are not settings.
        order: Order of the settings, where the class has another than the function.
        names: Names of the inputs of a call, where Paddle's class has others than the function.
    """
    call = PUBLIC_API[f"nn.functional.{function}"].function
    parameters = list(inspect.signature(call).parameters.values())
    settings = [p for p in parameters[inputs:] if p.name not in (*without, "training")]
    if order:
        settings = sorted(settings, key=lambda p: order.index(p.name))
    taken = [
        p.replace(name=n) for p, n in zip(parameters, names or [p.name for p in parameters[:inputs]], strict=False)
    ]
    called = inspect.Signature([p.replace(kind=p.POSITIONAL_OR_KEYWORD, annotation=p.empty) for p in taken])
    signature = inspect.Signature([p.replace(kind=p.POSITIONAL_OR_KEYWORD, annotation=p.empty) for p in settings])
    doc = inspect.getdoc(call) or ""
    arguments = _arguments(doc, [p.name for p in settings])
    summary = doc.split("\n\n")[0] + arguments + _example(doc, name, function, inputs)
    cls = type(
        name,
        (FunctionalLayer,),
        {
            "__doc__": f"Calls :func:`nn.functional.{function}`.\n\n{summary}",
            "__module__": "tstatic.nn",
            "__signature__": signature,
            "_function": staticmethod(call),
            "_inputs": called,
            "_settings": signature,
            "forward": _forward(called, function),
            "_follows_training": any(p.name == "training" for p in parameters),
        },
    )
    export(f"nn.{name}")(cls)
    return cls
