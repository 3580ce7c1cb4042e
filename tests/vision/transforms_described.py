"""What Paddle's transforms of PIL images do to a small picture: colours, grey, crops, padding."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np


def picture() -> Any:
    """Returns a picture of 6 x 7 pixels with grey, black, white and pure colours."""
    found = np.random.RandomState(4).randint(0, 256, (6, 7, 3)).astype("uint8")
    found[0, :5] = [[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255]]
    found[1, 0] = 77
    return found


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    **{f"brightness {f}": lambda t, p, f=f: t.adjust_brightness(p, f) for f in (0.0, 0.4, 1.0, 1.7)},
    **{f"contrast {f}": lambda t, p, f=f: t.adjust_contrast(p, f) for f in (0.0, 0.4, 1.7)},
    **{f"hue {f}": lambda t, p, f=f: t.adjust_hue(p, f) for f in (-0.5, -0.2, 0.0, 0.1, 0.5)},
    **{f"saturation {f}": lambda t, p, f=f: t.SaturationTransform((f, f))(p) for f in (0.0, 0.4, 1.7)},
    "grey": lambda t, p: t.to_grayscale(p, 3),
    "center crop": lambda t, p: t.center_crop(p, (3, 4)),
    "center crop of odd": lambda t, p: t.CenterCrop(3)(p),
    "pad": lambda t, p: t.pad(p, (1, 2, 3, 0), fill=(9, 8, 7)),
    "pad edge": lambda t, p: t.pad(p, (1, 2), padding_mode="edge"),
    "pad reflect": lambda t, p: t.pad(p, 2, padding_mode="reflect"),
    "pad symmetric": lambda t, p: t.pad(p, 2, padding_mode="symmetric"),
    "hflip": lambda t, p: t.hflip(p),
    "vflip": lambda t, p: t.vflip(p),
    "resize to a number": lambda t, p: np.zeros(np.asarray(t.resize(p, 12)).shape[:2]),
    "transpose": lambda t, p: t.Transpose()(p),
    **{
        f"rotate {angle} {kind}": lambda t, p, angle=angle, kind=kind: t.rotate(p, angle, kind, fill=(1, 2, 3))
        for angle in (0, 33, 90, 180, -77.5)
        for kind in ("nearest", "bilinear", "bicubic")
    },
    "rotate and grow": lambda t, p: t.rotate(p, 40, "bilinear", expand=True),
    "rotate a quarter and grow": lambda t, p: t.rotate(p, 270, expand=True),
    "rotate around a corner": lambda t, p: t.rotate(p, 20, "nearest", center=(1, 2), fill=(9, 9, 9)),
    # Paddle loses `fill` here on the way to PIL.
    **{
        f"affine {kind}": lambda t, p, kind=kind: t.affine(p, 25, (1, -2), 1.3, (10, 5), kind)
        for kind in ("nearest", "bilinear", "bicubic")
    },
    "affine of a number": lambda t, p: t.affine(p, 0, (0, 0), 0.7, 17, "bilinear", center=[2, 2]),
    **{
        f"perspective {kind}": lambda t, p, kind=kind: t.perspective(
            p, [[0, 0], [6, 0], [6, 5], [0, 5]], [[1, 0], [6, 1], [5, 5], [0, 4]], kind
        )
        for kind in ("nearest", "bilinear", "bicubic")
    },
    "random affine": lambda t, p: drawn(lambda: t.RandomAffine(30, (0.2, 0.1), (0.7, 1.2), (1, 9, 2, 8))(p)),
    "random perspective": lambda t, p: drawn(lambda: t.RandomPerspective(1.0, 0.6)(p)),
    "random rotation": lambda t, p: drawn(lambda: t.RandomRotation(80, "bilinear")(p)),
    "random erasing": lambda t, p: drawn(lambda: t.RandomErasing(1.0, value=(1, 2, 3))(np.array(p))),
    "random erasing by noise": lambda t, p: drawn(lambda: t.RandomErasing(1.0, value="random")(np.array(p)), False),
    "jitter": lambda t, p: drawn(lambda: t.ColorJitter(0.5, 0.5, 0.5, 0.2)(p), False),
}


def drawn(call: Callable[[], Any], exact: bool = True) -> Any:
    """Returns a result with a known seed; only its shape where the draws are in another order."""
    random.seed(3)
    np.random.seed(3)
    found = np.asarray(call())
    return found if exact else np.zeros(found.shape)


def results(transforms: Any, image: Any) -> dict[str, Any]:
    """Returns the values of all calls, as nested lists."""
    return {name: np.asarray(call(transforms, image)).tolist() for name, call in CALLS.items()}
