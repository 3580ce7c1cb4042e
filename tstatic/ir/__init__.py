"""What a program is.

* ``types``  data types, shapes and metadata
* ``attrs``, ``opdef``, ``export``, ``registry``  attributes and slots, what an op is and where tests sample it, its public
  names, and loading them
* ``ref``, ``evaluate``, ``rng``  the reference of an op, running one, random keys
* ``split``  how its work is cut into tiles
* ``expr``, ``expr_numpy``, ``pointwise``, ``formula``  expressions, and what follows from them; those of updates
* ``program``, ``operator``, ``variable``, ``methods``  the graph that users build
* ``build``, ``checks``, ``declare``, ``names``  how it is built
* ``edit``  clone, prune
* ``frozen``  the single-assignment copy that passes work on, and what must be true of it
* ``text``, ``parse``  print and parse
* ``serial``  the saved form
* ``schema``, ``restore``  what files and texts hold, stated once, and a program made of it
"""

from tstatic.errors import needed_for as _needed_for
from tstatic.ir import build, declare, edit, serial, text
from tstatic.ir.program import Program as _Program
from tstatic.ir.program import hooks as _hooks


def _parse(source: str) -> _Program:
    with _needed_for("reading a program's text"):
        from tstatic.ir import parse

    return parse.parse(source)


_hooks.append_op = build.append_op
_hooks.create_parameter = declare.create_parameter
_hooks.clone, _hooks.prune = edit.clone, edit.prune
_hooks.text, _hooks.parse = text.text_of, _parse
_hooks.encode, _hooks.decode = serial.encode, serial.decode
