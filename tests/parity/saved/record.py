"""Saves the ten models with Paddle 2.6.2: ``.venv-paddle/bin/python -m tests.parity.saved.record [folder]``.

CI reads the files of ``tests/data/paddle-2.6``, so it needs no Paddle.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.parity.saved import models

FOLDER = Path(__file__).parents[2] / "data" / "paddle-2.6"
WITH_STATE = ("mlp", "resnet", "words")
"""Models of which the values of training are saved, too."""


RECURRENT = ("LSTM", "GRU", "SimpleRNN")


def recurrent(paddle: Any, name: str, folder: Path) -> dict[str, np.ndarray]:
    """Saves two layers in both directions over sequences of several lengths; returns what they answer."""
    static = paddle.static
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    with static.scope_guard(static.Scope()), static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x, lengths = static.data("x", [None, 5, 3]), static.data("lengths", [None], "int64")
        out, state = getattr(paddle.nn, name)(3, 4, 2, direction="bidirect")(x, sequence_length=lengths)
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        results = [out, *(state if isinstance(state, tuple | list) else [state])]
        static.save_inference_model(str(folder / name), [x, lengths], results, exe, program=main)
        feed = {"x": np.linspace(-1, 1, 30).reshape(2, 5, 3).astype("float32"), "lengths": np.array([5, 3])}
        loaded, _, fetches = static.load_inference_model(str(folder / name), exe)
        return {f"{name}.{i}": value for i, value in enumerate(exe.run(loaded, feed=feed, fetch_list=fetches))}


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
    for name in RECURRENT:
        answers |= recurrent(paddle, name, folder)
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
