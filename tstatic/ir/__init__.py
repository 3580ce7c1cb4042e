"""What a program is.

* ``types``  data types, shapes and metadata
* ``attrs``, ``opdef``, ``export``, ``registry``  attributes and slots, what an op is and where tests sample it, its public
  names, and loading them
* ``traits``  what few ops state: activations, softmaxes, what runs on the host, ...
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
* ``paddle_form``  how an op says where it differs in Paddle's files
* ``budget``  what reading a file may cost
* ``onnx_graph``, ``onnx_expr``, ``onnx_form``  the graph of an export to ONNX, expressions as its nodes, and the form of an op
* ``tensor_array``  the value of a tensor array
"""

from tstatic.ir import build, declare, edit
from tstatic.ir.hooks import hooks as _hooks

_hooks.append_op = build.append_op
_hooks.create_parameter = declare.create_parameter
_hooks.clone, _hooks.prune = edit.clone, edit.prune
