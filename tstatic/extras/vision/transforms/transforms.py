"""Transforms of images as classes, which keep settings and draw random ones with Python's ``random``."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, UnsupportedError, shown
from tstatic.extras.vision.transforms import functions
from tstatic.extras.vision.transforms.functions import Array, as_image, pair
from tstatic.ir.checks import check_callable, check_choice, check_number, check_type
from tstatic.ir.opdef import export


@export("vision.transforms.Compose")
class Compose:
    """Applies transforms one after another.

    Args:
        transforms: Functions of one argument.

    Raises:
        ProgramTypeError: If one cannot be called.

    Example:
        >>> T = paddle.vision.transforms
        >>> both = T.Compose([T.CenterCrop(2), T.ToTensor()])
        >>> both(np.zeros((4, 4, 3), "uint8")).shape
        (3, 2, 2)
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = [check_callable(one, "transforms", "Compose", "a list of transforms") for one in transforms]

    def __call__(self, data: Any) -> Any:
        for transform in self.transforms:
            data = transform(data)
        return data

    def __repr__(self) -> str:
        lines = "".join(f"\n    {one}" for one in self.transforms)
        return f"{type(self).__name__}({lines}\n)"


@export("vision.transforms.BaseTransform")
class BaseTransform:
    """Base class: ``_apply_image`` says what becomes of an image; a tuple ``(image, label, ...)`` keeps the rest.

    Args:
        keys: What the items of a tuple are: ``"image"``, or names for which the class has a method ``_apply_<name>``.

    Raises:
        UnsupportedError: For a name without method.

    Example:
        >>> class Negative(paddle.vision.transforms.BaseTransform):
        ...     def _apply_image(self, image): return 255 - image
        >>> image, label = Negative()((np.zeros((1, 1), "uint8"), 3))
        >>> int(image[0, 0]), label
        (255, 3)
    """

    def __init__(self, keys: Sequence[str] | None = None) -> None:
        self.keys = ("image",) if keys is None else tuple(keys)
        for key in self.keys:
            if not hasattr(self, f"_apply_{key}"):
                raise UnsupportedError(
                    f"{key} is unsupported data structure",
                    expected="keys for which the transform has a method",
                    received=shown(key),
                    fix=f"define _apply_{key} in a class derived from {type(self).__name__}",
                )
        self.params: Any = None

    def _get_params(self, inputs: tuple[Any, ...]) -> Any:
        """Returns what is drawn once for all items of a tuple; nothing by default."""

    def __call__(self, inputs: Any) -> Any:
        items = inputs if isinstance(inputs, tuple) else (inputs,)
        self.params = self._get_params(items)
        done = [getattr(self, f"_apply_{key}")(item) for key, item in zip(self.keys, items, strict=False)]
        done += items[len(done) :]
        return tuple(done) if isinstance(inputs, tuple) and len(done) > 1 else done[0]

    def _apply_image(self, image: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no _apply_image")


@export("vision.transforms.ToTensor")
class ToTensor(BaseTransform):
    """Puts the channels first, and uint8 into the range from 0 to 1; see :func:`to_tensor`.

    Args:
        data_format: ``"CHW"`` or ``"HWC"``.
        keys: As of :class:`BaseTransform`.

    Example:
        >>> image = np.full((2, 3), 255, "uint8")
        >>> transform = paddle.vision.transforms.ToTensor()
        >>> transform(image).shape
        (1, 2, 3)
    """

    def __init__(self, data_format: str = "CHW", keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.data_format = check_choice(data_format, ("CHW", "HWC"), "data_format", "ToTensor")

    def _apply_image(self, image: Any) -> Array:
        return functions.to_tensor(image, self.data_format)


@export("vision.transforms.Normalize")
class Normalize(BaseTransform):
    """Subtracts means and divides by deviations; see :func:`normalize`.

    Args:
        mean, std: A number per channel, or one for all.
        data_format: ``"CHW"`` or ``"HWC"``.
        to_rgb: Reverse the channels first.
        keys: As of :class:`BaseTransform`.

    Example:
        >>> image = np.full((1, 1, 3), 255, "uint8")
        >>> transform = paddle.vision.transforms.Normalize(mean=127.5, std=127.5, data_format="HWC")
        >>> transform(image).ravel()
        array([1., 1., 1.], dtype=float32)
    """

    def __init__(
        self, mean: Any = 0.0, std: Any = 1.0, data_format: str = "CHW", to_rgb: bool = False,
        keys: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(keys)
        self.mean, self.std = (
            functions.per_channel(mean, "mean", "Normalize"),
            functions.per_channel(std, "std", "Normalize"),
        )
        self.to_rgb = bool(to_rgb)
        self.data_format = check_choice(data_format, ("CHW", "HWC"), "data_format", "Normalize")

    def _apply_image(self, image: Any) -> Array:
        return functions.normalize(image, self.mean, self.std, self.data_format, self.to_rgb)


@export("vision.transforms.Transpose")
class Transpose(BaseTransform):
    """Puts the axes into another order; a grey image gets a last axis first.

    Args:
        order: The axes.
        keys: As of :class:`BaseTransform`.

    Example:
        >>> image = np.zeros((4, 5, 3))
        >>> transform = paddle.vision.transforms.Transpose()
        >>> transform(image).shape
        (3, 4, 5)
    """

    def __init__(self, order: Sequence[int] = (2, 0, 1), keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.order = tuple(check_type(order, (list, tuple), "order", "Transpose", expected="the order of the axes"))

    def _apply_image(self, image: Any) -> Array:
        found = as_image(image, "Transpose")
        return (found[..., None] if found.ndim == 2 else found).transpose(self.order)


@export("vision.transforms.Resize")
class Resize(BaseTransform):
    """Changes the size; see :func:`resize`.

    Args:
        size: ``(height, width)``, or a number for the shorter side.
        interpolation: ``"bilinear"`` or ``"nearest"``.
        keys: As of :class:`BaseTransform`.

    Example:
        >>> image = np.zeros((16, 32, 3), "uint8")
        >>> transform = paddle.vision.transforms.Resize(8)
        >>> transform(image).shape
        (8, 16, 3)
    """

    def __init__(self, size: Any, interpolation: str = "bilinear", keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        pair(size, "size", "Resize")
        self.size = size
        self.interpolation = check_choice(interpolation, ("bilinear", "nearest"), "interpolation", "Resize")

    def _apply_image(self, image: Any) -> Array:
        return functions.resize(image, self.size, self.interpolation)


@export("vision.transforms.CenterCrop")
class CenterCrop(BaseTransform):
    """Takes the middle; see :func:`center_crop`.

    Args:
        size: ``(height, width)``, or a number for both.
        keys: As of :class:`BaseTransform`.

    Example:
        >>> image = np.arange(16).reshape(4, 4)
        >>> transform = paddle.vision.transforms.CenterCrop(2)
        >>> transform(image).tolist()
        [[5, 6], [9, 10]]
    """

    def __init__(self, size: Any, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.size = pair(size, "size", "CenterCrop")

    def _apply_image(self, image: Any) -> Array:
        return functions.center_crop(image, self.size)


@export("vision.transforms.Pad")
class Pad(BaseTransform):
    """Adds rows and columns around; see :func:`pad`.

    Args:
        padding: 1, 2 or 4 numbers.
        fill: Value of the new pixels.
        padding_mode: ``"constant"``, ``"edge"``, ``"reflect"`` or ``"symmetric"``.
        keys: As of :class:`BaseTransform`.

    Example:
        >>> image = np.zeros((2, 2, 3))
        >>> transform = paddle.vision.transforms.Pad(1)
        >>> transform(image).shape
        (4, 4, 3)
    """

    def __init__(
        self, padding: Any, fill: Any = 0, padding_mode: str = "constant", keys: Sequence[str] | None = None
    ) -> None:
        super().__init__(keys)
        self.padding, self.fill = padding, fill
        self.padding_mode = check_choice(padding_mode, tuple(functions.PADS), "padding_mode", "Pad")

    def _apply_image(self, image: Any) -> Array:
        return functions.pad(image, self.padding, self.fill, self.padding_mode)


@export("vision.transforms.Grayscale")
class Grayscale(BaseTransform):
    """Makes images grey; see :func:`to_grayscale`.

    Args:
        num_output_channels: 1 or 3.
        keys: As of :class:`BaseTransform`.

    Example:
        >>> image = np.zeros((2, 2, 3), "uint8")
        >>> transform = paddle.vision.transforms.Grayscale(3)
        >>> transform(image).shape
        (2, 2, 3)
    """

    def __init__(self, num_output_channels: int = 1, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.num_output_channels = check_choice(num_output_channels, (1, 3), "num_output_channels", "Grayscale")

    def _apply_image(self, image: Any) -> Array:
        return functions.to_grayscale(image, self.num_output_channels)


# ---------------------------------------------------------------------------------------------------------------- random
@export("vision.transforms.RandomHorizontalFlip")
class RandomHorizontalFlip(BaseTransform):
    """Exchanges left and right sometimes.

    Args:
        prob: How often; from 0 to 1.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramError: If ``prob`` is out of range.

    Example:
        >>> image = np.array([[1, 2, 3]])
        >>> transform = paddle.vision.transforms.RandomHorizontalFlip(1.0)
        >>> transform(image)
        array([[3, 2, 1]])
    """

    def __init__(self, prob: float = 0.5, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.prob = check_number(prob, "prob", type(self).__name__, least=0, most=1)

    def _apply_image(self, image: Any) -> Array:
        return functions.hflip(image) if random.random() < self.prob else as_image(image, type(self).__name__)


@export("vision.transforms.RandomVerticalFlip")
class RandomVerticalFlip(RandomHorizontalFlip):
    """Exchanges top and bottom sometimes.

    Args:
        prob: How often; from 0 to 1.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramError: If ``prob`` is out of range.

    Example:
        >>> image = np.array([[1], [2]])
        >>> transform = paddle.vision.transforms.RandomVerticalFlip(1.0)
        >>> transform(image).tolist()
        [[2], [1]]
    """

    def _apply_image(self, image: Any) -> Array:
        return functions.vflip(image) if random.random() < self.prob else as_image(image, type(self).__name__)


@export("vision.transforms.RandomCrop")
class RandomCrop(BaseTransform):
    """Takes a random part.

    Args:
        size: ``(height, width)``, or a number for both.
        padding: Added first, as of :func:`pad`; none if ``None``.
        pad_if_needed: Pad a smaller image on both sides until the part fits.
        fill: Value of the new pixels.
        padding_mode: As of :func:`pad`.
        keys: As of :class:`BaseTransform`.

    Raises:
        ShapeError: When called, if the image is smaller and ``pad_if_needed`` is off.

    Example:
        >>> image = np.zeros((4, 5, 3))
        >>> transform = paddle.vision.transforms.RandomCrop(2)
        >>> transform(image).shape
        (2, 2, 3)
    """

    def __init__(
        self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0, padding_mode: str = "constant",
        keys: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(keys)
        self.size = pair(size, "size", "RandomCrop")
        self.padding, self.pad_if_needed, self.fill = padding, bool(pad_if_needed), fill
        self.padding_mode = check_choice(padding_mode, tuple(functions.PADS), "padding_mode", "RandomCrop")

    def _apply_image(self, image: Any) -> Array:
        found = as_image(image, "RandomCrop")
        if self.padding is not None:
            found = functions.pad(found, self.padding, self.fill, self.padding_mode)
        height, width = self.size
        if self.pad_if_needed:
            missing = max(0, width - found.shape[1]), max(0, height - found.shape[0])
            found = functions.pad(found, missing, self.fill, self.padding_mode)
        spare = found.shape[0] - height, found.shape[1] - width
        # One draw each, also where nothing is spare; a negative number of rows is what `crop` refuses.
        top, left = (0, 0) if spare == (0, 0) else (random.randint(0, max(n, 0)) for n in spare)
        return functions.crop(found, top, left, height, width)


@export("vision.transforms.RandomResizedCrop")
class RandomResizedCrop(BaseTransform):
    """Takes a random part of random size and ratio, and resizes it.

    Args:
        size: ``(height, width)`` of the result, or a number for both.
        scale: Least and largest share of the image's area.
        ratio: Least and largest ratio of width to height.
        interpolation: As of :func:`resize`.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramError: If ``scale`` or ``ratio`` is not a rising pair above 0.

    Example:
        >>> image = np.zeros((16, 16, 3), "uint8")
        >>> transform = paddle.vision.transforms.RandomResizedCrop(4)
        >>> transform(image).shape
        (4, 4, 3)
    """

    def __init__(
        self, size: Any, scale: Sequence[float] = (0.08, 1.0), ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: str = "bilinear", keys: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(keys)
        self.size = pair(size, "size", "RandomResizedCrop")
        self.scale, self.ratio = (_range(v, n) for v, n in ((scale, "scale"), (ratio, "ratio")))
        self.interpolation = check_choice(interpolation, ("bilinear", "nearest"), "interpolation", "RandomResizedCrop")

    def _apply_image(self, image: Any) -> Array:
        found = as_image(image, "RandomResizedCrop")
        return functions.resize(functions.crop(found, *self._part(*found.shape[:2])), self.size, self.interpolation)

    def _part(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Returns first row, first column, rows and columns; the middle if ten draws do not fit."""
        low, high = self.ratio
        for _ in range(10):
            area = np.random.uniform(*self.scale) * height * width
            ratio = math.exp(np.random.uniform(math.log(low), math.log(high)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                return random.randint(0, height - h), random.randint(0, width - w), h, w
        w, h = min(width, round(height * high)), min(height, round(width / low))
        return (height - h) // 2, (width - w) // 2, h, w


def _range(value: Sequence[float], arg: str) -> tuple[float, float]:
    if len(value) != 2 or not 0 < value[0] <= value[1]:
        raise ProgramError(
            f"'{arg}' of RandomResizedCrop should be of kind (min, max)",
            expected="two numbers, 0 < min <= max",
            received=shown(value),
            fix=f"{arg}=(0.5, 1.0)",
        )
    return float(value[0]), float(value[1])


class _Colour(BaseTransform):
    """Draws a factor around 1, or from a pair, and changes colours by it."""

    _function: Callable[[Any, float], Array]
    _centre, _bounds = 1.0, (0.0, math.inf)

    def __init__(self, value: Any, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        name = type(self).__name__
        low, high = self._bounds
        if isinstance(value, Sequence):
            pair_ = tuple(check_number(v, "value", name, finite=True) for v in value)
        else:
            near = check_number(value, "value", name, least=0)
            pair_ = max(self._centre - near, low) if self._centre else -near, self._centre + near
        if len(pair_) != 2 or not low <= pair_[0] <= pair_[1] <= high:
            raise ProgramError(
                f"value of {name} is out of range",
                expected=f"a number, or two rising numbers from {low:g} to {high:g}",
                received=shown(value),
                fix="a number x means factors around the one that changes nothing, by at most x",
            )
        self.value = pair_ if pair_ != (self._centre, self._centre) else None

    def _apply_image(self, image: Any) -> Array:
        if self.value is None:
            return as_image(image, type(self).__name__)
        return type(self)._function(image, random.uniform(*self.value))


@export("vision.transforms.BrightnessTransform")
class BrightnessTransform(_Colour):
    """Changes the brightness by a random factor; see :func:`adjust_brightness`.

    Args:
        value: x for factors from ``max(0, 1 - x)`` to ``1 + x``, or two factors.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramError: For negative numbers.

    Example:
        >>> image = np.array([[3]], "uint8")
        >>> transform = paddle.vision.transforms.BrightnessTransform((2.0, 2.0))
        >>> transform(image).tolist()
        [[6]]
    """

    _function = staticmethod(functions.adjust_brightness)


@export("vision.transforms.ContrastTransform")
class ContrastTransform(_Colour):
    """Changes the contrast by a random factor; see :func:`adjust_contrast`.

    Args:
        value: x for factors from ``max(0, 1 - x)`` to ``1 + x``, or two factors.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramError: For negative numbers.

    Example:
        >>> image = np.array([[10, 20]], "uint8")
        >>> transform = paddle.vision.transforms.ContrastTransform((2.0, 2.0))
        >>> transform(image).tolist()
        [[5, 25]]
    """

    _function = staticmethod(functions.adjust_contrast)


@export("vision.transforms.SaturationTransform")
class SaturationTransform(_Colour):
    """Changes the saturation by a random factor; see :func:`adjust_saturation`.

    Args:
        value: x for factors from ``max(0, 1 - x)`` to ``1 + x``, or two factors.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramError: For negative numbers.

    Example:
        >>> image = np.array([[[255, 0, 0]]], "uint8")
        >>> transform = paddle.vision.transforms.SaturationTransform((0.0, 0.0))
        >>> transform(image).tolist()
        [[[76, 76, 76]]]
    """

    _function = staticmethod(functions.adjust_saturation)


@export("vision.transforms.HueTransform")
class HueTransform(_Colour):
    """Turns colours by a random part of the wheel; see :func:`adjust_hue`.

    Args:
        value: x for parts from -x to x, or two parts from -0.5 to 0.5.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramError: For other numbers.

    Example:
        >>> image = np.array([[[255, 0, 0]]], "uint8")
        >>> transform = paddle.vision.transforms.HueTransform((0.5, 0.5))
        >>> transform(image).tolist()
        [[[0, 255, 252]]]
    """

    _function = staticmethod(functions.adjust_hue)
    _centre, _bounds = 0.0, (-0.5, 0.5)


@export("vision.transforms.ColorJitter")
class ColorJitter(BaseTransform):
    """Changes brightness, contrast, saturation and hue by random factors, in random order.

    Args:
        brightness, contrast, saturation, hue: Values of the transforms of these names; 0 for none.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramError: If one is out of range.

    Example:
        >>> image = np.zeros((2, 2, 3), "uint8")
        >>> transform = paddle.vision.transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
        >>> transform(image).shape
        (2, 2, 3)
    """

    def __init__(
        self,
        brightness: Any = 0,
        contrast: Any = 0,
        saturation: Any = 0,
        hue: Any = 0,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        values = {
            BrightnessTransform: brightness,
            ContrastTransform: contrast,
            SaturationTransform: saturation,
            HueTransform: hue,
        }
        self.transforms: list[BaseTransform] = [kind(value) for kind, value in values.items()]

    def _apply_image(self, image: Any) -> Any:
        return Compose(random.sample(self.transforms, len(self.transforms)))(image)
