"""``paddle.distributed.io``: persistable variables, saved and loaded."""

from __future__ import annotations

from typing import Any

from tstatic.ir.export import door
from tstatic.static.variable_files import is_persistable, load_inference_model, load_persistables, save_persistables


@door("distributed.io.load_inference_model_distributed")
def load_inference_model_distributed(
    dirname: str, executor: Any, model_filename: str | None = None, params_filename: str | None = None
) -> Any:
    """Returns program, names of its inputs and results of a saved model, as :func:`fluid.io.load_inference_model`.

    Args:
        dirname: Folder of the model.
        executor: Loads the values.
        model_filename: Name of the program's file.
        params_filename: Name of the values' file.

    Raises:
        CheckpointError: If there is no such model.
    """
    return load_inference_model(dirname, executor, model_filename, params_filename)


__all__ = ["is_persistable", "load_inference_model_distributed", "load_persistables", "save_persistables"]
