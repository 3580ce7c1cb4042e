"""What a program is.

* ``types``  data types, shapes and metadata
* ``attrs``, ``opdef``, ``export``, ``registry``  attributes and slots, what an op is and where tests sample it, its public
  names, and loading them
* ``respell``  functions with the parameters of others: of another version of Paddle, or of another rank
* ``refusal``  the error in place of Python's own that a wrong argument ends in
* ``ref``, ``evaluate``, ``rng``  the reference of an op, running one, random keys
* ``recording``  the numpy calls of a reference, made again without it
* ``split``  how its work is cut into tiles
* ``dynamic``  why the sizes of its results depend on values
* ``indices``  which inputs hold positions, and their limits
* ``expr``, ``expr_numpy``, ``expr_torch``, ``pointwise``, ``channels``, ``formula``, ``drawn``  expressions, and what follows from
  them; those on channels, of updates, and over random numbers
* ``torch_tables``  numbers of the host that torch forms read on the device
* ``product``  which ops multiply two matrices
* ``program``, ``operator``, ``variable``, ``methods``, ``hooks``  the graph that users build
* ``build``, ``composed``, ``checks``, ``shape_checks``, ``declare``, ``names``  how it is built
* ``lod``  row offsets of sequences: which variables an op reads them from, and which its results share
* ``edit``, ``updates``  clone, prune; prune to the optimizers that a run chooses
* ``learning_rate``  the rate that ``set_lr`` changes
* ``frozen``  the single-assignment copy that passes work on, and what must be true of it
* ``text``, ``parse``  print and parse
* ``serial``  the saved form
* ``paddle_program``, ``paddle_attributes``, ``paddle_writing``, ``paddle_proto``, ``paddle_form``  programs in Paddle's files:
  their translation here, slots and attributes among it, and there, their bytes, and how an op says where it differs
* ``budget``  what reading a file may cost
* ``onnx_graph``, ``onnx_expr``, ``onnx_form``  the graph of an export to ONNX, expressions as its nodes, and the form of an op
* ``tensor_array``  the value of a tensor array
* ``schema``, ``restore``  what files and texts hold, stated once, and a program made of it
"""

from collections.abc import Callable as _Callable
from importlib import import_module as _import_module
from typing import Any as _Any

from tstatic.errors import needed_for as _needed_for
from tstatic.ir import build, declare, edit
from tstatic.ir.hooks import hooks as _hooks


def _later(module: str, function: str, purpose: str) -> _Callable[..., _Any]:
    """Returns a function of a module that is imported when it is called first: half of all processes never do."""

    def call(*args: _Any) -> _Any:
        with _needed_for(purpose):
            found = _import_module(f"{__name__}.{module}")
        return getattr(found, function)(*args)

    return call


_hooks.append_op = build.append_op
_hooks.create_parameter = declare.create_parameter
_hooks.clone, _hooks.prune = edit.clone, edit.prune
_hooks.text = _later("text", "text_of", "writing a program as text")
_hooks.parse = _later("parse", "parse", "reading a program's text")
_hooks.encode = _later("serial", "encode", "saving a program")
_hooks.decode = _later("serial", "decode", "loading a program")
