"""What the families of ops share; nothing here knows an op definition.

* ``shapes``, ``blocks``  functions that emit ops, sizes given as Variables, and ops that own blocks
* ``call_ref``, ``low``, ``rows``, ``mixed``, ``one_input``  makers of references: ready calls, low precision, rows, one input
* ``sum``, ``norm``, ``sliding``, ``indexing``  sums over any axes, views of normalisations, windows of images, rows by index
* ``labels``  labels, weights and reductions of losses
* ``torch_out``, ``torch_gradient``, ``host``  torch forms that write where they are told, and why ops run on the host
* ``gradients``  gradient rules
* ``onnx_layout``  images in forms of ONNX
* ``expressions``  functions of the expression language that need tuned numpy
"""
