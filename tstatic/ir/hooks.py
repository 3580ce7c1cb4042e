"""What lies above a program and its methods need: functions that edit, print, save and draw it, called through :data:`hooks`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from tstatic.errors import NotBoolError, needed_for, shown
from tstatic.ir.export import notes_signatures


class Hooks:
    """Functions that methods of programs call and files above them define; ``ir/__init__.py`` and ``tstatic`` set them."""

    append_op: Callable[..., Any]
    create_parameter: Callable[..., Any]
    clone: Callable[[Any, bool], Any]
    prune: Callable[[Any, Sequence[str], Any], Any]
    text: Callable[[Any, bool], str]
    parse: Callable[[str], Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    svg: Callable[[Any, int, bool], str]
    gradients: Callable[[Any, Any, Any], list[Any]]


hooks = Hooks()


def later(module: str, function: str, purpose: str) -> Callable[..., Any]:
    """Returns a function of a module that is imported when it is called first: half of all processes never do."""

    def call(*args: Any) -> Any:
        with needed_for(purpose):
            found = import_module(module)
        # Outside: what the function itself raises says nothing of a package that is missing.
        return getattr(found, function)(*args)

    return call


def text_of(thing: Any, with_details: bool, throw_on_error: bool = True) -> str:
    """Returns the text form of a program or a part of it.

    Raises:
        NotBoolError: If a switch is not a bool.
    """
    for name, value in (("throw_on_error", throw_on_error), ("with_details", with_details)):
        if not isinstance(value, bool):
            raise NotBoolError(
                f"The type of {name} parameter is wrong, expected bool, but received {type(value)}.",
                expected="True or False", received=shown(value), fix=f"pass {name}=True or {name}=False", op="to_string", var=name,
            )  # fmt: skip
    return hooks.text(thing, with_details)


@notes_signatures()
class ProgramForms:
    """The forms in which a program is saved and drawn."""

    blocks: list[Any]

    @property
    def desc(self) -> ProgramView:
        """The program's saved form: ``program.desc.serialize_to_string()``."""
        return ProgramView(self)

    def to_svg(self, max_ops: int = 600, folded: bool = False) -> str:
        """Draws at most ``max_ops`` operators as SVG text; with ``folded`` the whole program, on a page (``tstatic.viz``)."""
        return hooks.svg(self, max_ops, folded)

    def _repr_svg_(self) -> str:
        return hooks.svg(self, 200, sum(len(b.ops) for b in self.blocks) > 40)

    def _repr_html_(self) -> str:
        return f'<div style="max-height:40em;overflow:auto">{self._repr_svg_()}</div>'


class ProgramView:
    """What Paddle calls a program's description: ``program.desc``."""

    def __init__(self, program: Any) -> None:
        self._program = program

    def serialize_to_string(self) -> bytes:
        """Returns the program as bytes, for ``Program.parse_from_string``."""
        return hooks.encode(self._program)

    def num_blocks(self) -> int:
        return int(self._program.num_blocks)

    def __str__(self) -> str:
        return str(self._program)


__all__ = ["Hooks", "ProgramForms", "ProgramView", "hooks", "later"]
