"""``paddle.distributed.io``: persistable variables, saved and loaded."""

from __future__ import annotations

from typing import Any

from tstatic.errors import UnsupportedError, shown
from tstatic.ir.export import door
from tstatic.static.files.variable_files import (
    is_persistable,
    load_inference_model,
    load_persistables,
    save_persistables,
)


@door("distributed.io.load_inference_model_distributed")
def load_inference_model_distributed(
    dirname: str,
    executor: Any,
    model_filename: str | None = None,
    params_filename: str | None = None,
    pserver_endpoints: Any = None,
) -> Any:
    """Returns program, names of its inputs and results of a saved model, as :func:`fluid.io.load_inference_model`.

    Args:
        dirname: Folder of the model.
        executor: Loads the values.
        model_filename: Name of the program's file.
        params_filename: Name of the values' file.
        pserver_endpoints: ``None``: there are no parameter servers.

    Raises:
        UnsupportedError: If ``pserver_endpoints`` is given.
        CheckpointError: If there is no such model.
    """
    if pserver_endpoints is not None:
        raise UnsupportedError(
            "the model is loaded by this process, not from parameter servers",
            expected="pserver_endpoints=None",
            received=shown(pserver_endpoints),
            fix="leave pserver_endpoints out: the values are loaded from the folder dirname",
            op="load_inference_model_distributed",
        )
    return load_inference_model(dirname, executor, model_filename, params_filename)


__all__ = ["is_persistable", "load_inference_model_distributed", "load_persistables", "save_persistables"]
