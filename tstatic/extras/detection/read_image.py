"""Files and the images in them, read when the program runs: ``read_file`` and ``decode_jpeg``."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from tstatic.errors import FeedError, needed_for
from tstatic.extras.detection._boxes import Array
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_choice, check_dtype, check_rank, check_type
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Attr, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, dtype_of
from tstatic.regular import read_bytes

MODES = {"unchanged": None, "gray": "L", "rgb": "RGB"}


def _read(out: None, *, filename: str) -> list[Array]:
    return [np.frombuffer(read_bytes(filename), np.uint8).copy()]


register(OpDef(
    "read_file", "-> Out", attrs={"filename": Attr(kind="str")}, infer=lambda: Meta((UNKNOWN,), dtype_of("uint8")),
    ref=_read, dynamic=Dynamic("the file"), effects=True,
))  # fmt: skip


def _pillow() -> Any:
    with needed_for("decoding images"):
        from PIL import Image
    return Image


def _infer(x: Meta) -> Meta:
    check_dtype(x, ("uint8",), "X")
    check_rank(x, 1, "X", layout="[bytes]")
    return Meta((UNKNOWN,) * 3, x.dtype)


def _decode(x: Array, out: None, *, mode: str) -> list[Array]:
    image_module = _pillow()
    try:
        with image_module.open(io.BytesIO(x.tobytes()), formats=("JPEG",)) as image:
            found = np.asarray(image if MODES[mode] is None else image.convert(MODES[mode]))
    except (OSError, SyntaxError) as error:
        raise FeedError(
            "decode_jpeg cannot decode the bytes that it was given", expected="the bytes of a JPEG file",
            received=f"{x.size} bytes: {error}"[:200], fix="pass what vision.ops.read_file gives for a .jpg file",
            op="decode_jpeg",
        ) from None  # fmt: skip
    return [np.ascontiguousarray(found[None] if found.ndim == 2 else found.transpose(2, 0, 1))]


register(OpDef(
    "decode_jpeg", "X -> Out", attrs={"mode": Attr("unchanged", "str", lambda v: None if v in MODES else "unchanged, gray or rgb")},
    infer=_infer, ref=_decode, dynamic=Dynamic("the picture"), effects=True,
))  # fmt: skip


@export("vision.ops.read_file", op="read_file")
def read_file(filename: str, name: str | None = None) -> Variable:
    """Reads the bytes of a file, anew in each run.

    Args:
        filename: The path.
        name: Name of the layer.

    Returns:
        ``[bytes]``, uint8.

    Raises:
        ProgramTypeError: If the path is not a text.
        FileNotFoundError: At run time, if there is no such file.
        OSError: At run time, if it cannot be read, or is not a regular file.
    """
    check_type(filename, str, "filename", "read_file")
    made: Variable = emit("read_file", {}, {"filename": filename}, name=name)
    return made


@export("vision.ops.decode_jpeg", op="decode_jpeg")
def decode_jpeg(x: Variable, mode: str = "unchanged", name: str | None = None) -> Variable:
    """Decodes a JPEG image; this needs Pillow.

    Args:
        x: The file's bytes, uint8, as :func:`read_file` gives them.
        mode: ``"unchanged"``, ``"gray"`` or ``"rgb"``.
        name: Name of the layer.

    Returns:
        ``[channels, height, width]``, uint8.

    Raises:
        ProgramError: For another mode.
        UnsupportedError: If Pillow is not installed.
        FeedError: At run time, if the bytes are not a JPEG image.

    Example:
        >>> import io
        >>> from PIL import Image
        >>> file = io.BytesIO()
        >>> Image.fromarray(np.full((2, 3), 7, "uint8")).save(file, "JPEG")
        >>> image = paddle.vision.ops.decode_jpeg(static.data("bytes", [None], "uint8"))
        >>> feed = {"bytes": np.frombuffer(file.getvalue(), "uint8")}
        >>> static.Executor().run(feed=feed, fetch_list=[image])[0]
        array([[[7, 7, 7],
                [7, 7, 7]]], dtype=uint8)
    """
    check_choice(mode, tuple(MODES), "mode", "decode_jpeg")
    _pillow()
    check_variable(x, "x", "decode_jpeg", ("uint8",))
    made: Variable = emit("decode_jpeg", {"X": x}, {"mode": mode}, name=name)
    return made
