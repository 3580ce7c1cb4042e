"""One op definition per op, beside its public functions, in a package per family; a module is loaded when it is asked for.

* ``elementwise``, ``reduce``, ``matmul``, ``linalg``, ``conv``, ``norm``  arithmetic
* ``indexing``, ``shape``  reading, writing and moving elements
* ``sequence``  sequences of different lengths in one value
* ``random``, ``loss``, ``update``, ``control``  random numbers, losses and metrics, optimizer updates, branches and loops
* ``recurrent``  LSTM, GRU and general recurrences
* ``first_generation``  what raw ``append_op`` builds for op types that later ones replaced
* ``composed``  op types of Paddle that are several ordinary ops here
* ``_expressions``  functions of the expression language
* ``_call_ref``, ``_low``, ``_torch_gradient``  makers of references and lowerings
* ``_torch_out``, ``_host``  torch forms that write to given tensors, reasons why ops run on the host
* ``_rows``, ``_gradients``  rows of matrices, gradient rules
"""

from tstatic.ops import _expressions  # noqa: F401 - expressions mean the same whichever ops are loaded
