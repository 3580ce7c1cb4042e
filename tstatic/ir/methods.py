"""The methods that higher layers give to Variables and Programs: what is exported as ``Variable.name`` and ``Program.name``.

Their modules are imported when a method is looked up; type checkers read the generated stub beside this file.
"""

from __future__ import annotations

from tstatic.ir.export import METHODS, PUBLIC_API, Method


class VariableMethods:
    """What ops and the scope add to Variables."""


class ProgramMethods:
    """What the scope adds to Programs."""


METHODS.update(Variable=VariableMethods, Program=ProgramMethods)


def add_methods() -> None:
    """Gives the classes the methods that exist, loaded or not."""
    for prefix, owner in METHODS.items():
        for name in PUBLIC_API.below(prefix):
            # A method that was loaded has replaced its `Method` already.
            if name not in vars(owner):
                setattr(owner, name, Method(owner, f"{prefix}.{name}", name))
