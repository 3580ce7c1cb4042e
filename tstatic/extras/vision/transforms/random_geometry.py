"""Transforms that move or erase random pixels; they draw with Python's ``random``, and with numpy where Paddle does."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, shown
from tstatic.extras.vision.transforms import functions, warping
from tstatic.extras.vision.transforms.functions import Array, as_image
from tstatic.extras.vision.transforms.transforms import BaseTransform
from tstatic.extras.vision.transforms.warping import WARPS, numbers
from tstatic.ir.checks import check_choice, check_number
from tstatic.ir.opdef import export


def _angles(value: Any, arg: str, owner: str, counts: Sequence[int] = (2,)) -> list[float]:
    """Returns a range of degrees; of one number, from minus it to it."""
    if isinstance(value, int | float):
        most = check_number(value, arg, owner, least=0)
        return [-most, most]
    return numbers(value, arg, owner, counts)


def _range(value: Any, arg: str, owner: str, least: float = 0.0, most: float = math.inf) -> list[float]:
    """Returns two rising numbers within bounds."""
    low, high = numbers(value, arg, owner)
    if not least <= low <= high <= most:
        raise ProgramError(
            f"{arg} should be of kind (min, max)", expected=f"two rising numbers from {least:g} to {most:g}",
            received=shown(value), fix=f"{arg}=(0.5, 1.0)", op=owner,
        )  # fmt: skip
    return [low, high]


class _Warp(BaseTransform):
    """Keeps how pixels are made that a map asks for."""

    def __init__(self, interpolation: str, fill: Any, keys: Sequence[str] | None) -> None:
        super().__init__(keys)
        self.interpolation = check_choice(interpolation, tuple(WARPS), "interpolation", type(self).__name__)
        self.fill = fill


@export("vision.transforms.RandomRotation")
class RandomRotation(_Warp):
    """Turns by a random angle; see :func:`rotate`.

    Args:
        degrees: The least and the largest angle, counter-clockwise; a number for from minus it to it.
        interpolation, expand, center, fill: As of :func:`rotate`.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramTypeError, ProgramError: For a negative number, or another number of angles.

    Example:
        >>> image = np.arange(4).reshape(2, 2)
        >>> transform = paddle.vision.transforms.RandomRotation((90, 90))
        >>> transform(image).tolist()
        [[1, 3], [0, 2]]
    """

    def __init__(
        self, degrees: Any, interpolation: str = "nearest", expand: bool = False, center: Any = None, fill: Any = 0,
        keys: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(interpolation, fill, keys)
        self.degrees = _angles(degrees, "degrees", "RandomRotation")
        self.expand = bool(expand)
        self.center = None if center is None else numbers(center, "center", "RandomRotation")

    def _apply_image(self, image: Any) -> Array:
        angle = random.uniform(*self.degrees)
        return warping.rotate(image, angle, self.interpolation, self.expand, self.center, self.fill)


@export("vision.transforms.RandomAffine")
class RandomAffine(_Warp):
    """Turns, shifts, scales and shears by random numbers; see :func:`affine`.

    Args:
        degrees: The least and the largest angle, clockwise; a number for from minus it to it.
        translate: The largest shifts along x and y, as shares of width and height; none if ``None``.
        scale: The least and the largest factor; 1 if ``None``.
        shear: The least and the largest degrees along x, and two more along y; a number for from minus it to it.
        interpolation, fill, center: As of :func:`affine`.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramTypeError, ProgramError: For values out of range, or of another length.

    Example:
        >>> image = np.zeros((4, 6, 3), "uint8")
        >>> transform = paddle.vision.transforms.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 5)
        >>> transform(image).shape
        (4, 6, 3)
    """

    def __init__(
        self, degrees: Any, translate: Any = None, scale: Any = None, shear: Any = None, interpolation: str = "nearest",
        fill: Any = 0, center: Any = None, keys: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(interpolation, 0 if fill is None else fill, keys)
        owner = "RandomAffine"
        self.degrees = _angles(degrees, "degrees", owner)
        self.translate = None
        if translate is not None:
            shares = numbers(translate, "translate", owner)
            self.translate = [check_number(share, "translate", owner, least=0, most=1) for share in shares]
        self.scale = None if scale is None else _range(scale, "scale", owner, 1e-9)
        self.shear = None if shear is None else _angles(shear, "shear", owner, (2, 4))
        self.center = None if center is None else numbers(center, "center", owner)

    def _apply_image(self, image: Any) -> Array:
        height, width = as_image(image, "RandomAffine").shape[:2]
        angle = random.uniform(*self.degrees)
        shares = self.translate or (0, 0)
        shift = tuple(
            int(random.uniform(-n * share, n * share)) for n, share in zip((width, height), shares, strict=True)
        )
        scale = random.uniform(*self.scale) if self.scale else 1.0
        shear = [random.uniform(*pair) for pair in ((self.shear or [0.0] * 2)[:2], (self.shear or [])[2:]) if pair]
        return warping.affine(
            image, angle, shift, scale, (*shear, 0.0)[:2], self.interpolation, self.fill, self.center
        )  # fmt: skip


@export("vision.transforms.RandomPerspective")
class RandomPerspective(_Warp):
    """Moves the corners of the image inwards sometimes, by random numbers; see :func:`perspective`.

    Args:
        prob: How often; from 0 to 1.
        distortion_scale: How far, as a share of half of the size; from 0 to 1.
        interpolation, fill: As of :func:`perspective`.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramError: If a number is out of range.

    Example:
        >>> image = np.zeros((4, 6, 3), "uint8")
        >>> transform = paddle.vision.transforms.RandomPerspective(1.0)
        >>> transform(image).shape
        (4, 6, 3)
    """

    def __init__(
        self, prob: float = 0.5, distortion_scale: float = 0.5, interpolation: str = "nearest", fill: Any = 0,
        keys: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(interpolation, fill, keys)
        self.prob = check_number(prob, "prob", "RandomPerspective", least=0, most=1)
        self.distortion_scale = check_number(distortion_scale, "distortion_scale", "RandomPerspective", least=0, most=1)

    def _apply_image(self, image: Any) -> Array:
        found = as_image(image, "RandomPerspective")
        if random.random() >= self.prob:
            return found
        height, width = found.shape[:2]
        across, down = (int(self.distortion_scale * (n // 2)) for n in (width, height))

        def near(end: int, most: int) -> int:
            return int(random.uniform(end - most - 1, end) if end else random.uniform(0, most + 1))

        corners = [(0, 0), (width, 0), (width, height), (0, height)]
        ends = [(near(x, across), near(y, down)) for x, y in corners]
        starts = [(max(x - 1, 0), max(y - 1, 0)) for x, y in corners]
        return warping.perspective(found, starts, ends, self.interpolation, self.fill)


@export("vision.transforms.RandomErasing")
class RandomErasing(BaseTransform):
    """Erases a random rectangle sometimes (Zhong et al., 2017); see :func:`erase`.

    Args:
        prob: How often; from 0 to 1.
        scale: The least and the largest share of the image's area.
        ratio: The least and the largest ratio of height to width.
        value: What is put there: a number, one per channel, or ``"random"`` for normal numbers times 255.
        inplace: Write into the image that is given.
        keys: As of :class:`BaseTransform`.

    Raises:
        ProgramTypeError, ProgramError: For values out of range, or of another length.

    Example:
        >>> image = np.full((8, 8, 3), 200, "uint8")
        >>> transform = paddle.vision.transforms.RandomErasing(1.0, scale=(0.25, 0.25), ratio=(1.0, 1.0))
        >>> int((transform(image) == 0).sum())
        48
    """

    def __init__(
        self, prob: float = 0.5, scale: Any = (0.02, 0.33), ratio: Any = (0.3, 3.3), value: Any = 0, inplace: bool = False,
        keys: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(keys)
        owner = "RandomErasing"
        self.prob = check_number(prob, "prob", owner, least=0, most=1)
        self.scale, self.ratio = _range(scale, "scale", owner, 0, 1), _range(ratio, "ratio", owner, 1e-9)
        if isinstance(value, str):
            check_choice(value, ("random",), "value", owner)
        elif isinstance(value, int | float):
            check_number(value, "value", owner)
        else:
            numbers(value, "value", owner, (1, 3))
        self.value, self.inplace = value, bool(inplace)

    def _apply_image(self, image: Any) -> Array:
        found = as_image(image, "RandomErasing")
        if random.random() >= self.prob:
            return found
        height, width = found.shape[:2]
        for _ in range(10):
            area = np.random.uniform(self.scale[0], self.scale[1]) * height * width
            ratio = math.exp(np.random.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if h >= height or w >= width:
                continue
            drawn = isinstance(self.value, str)
            value = np.random.normal(size=(h, w, *found.shape[2:])) * 255 if drawn else self.value
            top, left = np.random.randint(0, height - h + 1), np.random.randint(0, width - w + 1)
            return functions.erase(found, top, left, h, w, value, self.inplace)
        return found
