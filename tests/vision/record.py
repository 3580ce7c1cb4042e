"""Records what Paddle's networks and transforms do: ``.venv-paddle/bin/python -m tests.vision.record``."""

from __future__ import annotations

from typing import Any

from tests.helpers import recorder


def main() -> None:
    """Writes the file."""
    import paddle
    from PIL import Image

    from tests.vision import described, transforms_described

    paddle.disable_static()
    image = Image.fromarray(transforms_described.picture())
    changed = transforms_described.results(paddle.vision.transforms, image)
    counts = {n: described.counts(paddle, n) for n in described.COUNTED}
    paddle.enable_static()
    found: dict[str, Any] = {
        "version": paddle.__version__,
        "counts": counts,
        "transforms": changed,
        "structure": {n: described.digest(described.structure(paddle, n)) for n in described.NETWORKS},
        "resnet18": described.structure(paddle, "resnet18"),
        "scores": {n: [float(f"{v:.7g}") for v in described.scores(paddle, n)] for n in described.RUN},
    }
    recorder.write(__file__, found, indent=None)


if __name__ == "__main__":
    main()
