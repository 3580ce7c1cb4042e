"""Where type checkers find the methods that higher layers give to Variables and Programs.

At run time the classes are empty: ``tstatic.ops`` and ``tstatic.static`` set the functions that are spelled
``Variable.name`` and ``Program.name`` on the classes themselves. The stub beside this file lists them (``make api``).
"""

from __future__ import annotations


class VariableMethods:
    """What ops and the scope add to Variables."""


class ProgramMethods:
    """What the scope adds to Programs."""
