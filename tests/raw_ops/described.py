"""Raw operators of Paddle's first generation: described once, run by Paddle 1.8.5 (``record.py``) and by tstatic.

Only numpy is imported, so that the file runs under Python 3.7.
"""

import numpy as np


def ramp(*shape, start=-1.3, step=0.37):
    """Distinct float32 numbers."""
    return (start + step * np.arange(np.prod(shape, dtype=int), dtype=np.float32)).reshape(shape)


# name -> (type, inputs, attributes, output slots)
OPS = {
    "matmul": ("matmul", {"X": ramp(2, 3), "Y": ramp(3, 4)}, {"alpha": 2.0}, ["Out"]),
    "matmul_transposed": (
        "matmul", {"X": ramp(3, 2), "Y": ramp(4, 3)}, {"transpose_X": True, "transpose_Y": True}, ["Out"]
    ),
    "matmul_vectors": ("matmul", {"X": ramp(3), "Y": ramp(3)}, {}, ["Out"]),
    "matmul_outer": ("matmul", {"X": ramp(3), "Y": ramp(3)}, {"transpose_X": True, "transpose_Y": True}, ["Out"]),
    "matmul_row": ("matmul", {"X": ramp(3), "Y": ramp(3, 2)}, {}, ["Out"]),
    "matmul_column": ("matmul", {"X": ramp(2, 3), "Y": ramp(3)}, {}, ["Out"]),
    "squeeze": ("squeeze", {"X": ramp(2, 1, 3)}, {"axes": [1]}, ["Out"]),
    "unsqueeze": ("unsqueeze", {"X": ramp(2, 3)}, {"axes": [1]}, ["Out"]),
    "top_k": ("top_k", {"X": ramp(2, 5)}, {"k": 2}, ["Out", "Indices"]),
    "reshape": ("reshape", {"X": ramp(2, 6)}, {"shape": [3, 4]}, ["Out"]),
    "transpose": ("transpose", {"X": ramp(2, 3, 4)}, {"axis": [2, 0, 1]}, ["Out"]),
    "flatten": ("flatten", {"X": ramp(2, 3, 4)}, {"axis": 2}, ["Out"]),
    "smooth_l1_loss": ("smooth_l1_loss", {"X": ramp(3, 4), "Y": ramp(3, 4, start=0.2, step=-0.1)}, {"sigma": 1.5}, ["Diff", "Out"]),
    "smooth_l1_loss_weighted": (
        "smooth_l1_loss",
        {"X": ramp(3, 4), "Y": ramp(3, 4, step=0.1), "InsideWeight": ramp(3, 4, start=0.1), "OutsideWeight": ramp(3, 4, start=0.5)},
        {"sigma": 1.0}, ["Diff", "Out"],
    ),
    "norm": ("norm", {"X": ramp(2, 3)}, {"axis": 1, "epsilon": 1e-3}, ["Out", "Norm"]),
    "cos_sim": ("cos_sim", {"X": ramp(3, 4), "Y": ramp(3, 4, start=0.3, step=-0.2)}, {}, ["Out", "XNorm", "YNorm"]),
    "minus": ("minus", {"X": ramp(2, 3), "Y": ramp(2, 3, step=0.2)}, {}, ["Out"]),
    "reverse": ("reverse", {"X": ramp(2, 3)}, {"axis": [1]}, ["Out"]),
    "crop": ("crop", {"X": ramp(3, 4)}, {"offsets": [1, 0], "shape": [2, 3]}, ["Out"]),
    "isfinite": ("isfinite", {"X": ramp(2, 3)}, {}, ["Out"]),
    "nearest_interp": (
        "nearest_interp", {"X": ramp(1, 2, 3, 4)}, {"out_h": 5, "out_w": 6, "align_corners": False, "interp_method": "nearest"}, ["Out"]
    ),
    "bilinear_interp": (
        "bilinear_interp", {"X": ramp(1, 2, 3, 4)}, {"out_h": 5, "out_w": 6, "align_corners": True, "align_mode": 1}, ["Out"]
    ),
    "multiplex": (
        "multiplex", {"X": [ramp(2, 3), ramp(2, 3, start=5.0)], "Ids": np.array([[1], [0]], "int32")}, {}, ["Out"]
    ),
    "unique_with_counts": (
        "unique_with_counts", {"X": np.array([3.0, 1.0, 3.0, 2.0], "float32")}, {"dtype": 2}, ["Out", "Index", "Count"]
    ),
    "squared_l2_distance": (
        "squared_l2_distance", {"X": ramp(2, 3), "Y": ramp(2, 3, step=0.1)}, {}, ["sub_result", "Out"]
    ),
    "modified_huber_loss": (
        "modified_huber_loss", {"X": ramp(6, 1, step=0.6), "Y": np.array([[0], [1], [0], [1], [0], [1]], "float32")}, {},
        ["IntermediateVal", "Out"],
    ),
    "l1_norm": ("l1_norm", {"X": ramp(2, 3)}, {}, ["Out"]),
    "fill": ("fill", {}, {"shape": [2, 2], "value": [1.0, 2.0, 3.0, 4.0], "dtype": 5, "force_cpu": True}, ["Out"]),
    "mul_with_kernel_attributes": ("mul", {"X": ramp(2, 3), "Y": ramp(3, 2)}, {"use_mkldnn": False}, ["Out"]),
    "cast_by_number": ("cast", {"X": ramp(2, 3)}, {"in_dtype": 5, "out_dtype": 3}, ["Out"]),
}  # fmt: skip

WHOLE = ("Indices", "Index", "Count")


def run(fluid, name):
    """Builds one operator in a program of its own, runs it, and returns its outputs as nested lists."""
    type_, inputs, attrs, slots = OPS[name]
    main, startup = fluid.Program(), fluid.Program()
    feed = {}
    with fluid.program_guard(main, startup):
        block = main.global_block()

        def fed(label, array):
            block.create_var(name=label, shape=array.shape, dtype=str(array.dtype), is_data=True, stop_gradient=True)
            feed[label] = array
            return block.var(label)

        listed = {slot: value if isinstance(value, list) else [value] for slot, value in inputs.items()}
        ins = {slot: [fed(slot + str(i), array) for i, array in enumerate(value)] for slot, value in listed.items()}
        outs = {}
        for slot in slots:
            kind = (
                "bool"
                if name == "isfinite"
                else "int64"
                if name == "cast_by_number" or slot == "Indices"
                else "float32"
            )
            kind = "int32" if slot in ("Index", "Count") else kind
            outs[slot] = [block.create_var(name="out" + slot, dtype=kind)]
        block.append_op(type=type_, inputs=ins, outputs=outs, attrs=attrs)
    exe = fluid.Executor(fluid.CPUPlace())
    found = exe.run(main, feed=feed, fetch_list=[outs[slot][0] for slot in slots])
    return {slot: np.asarray(value).tolist() for slot, value in zip(slots, found)}  # noqa: B905 - Python 3.7 has no strict
