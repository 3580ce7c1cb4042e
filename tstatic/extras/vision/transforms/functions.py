"""Functions of one image: an array of uint8 or floats, ``[height, width, channels]`` or ``[height, width]``; numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError, ShapeError, shown
from tstatic.ir.checks import check_choice, check_int, check_number
from tstatic.ir.opdef import export

Array = np.ndarray[Any, Any]
PADS = {"constant": "constant", "edge": "edge", "reflect": "reflect", "symmetric": "symmetric"}


def as_image(img: Any, function: str) -> Array:
    """Returns an image as an array; what numpy can read, such as an image of PIL, is read.

    Raises:
        ProgramTypeError: If it is not an array of numbers.
        ShapeError: If it has not two or three axes.
    """
    if not hasattr(img, "__array__") and not hasattr(img, "__array_interface__"):
        raise ProgramTypeError(
            f"{function} takes an image",
            expected="an array [height, width, channels] or [height, width]",
            received=shown(img),
            fix="np.asarray(image), or a loader that gives arrays",
            op=function,
        )
    found = np.asarray(img)
    if found.ndim not in (2, 3):
        raise ShapeError(
            f"{function} takes one image",
            expected="[height, width, channels] or [height, width]",
            received=list(found.shape),
            fix="transform images one by one, before they are batched",
            op=function,
        )
    return found


def pair(value: Any, arg: str, function: str) -> tuple[int, int]:
    """Returns a height and a width from a number or two.

    Raises:
        ProgramTypeError: If it is something else.
        ProgramError: If one is below 1.
    """
    given = tuple(value) if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) else (value, value)
    if len(given) != 2:
        raise ProgramTypeError(
            f"Got inappropriate {arg} arg: {value}",
            expected="a number, or (height, width)",
            received=shown(value),
            fix=f"{arg}=(224, 224)",
            op=function,
        )
    height, width = (check_int(v, arg, function, least=1, error=ProgramError) for v in given)
    return height, width


@export("vision.transforms.to_tensor")
def to_tensor(pic: Any, data_format: str = "CHW") -> Array:
    """Returns an image as ``[channels, height, width]``, of uint8 as float32 from 0 to 1.

    Args:
        pic: ``[height, width, channels]`` or ``[height, width]``.
        data_format: ``"CHW"``, or ``"HWC"`` to leave the axes.

    Raises:
        ProgramError: For another format.

    Example:
        >>> image = np.array([[[0, 51, 255]]], "uint8")
        >>> paddle.vision.transforms.to_tensor(image).ravel()
        array([0. , 0.2, 1. ], dtype=float32)
    """
    check_choice(data_format, ("CHW", "HWC"), "data_format", "to_tensor")
    found = as_image(pic, "to_tensor")
    found = found[:, :, None] if found.ndim == 2 else found
    found = found.transpose(2, 0, 1) if data_format == "CHW" else found
    return found.astype(np.float32) / np.float32(255) if found.dtype == np.uint8 else np.ascontiguousarray(found)


def per_channel(value: Any, arg: str, function: str) -> Any:
    """Returns a number, or a list or array of numbers, as it is.

    Raises:
        ProgramTypeError: For anything else.
    """
    kind = (
        np.asarray(value).dtype.kind if isinstance(value, int | float | np.number | np.ndarray | list | tuple) else ""
    )
    if kind not in "iuf" or not kind:
        raise ProgramTypeError(
            f"'{arg}' of {function} has a number per channel, or one for all",
            expected="a number, or a list of numbers",
            received=shown(value),
            fix=f"pass {arg}=[0.5, 0.5, 0.5]",
            op=function,
            var=arg,
        )
    return value


@export("vision.transforms.normalize")
def normalize(img: Any, mean: Any, std: Any, data_format: str = "CHW", to_rgb: bool = False) -> Array:
    """Returns ``(img - mean) / std`` as float32.

    Args:
        img: ``[channels, height, width]``, or with the channels last.
        mean, std: A number per channel, or one for all.
        data_format: ``"CHW"`` or ``"HWC"``.
        to_rgb: Reverse the channels first.

    Raises:
        ProgramError: For another format.
        ShapeError: If there are not as many numbers as channels.

    Example:
        >>> paddle.vision.transforms.normalize(np.ones((1, 2, 2)), [0.5], [0.25]).ravel()
        array([2., 2., 2., 2.], dtype=float32)
    """
    check_choice(data_format, ("CHW", "HWC"), "data_format", "normalize")
    found = as_image(img, "normalize").astype(np.float32)
    axis = 0 if data_format == "CHW" else -1
    if to_rgb:
        found = np.flip(found, axis)
    sides = []
    for name, value in (("mean", mean), ("std", std)):
        side = np.asarray(per_channel(value, name, "normalize"), np.float32).ravel()
        if found.ndim == 3 and side.size not in (1, found.shape[axis]):
            raise ShapeError(
                f"'{name}' of normalize does not fit the image",
                expected=f"1 or {found.shape[axis]} numbers, one per channel of {list(found.shape)} ({data_format})",
                received=f"{side.size} numbers",
                fix="give a number per channel, or data_format='HWC' where the channels come last",
                op="normalize",
            )
        sides.append(side.reshape(-1, 1, 1) if data_format == "CHW" and found.ndim == 3 else side)
    return (found - sides[0]) / sides[1]


def _positions(size: int, out: int) -> tuple[Array, Array, Array]:
    """Returns the pixels beside each new one, and the weight of the second: pixels have their middles at 0.5, 1.5, ..."""
    at = np.clip((np.arange(out) + 0.5) * (size / out) - 0.5, 0, size - 1)
    low = np.floor(at).astype(np.int64)
    return low, np.minimum(low + 1, size - 1), (at - low).astype(np.float32)


@export("vision.transforms.resize")
def resize(img: Any, size: Any, interpolation: str = "bilinear") -> Array:
    """Returns an image of another size, of the same dtype.

    Args:
        img: ``[height, width, channels]`` or ``[height, width]``.
        size: ``(height, width)``, or a number: the shorter side gets it, and the other one keeps the ratio.
        interpolation: ``"bilinear"`` between the pixels around (as cv2's INTER_LINEAR, without smoothing first), or ``"nearest"``.

    Raises:
        ProgramError: For another interpolation, or a size below 1.

    Example:
        >>> image = np.arange(8, dtype="float32").reshape(2, 4)
        >>> paddle.vision.transforms.resize(image, (1, 2))
        array([[2.5, 4.5]], dtype=float32)
    """
    check_choice(interpolation, ("bilinear", "nearest"), "interpolation", "resize")
    found = as_image(img, "resize")
    height, width = found.shape[:2]
    if isinstance(size, int | np.integer):
        short = check_int(size, "size", "resize", least=1, error=ProgramError)
        out = (int(short * height / width), short) if width < height else (short, int(short * width / height))
    else:
        out = pair(size, "size", "resize")
    if out == (height, width):
        return found
    if interpolation == "nearest":
        rows, columns = (np.arange(n) * old // n for n, old in zip(out, (height, width), strict=True))
        nearest: Array = found[rows][:, columns]
        return nearest
    top, bottom, down = _positions(height, out[0])
    left, right, across = _positions(width, out[1])
    wide = found if found.dtype == np.float64 else found.astype(np.float32)
    tail = (1,) * (found.ndim - 2)
    down, across = down.reshape(-1, 1, *tail), across.reshape(1, -1, *tail)
    upper, lower = (wide[row] for row in (top, bottom))
    rows_ = upper + (lower - upper) * down
    mixed = rows_[:, left] + (rows_[:, right] - rows_[:, left]) * across
    resized: Array = (np.rint(mixed) if found.dtype.kind in "iu" else mixed).astype(found.dtype)
    return resized


@export("vision.transforms.crop")
def crop(img: Any, top: int, left: int, height: int, width: int) -> Array:
    """Returns a part of an image.

    Args:
        img: ``[height, width, channels]`` or ``[height, width]``.
        top, left: First row and column.
        height, width: Numbers of rows and columns.

    Raises:
        ShapeError: If the part is not inside of the image.
    """
    found = as_image(img, "crop")
    if not (0 <= top <= top + height <= found.shape[0] and 0 <= left <= left + width <= found.shape[1]):
        raise ShapeError(
            "a crop is not inside of the image",
            expected=f"rows and columns of {list(found.shape)}",
            received=f"rows {top} to {top + height}, columns {left} to {left + width}",
            fix="resize or pad the image first",
            op="crop",
        )
    return found[top : top + height, left : left + width]


@export("vision.transforms.center_crop")
def center_crop(img: Any, output_size: Any) -> Array:
    """Returns the middle of an image.

    Args:
        img: ``[height, width, channels]`` or ``[height, width]``.
        output_size: ``(height, width)``, or a number for both.

    Raises:
        ShapeError: If it is larger than the image.
    """
    found = as_image(img, "center_crop")
    height, width = pair(output_size, "output_size", "center_crop")
    top, left = round((found.shape[0] - height) / 2.0), round((found.shape[1] - width) / 2.0)
    return crop(found, top, left, height, width)


@export("vision.transforms.hflip")
def hflip(img: Any) -> Array:
    """Returns an image with left and right exchanged."""
    return np.ascontiguousarray(as_image(img, "hflip")[:, ::-1])


@export("vision.transforms.vflip")
def vflip(img: Any) -> Array:
    """Returns an image with top and bottom exchanged."""
    return np.ascontiguousarray(as_image(img, "vflip")[::-1])


@export("vision.transforms.pad")
def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Array:
    """Returns an image with rows and columns added around it.

    Args:
        img: ``[height, width, channels]`` or ``[height, width]``.
        padding: A number for all sides, ``(left and right, top and bottom)``, or ``(left, top, right, bottom)``.
        fill: Value of the new pixels, or one per channel, for ``"constant"``.
        padding_mode: ``"constant"``, ``"edge"``, ``"reflect"`` (without the edge) or ``"symmetric"`` (with it).

    Raises:
        ProgramError: For another mode, or another number of sides.

    Example:
        >>> paddle.vision.transforms.pad(np.array([[1, 2]]), (1, 0), fill=7)
        array([[7, 1, 2, 7]])
    """
    check_choice(padding_mode, tuple(PADS), "padding_mode", "pad")
    found = as_image(img, "pad")
    sides = tuple(padding) if isinstance(padding, Sequence | np.ndarray) else (padding,)
    if len(sides) not in (1, 2, 4):
        raise ProgramError(
            f"Padding must be an int or a 2, or 4 element tuple, not a {len(sides)} element tuple",
            expected="1, 2 or 4 numbers",
            received=shown(padding),
            fix="padding=(left, top, right, bottom)",
            op="pad",
        )
    left, top, right, bottom = (check_int(v, "padding", "pad", least=0, error=ProgramError) for v in (sides * 4)[:4])
    widths = [(top, bottom), (left, right), (0, 0)][: found.ndim]
    if padding_mode != "constant":
        return np.pad(found, widths, PADS[padding_mode])  # type: ignore[call-overload,no-any-return]
    out = np.empty([n + a + b for n, (a, b) in zip(found.shape, widths, strict=True)], found.dtype)
    out[...] = fill
    out[top : top + found.shape[0], left : left + found.shape[1]] = found
    return out


# --------------------------------------------------------------------------------------------------------------- colours
def _grey(found: Array) -> Array:
    """Returns the brightness ``[height, width]`` that eyes see, by the weights of ITU-R 601."""
    if found.ndim == 2 or found.shape[2] == 1:
        return found.reshape(found.shape[:2])
    if found.dtype == np.uint8:
        # PIL's numbers: weights of 16 bits, rounded once.
        wide = found[..., :3].astype(np.int64)
        grey: Array = (wide @ np.array([19595, 38470, 7471]) + 32768) >> 16
        return grey.astype(np.uint8)
    weighted: Array = found[..., :3] @ np.array([0.299, 0.587, 0.114], found.dtype)
    return weighted.astype(found.dtype)


def _blend(start: Any, found: Array, factor: float) -> Array:
    """Returns ``start + factor * (found - start)`` in the image's dtype; uint8 is cut to 0 to 255."""
    wide = np.dtype(np.float64 if found.dtype == np.float64 else np.float32)
    base: Array = np.asarray(start).astype(wide)
    mixed: Array = base + wide.type(factor) * (found.astype(wide) - base)
    return np.clip(mixed, 0, 255).astype(np.uint8) if found.dtype == np.uint8 else mixed.astype(found.dtype)


@export("vision.transforms.to_grayscale")
def to_grayscale(img: Any, num_output_channels: int = 1) -> Array:
    """Returns a grey image ``[height, width, num_output_channels]``.

    Args:
        img: ``[height, width, 3]`` in the order red, green, blue, or a grey one.
        num_output_channels: 1, or 3 equal ones.

    Raises:
        ProgramError: For another number.

    Example:
        >>> paddle.vision.transforms.to_grayscale(np.array([[[255, 0, 0]]], "uint8")).tolist()
        [[[76]]]
    """
    check_choice(num_output_channels, (1, 3), "num_output_channels", "to_grayscale")
    return np.repeat(_grey(as_image(img, "to_grayscale"))[..., None], num_output_channels, axis=2)


@export("vision.transforms.adjust_brightness")
def adjust_brightness(img: Any, brightness_factor: float) -> Array:
    """Returns a brighter or darker image.

    Args:
        img: ``[height, width, channels]`` or ``[height, width]``.
        brightness_factor: 0 for black, 1 for the image itself.

    Raises:
        ProgramError: If the factor is negative.

    Example:
        >>> paddle.vision.transforms.adjust_brightness(np.array([[10, 200]], "uint8"), 2.0)
        array([[ 20, 255]], dtype=uint8)
    """
    factor = check_number(brightness_factor, "brightness_factor", "adjust_brightness", least=0)
    return _blend(0, as_image(img, "adjust_brightness"), factor)


@export("vision.transforms.adjust_contrast")
def adjust_contrast(img: Any, contrast_factor: float) -> Array:
    """Returns an image with more or less contrast.

    Args:
        img: ``[height, width, channels]`` or ``[height, width]``.
        contrast_factor: 0 for the mean grey, 1 for the image itself.

    Raises:
        ProgramError: If the factor is negative.
    """
    factor = check_number(contrast_factor, "contrast_factor", "adjust_contrast", least=0)
    found = as_image(img, "adjust_contrast")
    mean = float(_grey(found).mean(dtype=np.float64)) if found.size else 0.0
    return _blend(int(mean + 0.5) if found.dtype == np.uint8 else mean, found, factor)


@export("vision.transforms.adjust_saturation")
def adjust_saturation(img: Any, saturation_factor: float) -> Array:
    """Returns an image with more or less colour.

    Args:
        img: ``[height, width, 3]``, or a grey image, which stays as it is.
        saturation_factor: 0 for grey, 1 for the image itself.

    Raises:
        ProgramError: If the factor is negative.
    """
    factor = check_number(saturation_factor, "saturation_factor", "adjust_saturation", least=0)
    found = as_image(img, "adjust_saturation")
    return found if found.ndim == 2 or found.shape[2] == 1 else _blend(_grey(found)[..., None], found, factor)


@export("vision.transforms.adjust_hue")
def adjust_hue(img: Any, hue_factor: float) -> Array:
    """Returns an image whose colours are turned on the wheel of colours.

    Args:
        img: ``[height, width, 3]`` of uint8, or a grey image, which stays as it is.
        hue_factor: From -0.5 to 0.5: by how much of the wheel.

    Raises:
        ProgramError: If the factor is out of range.
        ProgramTypeError: For a colour image of floats.
    """
    factor = check_number(hue_factor, "hue_factor", "adjust_hue", least=-0.5, most=0.5)
    found = as_image(img, "adjust_hue")
    if found.ndim == 2 or found.shape[2] == 1:
        return found
    if found.dtype != np.uint8:
        raise ProgramTypeError(
            "adjust_hue takes an image of uint8",
            expected="values from 0 to 255 of dtype uint8",
            received=f"dtype {found.dtype}",
            fix="adjust colours before ToTensor and Normalize",
            op="adjust_hue",
        )
    hue, saturation, value = _to_hsv(found[..., :3])
    return _from_hsv((hue + int(factor * 255)) % 256, saturation, value)


def _to_hsv(rgb: Array) -> tuple[Array, Array, Array]:
    """Returns hue, saturation and value, each from 0 to 255 in integers."""
    r, g, b = (rgb[..., i].astype(np.float32) for i in range(3))
    high, low = np.maximum(np.maximum(r, g), b), np.minimum(np.minimum(r, g), b)
    spread = np.where(high == low, np.float32(1), high - low)
    to_r, to_g, to_b = ((high - c) / spread for c in (r, g, b))
    turn = np.where(r == high, to_b - to_g, np.where(g == high, 2 + to_r - to_b, 4 + to_g - to_r))
    # Rounded to float32 before it is cut to an integer, as PIL does: a third of the wheel is 85, not 84.
    part = np.fmod(turn.astype(np.float64) / 6 + 1, 1).astype(np.float32)
    hue = (part.astype(np.float64) * 255).astype(np.int64)
    saturation = ((high - low) / np.where(high == 0, np.float32(1), high) * np.float32(255)).astype(np.int64)
    return np.where(high == low, 0, hue), np.where(high == low, 0, saturation), high.astype(np.int64)


def _from_hsv(hue: Array, saturation: Array, value: Array) -> Array:
    at = hue * 6.0 / 255.0
    part, share = np.floor(at), saturation / 255.0
    rest = at - part

    def level(x: Array) -> Array:
        return np.clip(np.floor(value * (1.0 - x) + 0.5), 0, 255).astype(np.uint8)

    v, p, q, t = value.astype(np.uint8), level(share), level(share * rest), level(share * (1.0 - rest))
    turns = ((v, t, p), (q, v, p), (p, v, t), (p, q, v), (t, p, v), (v, p, q))
    found = [np.choose(part.astype(np.int64) % 6, [turn[c] for turn in turns]) for c in range(3)]
    return np.stack([np.where(saturation == 0, v, c) for c in found], axis=-1)


@export("vision.transforms.erase")
def erase(img: Any, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Array:
    """Returns an image with a rectangle of one value.

    Args:
        img: ``[height, width, channels]`` or ``[height, width]``.
        i, j: First row and column.
        h, w: Numbers of rows and columns.
        v: The value: a number, one per channel, or an array that fits.
        inplace: Write into the image that is given.
    """
    found = as_image(img, "erase")
    found = found if inplace else found.copy()
    found[i : i + h, j : j + w] = v
    return found
