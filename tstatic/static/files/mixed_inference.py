"""Saved models in mixed precision: files in, files out."""

from __future__ import annotations

from typing import Any

from tstatic.errors import UnsupportedError, shown
from tstatic.ir.checks import check_choice
from tstatic.ir.declare import program_guard
from tstatic.ir.export import export
from tstatic.no_effect import no_effect
from tstatic.ops.elementwise.scale import cast
from tstatic.places import CPUPlace
from tstatic.runtime.scope import Scope, scope_guard
from tstatic.static.amp.lists import AutoMixedPrecisionLists
from tstatic.static.amp.rewrite import cast_model_to_fp16, cast_parameters_to_fp16
from tstatic.static.files.inference import known_options, save_to_file, serialize_persistables, serialize_program
from tstatic.static.files.predictor import loaded
from tstatic.static.files.predictor_config import Config, PlaceType, PrecisionType
from tstatic.static.run.executor import Executor

_TYPES = {PrecisionType.Half: "float16", PrecisionType.Bfloat16: "bfloat16"}


@export("inference.convert_to_mixed_precision")
@no_effect(backend="the program runs on the place that a predictor names")
def convert_to_mixed_precision(
    model_file: str,
    params_file: str,
    mixed_model_file: str,
    mixed_params_file: str,
    mixed_precision: PrecisionType,
    backend: PlaceType,
    keep_io_types: bool = True,
    black_list: Any = frozenset(),
    **kwargs: Any,
) -> None:
    """Writes a saved model in 16 bits, with casts around the operators that stay in float32.

    Args:
        model_file, params_file: The model, saved here or in Paddle.
        mixed_model_file, mixed_params_file: The files to write.
        mixed_precision: ``PrecisionType.Half`` or ``Bfloat16``.
        keep_io_types: Inputs and results keep their types; ``False`` is refused.
        black_list: Types of operators that stay in float32.
        **kwargs: ``white_list``: types of further operators that run in 16 bits.

    Raises:
        ProgramError: For another precision.
        UnsupportedError: With ``keep_io_types=False``.
        CheckpointError: If a file is missing or damaged (an ``OSError``).

    Example:
        >>> y = static.nn.fc(static.data("x", [None, 2]), 3)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> static.save_inference_model("model", [y.block.var("x")], [y], exe)
        >>> files = "model.pdmodel", "model.pdiparams", "low.pdmodel", "low.pdiparams"
        >>> precision, place = paddle.inference.PrecisionType.Bfloat16, paddle.inference.PlaceType.CPU
        >>> paddle.inference.convert_to_mixed_precision(*files, precision, place)
        >>> predictor = paddle.inference.create_predictor(paddle.inference.Config("low.pdmodel", "low.pdiparams"))
        >>> predictor.run([np.ones((1, 2), "float32")])[0].dtype
        dtype('float32')
    """
    function = "convert_to_mixed_precision"
    dtype = _TYPES[check_choice(mixed_precision, tuple(_TYPES), "mixed_precision", function)]
    white = known_options(function, kwargs, ("white_list",)).get("white_list")
    if not keep_io_types:
        raise UnsupportedError(
            f"{function} keeps the types of inputs and results", expected="keep_io_types=True",
            received=f"keep_io_types={shown(keep_io_types)}", fix="cast what you feed and fetch", op=function,
        )  # fmt: skip
    lists = AutoMixedPrecisionLists(white, black_list, dtype=dtype)
    # On the CPU, whatever the backend: files come in and go out, and nothing runs.
    scope, executor = Scope(), Executor(CPUPlace())
    with scope_guard(scope):
        program, names, results = loaded(Config(model_file, params_file), scope, executor)
        # From before the rewriting, which may leave results in 16 bits.
        types = [var.dtype for var in results]
        low = cast_model_to_fp16(program, lists, use_fp16_guard=False, dest_type=dtype)
        cast_parameters_to_fp16(CPUPlace(), program, scope, low, dtype)
        with program_guard(program):
            results = [var if var.dtype == kind else cast(var, kind) for var, kind in zip(results, types, strict=True)]
        feeds = [program.global_block().var(name) for name in names]
        save_to_file(mixed_model_file, serialize_program(feeds, results, program=program))
        values = serialize_persistables(feeds, results, executor, program=program)
        # A model without variables has none, and its file is empty.
        save_to_file(mixed_params_file, values or b"")
