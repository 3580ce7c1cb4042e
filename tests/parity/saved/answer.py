"""Loads models that tstatic wrote into Paddle: ``.venv-paddle/bin/python -m tests.parity.saved.answer folder``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tests.parity.saved import models


def main(folder: Path) -> None:
    """Writes what each model of a folder answers, and the loss of one more training step from the saved state."""
    import paddle

    paddle.enable_static()
    answers: dict[str, np.ndarray] = {}
    for name in models.MODELS:
        with paddle.static.scope_guard(paddle.static.Scope()):
            exe = paddle.static.Executor(paddle.CPUPlace())
            loaded = paddle.static.load_inference_model(str(folder / name), exe)
            for i, value in enumerate(models.inferred(paddle, *loaded, exe)):
                answers[f"{name}.{i}"] = value
        with paddle.static.scope_guard(paddle.static.Scope()):
            program, _, exe = models.trained(paddle, name, 0)
            paddle.static.load(program, str(folder / f"{name}_training"), exe)
            answers[f"{name}.state"] = models.checked(paddle, program)
    with paddle.static.scope_guard(paddle.static.Scope()):
        exe = paddle.static.Executor(paddle.CPUPlace())
        program, feeds, fetches = paddle.static.load_inference_model(str(folder / "numbers"), exe)
        given = {feeds[0]: np.array([[-1, 0.1, 2]], "float32")}
        for i, value in enumerate(exe.run(program, feed=given, fetch_list=fetches)):
            answers[f"numbers.{i}"] = value
    nest = paddle.load(str(folder / "nest"), return_numpy=True)
    answers["nest"] = np.asarray([*nest["w"].ravel(), nest["rows"][1], len(nest["rows"][3])])
    np.savez_compressed(folder / "answers.npz", **answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
