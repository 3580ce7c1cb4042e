"""``static.amp.bf16``: mixed precision with bfloat16 under names of its own; there is no loss scaling."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ProgramError
from tstatic.ir.opdef import export
from tstatic.ir.program import Program
from tstatic.ir.types import bfloat16
from tstatic.no_effect import PLACE, no_effect
from tstatic.optimizer.mixed_precision import LossScaling, OptimizerWithMixedPrecision
from tstatic.optimizer.optimizer import Optimizer
from tstatic.runtime.scope import Scope
from tstatic.static.amp.lists import AutoMixedPrecisionLists, Names
from tstatic.static.amp.rewrite import Precision, cast_parameters_to_fp16, convert


@export("static.amp.bf16.AutoMixedPrecisionListsBF16", "static.amp.bf16.amp_lists.AutoMixedPrecisionListsBF16")
class AutoMixedPrecisionListsBF16(AutoMixedPrecisionLists):
    """Says for each op type whether it runs in bfloat16.

    Args:
        custom_bf16_list: Types of ops that are to run in bfloat16.
        custom_fp32_list: Types of ops that are to run in float32.
        custom_fp32_varnames: Names of variables; ops that read or write one run in float32.

    Attributes:
        bf16_list, fp32_list, fp32_varnames: What ``white_list``, ``black_list`` and ``black_varnames`` are elsewhere.

    Raises:
        ProgramError: If a type is on both custom lists.

    Example:
        >>> lists = static.amp.bf16.AutoMixedPrecisionListsBF16(custom_fp32_list=["mul"])
        >>> "mul" in lists.bf16_list, "mul" in lists.fp32_list
        (False, True)
        >>> sorted(lists.bf16_list)
        ['conv2d', 'matmul_v2', 'max_pool2d_with_index']
    """

    def __init__(
        self, custom_bf16_list: Names = None, custom_fp32_list: Names = None, custom_fp32_varnames: Names = None
    ) -> None:
        super().__init__(custom_bf16_list, custom_fp32_list, custom_fp32_varnames, "bfloat16")
        self.bf16_list, self.fp32_list, self.fp32_varnames = self.white_list, self.black_list, self.black_varnames

    def _refuse_overlap(self, to_white: Any, to_black: Any) -> None:
        both = sorted(to_white & to_black)
        if both:
            raise ProgramError(
                "Custom bf16 list overlap custom fp32 list",
                expected="each type on one list at most",
                received=", ".join(both),
                fix="take it out of one of the lists",
            )


class _Decorated(OptimizerWithMixedPrecision):
    def amp_init(  # type: ignore[override]
        self, place: Any, scope: Scope | None = None, test_program: Program | None = None, use_bf16_test: bool = False
    ) -> None:
        """Rounds the values of bfloat16 parameters; see :meth:`OptimizerWithMixedPrecision.amp_init`."""
        super().amp_init(place, scope, test_program, use_bf16_test)


@export("static.amp.bf16.decorate_bf16", "static.amp.bf16.decorator.decorate_bf16")
def decorate_bf16(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    use_pure_bf16: bool = False,
    use_bf16_guard: bool | None = None,
) -> OptimizerWithMixedPrecision:
    """Returns an optimizer whose ``minimize`` trains in bfloat16.

    Args:
        optimizer: The rule that updates parameters; its own ``multi_precision`` says whether it keeps float32 copies.
        amp_lists: Which ops run in bfloat16; the defaults without it.
        use_pure_bf16: Parameters and all ops but a few, as at level O2 of :func:`static.amp.decorate`; else level O1.
        use_bf16_guard: At that level, convert only what was built under ``bf16_guard``; by default if ``use_pure_bf16``.

    Example:
        >>> h = static.nn.fc(static.data("x", [None, 3]), 2)
        >>> optimizer = static.amp.bf16.decorate_bf16(paddle.optimizer.SGD(0.1))
        >>> _ = optimizer.minimize(paddle.mean(h))
        >>> h.dtype
        tstatic.bfloat16
    """
    lists = amp_lists if amp_lists is not None else AutoMixedPrecisionListsBF16()
    guard = bool(use_pure_bf16 if use_bf16_guard is None else use_bf16_guard)
    precision = Precision(lists, bfloat16, "O2" if use_pure_bf16 else "O1", guard and use_pure_bf16)
    return _Decorated(optimizer, precision, LossScaling(1.0), master_grad=False)


@export("static.amp.bf16.rewrite_program_bf16", "static.amp.bf16.amp_utils.rewrite_program_bf16")
def rewrite_program_bf16(main_prog: Program, amp_lists: AutoMixedPrecisionLists | None = None) -> None:
    """Converts a program without gradients to bfloat16 at level O1, in place: parameters stay float32.

    Args:
        main_prog: The program.
        amp_lists: Which ops are converted; the defaults without it.

    Example:
        >>> h = static.nn.fc(static.data("x", [None, 3]), 2)
        >>> static.amp.bf16.rewrite_program_bf16(static.default_main_program())
        >>> h.dtype
        tstatic.bfloat16
    """
    lists = amp_lists if amp_lists is not None else AutoMixedPrecisionListsBF16()
    convert(main_prog, Precision(lists, bfloat16, "O1"))


@export("static.amp.bf16.cast_model_to_bf16", "static.amp.bf16.amp_utils.cast_model_to_bf16")
@no_effect(startup_prog="the startup program makes float32, which cast_parameters_to_bf16 and amp_init round")
def cast_model_to_bf16(
    program: Program,
    startup_prog: Program | None = None,
    amp_lists: AutoMixedPrecisionLists | None = None,
    use_bf16_guard: bool = True,
) -> set[str]:
    """Converts a program without gradients to bfloat16 at level O2, in place; see :func:`static.amp.cast_model_to_fp16`.

    Args:
        program: The program.
        amp_lists: Which ops are converted; the defaults without it.
        use_bf16_guard: Convert only ops built under ``bf16_guard``.

    Returns:
        The names of the parameters that ops read in bfloat16.

    Example:
        >>> h = static.nn.fc(static.data("x", [None, 3]), 2)
        >>> sorted(static.amp.bf16.cast_model_to_bf16(static.default_main_program(), use_bf16_guard=False))
        ['fc_0.b_0', 'fc_0.w_0']
        >>> h.dtype
        tstatic.bfloat16
    """
    lists = amp_lists if amp_lists is not None else AutoMixedPrecisionListsBF16()
    return convert(program, Precision(lists, bfloat16, "O2", bool(use_bf16_guard)))


@export("static.amp.bf16.cast_parameters_to_bf16", "static.amp.bf16.amp_utils.cast_parameters_to_bf16")
@no_effect(place=PLACE)
def cast_parameters_to_bf16(
    place: Any, program: Program, scope: Scope | None = None, to_bf16_var_names: Any = None
) -> None:
    """Rounds the values of parameters in a scope to bfloat16.

    Args:
        place: Where the values are.
        program: The program, after :func:`cast_model_to_bf16`.
        scope: Holds the values; the global scope by default.
        to_bf16_var_names: Which parameters; what :func:`cast_model_to_bf16` returned.

    Example:
        >>> h = static.nn.fc(static.data("x", [None, 3]), 2)
        >>> exe, main = static.Executor(), static.default_main_program()
        >>> _ = exe.run(static.default_startup_program())
        >>> names = static.amp.bf16.cast_model_to_bf16(main, use_bf16_guard=False)
        >>> static.amp.bf16.cast_parameters_to_bf16(paddle.CPUPlace(), main, to_bf16_var_names=names)
        >>> exe.run(feed={"x": np.ones([1, 3], "float32")}, fetch_list=[h])[0].dtype
        dtype(bfloat16)
    """
    cast_parameters_to_fp16(place, program, scope, to_bf16_var_names, bfloat16)
