"""``static.amp``: mixed precision, by rewriting the program that the user built before its gradients are appended.

* ``lists``  which ops run in 16 bits: sets that follow from the op definitions, and the user's changes to them
* ``rewrite``  decides the precision of every op and inserts the casts: read this first
* ``support``  which 16-bit floats a device computes with

The optimizer that rewrites, scales the loss and leaves out the steps that overflow belongs to Paddle's library:
``tstatic/optimizer/mixed_precision.py``.
"""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__, modules="bf16 decorator fp16_lists fp16_utils")

facade_module(
    "static.amp.fp16_lists",
    "which ops run in 16 bits.",
    others={
        "tstatic.static.amp.lists": (
            "AutoMixedPrecisionLists, AutoMixedPrecisionLists CustomOpLists, black_list, gray_list, white_list"
        )
    },
)
facade_module("static.amp.fp16_utils", "rewriting programs and casting their parameters.")
facade_module(
    "static.amp.decorator",
    "the optimizer of mixed precision.",
    others={
        "tstatic.optimizer.mixed_precision": "OptimizerWithMixedPrecision, decorate",
        "tstatic.static.amp.lists": "AutoMixedPrecisionLists",
    },
)
facade_module("static.amp.bf16", "mixed precision with bfloat16.", modules="amp_lists amp_utils decorator")
facade_module("static.amp.bf16.amp_lists", "which ops run in bfloat16.")
facade_module(
    "static.amp.bf16.amp_utils",
    "rewriting programs and casting their parameters.",
    others={"tstatic.static.amp.rewrite": "fp16_guard bf16_guard"},
)
facade_module("static.amp.bf16.decorator", "the optimizer of mixed precision with bfloat16.")
