"""Saves the ten models with Paddle 2.6.2: ``.venv-paddle/bin/python -m tests.parity.saved.record [folder]``.

CI reads the files of ``tests/data/paddle-2.6``, so it needs no Paddle.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tests.parity.saved import models

FOLDER = Path(__file__).parents[2] / "data" / "paddle-2.6"
WITH_STATE = ("mlp", "resnet", "words")
"""Models of which the values of training are saved, too."""


def main(folder: Path) -> None:
    """Writes the files, and what each model answers."""
    import paddle

    paddle.enable_static()
    # Else each operator is saved with the paths and lines of this machine.
    paddle.base.framework.traceback.extract_stack = lambda: []
    answers: dict[str, np.ndarray] = {}
    for name in models.MODELS:
        with paddle.static.scope_guard(paddle.static.Scope()):
            program, built, exe = models.trained(paddle, name)
            path = str(folder / name)
            paddle.static.save_inference_model(path, built.feeds, built.outputs, exe, program=program)
            if name in WITH_STATE:
                paddle.static.save(program, str(folder / f"{name}_training"))
            loaded = paddle.static.load_inference_model(path, exe)
            for i, value in enumerate(models.inferred(paddle, *loaded, exe)):
                answers[f"{name}.{i}"] = value
    for path in (*folder.glob("*.pdiparams.info"), *folder.glob("*_training.pdmodel")):
        path.unlink()
    tensor = paddle.base.core.LoDTensor()
    tensor.set(np.arange(6, dtype="float32").reshape(2, 3), paddle.CPUPlace())
    nest = {"w": tensor, "rows": [np.arange(3), 2.5, None, ("text", True)], "number": np.float32(0.5)}
    for protocol in (2, 3, 4):
        paddle.save(nest, str(folder / f"nest_{protocol}"), protocol=protocol)
    paddle.save(tensor, str(folder / "tensor"), use_binary_format=True)
    np.savez_compressed(folder / "answers.npz", **answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
