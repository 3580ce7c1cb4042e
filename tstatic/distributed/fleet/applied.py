"""What a DistributedStrategy makes of an optimizer, and of how processes run its program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tstatic.comm.passes.distribution import Exchange
from tstatic.distributed.fleet.strategy import DistributedStrategy
from tstatic.errors import StrategyValueError
from tstatic.optimizer.fluid_rules import LarsMomentum
from tstatic.optimizer.gradient_merge import GradientMergeOptimizer
from tstatic.optimizer.mixed_precision import OptimizerWithMixedPrecision, decorate_older
from tstatic.optimizer.optimizer import Optimizer
from tstatic.optimizer.rules import Adam, Lamb, Momentum
from tstatic.optimizer.wrapper import chain
from tstatic.static.amp.lists import AutoMixedPrecisionLists
from tstatic.static.explain.property_status import PropertyStatus
from tstatic.static.run.compiled_program import Settings
from tstatic.static.run.data_parallel import OWN_PLACE
from tstatic.static.strategy import BuildStrategy

_SCALES = BuildStrategy.GradientScaleStrategy


def settings_of(strategy: DistributedStrategy, size: int) -> Settings:
    """Returns how processes run the program."""
    build, execution = strategy.build_strategy, strategy.execution_strategy
    if strategy.sync_batch_norm:
        build.sync_batch_norm = True
    if not strategy.fuse_all_reduce_ops:
        build.fuse_all_reduce_ops = False
    scales = {"avg": None, "sum": _SCALES.One, "customized": _SCALES.Customized}
    chosen = strategy.gradient_scale_configs["scale_strategy"]
    if chosen not in scales:
        raise StrategyValueError(
            f"gradient_scale_configs['scale_strategy'] = '{chosen}' is not known",
            expected=", ".join(map(repr, scales)),
            received=repr(chosen),
            fix="leave it out: 'avg' gives the mean over the processes",
            op="fleet.minimize",
        )
    scale = scales[chosen]
    if scale is not None:
        build.gradient_scale_strategy = scale
    inner = strategy.hierarchical_allreduce_inter_nranks
    if strategy.use_hierarchical_allreduce and size > inner > 1:
        build.use_hierarchical_allreduce = True
        build.hierarchical_allreduce_inter_nranks = inner
    if strategy.nccl_comm_num > 1:
        build.nccl_comm_num = strategy.nccl_comm_num
    exchange = Exchange(
        float(strategy.fuse_grad_size_in_MB), strategy.last_comm_group_size_MB, strategy._calc_comm_same_stream,
        strategy._waits, strategy.fp16_allreduce,
    )  # fmt: skip
    together = size > 1
    return Settings(
        build, execution, parallel=together, places=OWN_PLACE if together else None,
        exchange=exchange,
    )  # fmt: skip


def decorated(optimizer: Any, strategy: DistributedStrategy) -> tuple[Any, list[str], dict[str, str]]:
    """Wraps an optimizer in what the strategy asks for.

    Returns:
        The optimizer, Paddle's names of what was applied, and sentences on fields that did not act.
    """
    applied: list[str] = []
    notes: dict[str, str] = {}
    rule = optimizer if isinstance(optimizer, Optimizer) else None
    if strategy.lars:
        if type(rule) in (Momentum, *_older(Momentum)):
            optimizer = rule = _lars(rule, strategy.lars_configs)
            applied.append("LarsOptimizer")
        else:
            notes["lars"] = f"it replaces a Momentum optimizer, and this is {_name(optimizer)}: not applied."
    if strategy.lamb:
        if type(rule) in (Adam, *_older(Adam)):
            optimizer = rule = _lamb(rule, strategy.lamb_configs)
            applied.append("LambOptimizer")
        else:
            notes["lamb"] = f"it replaces an Adam optimizer, and this is {_name(optimizer)}: not applied."
    if strategy.recompute:
        if not isinstance([*chain(optimizer)][-1], Optimizer):
            notes["recompute"] = f"{_name(optimizer)} appends the backward part by itself: not applied."
        elif strategy._checkpoints():
            applied.append("RecomputeOptimizer")
        else:
            notes["recompute"] = "recompute_configs['checkpoints'] is empty: nothing is computed again."
    if strategy.amp:
        if rule is None:
            notes["amp"] = f"{_name(optimizer)} is wrapped already: not applied."
        else:
            optimizer = _amp(rule, strategy.amp_configs)
            applied.append("AMPOptimizer")
    if strategy.gradient_merge:
        merge = strategy.gradient_merge_configs
        optimizer = GradientMergeOptimizer(optimizer, merge["k_steps"], merge["avg"])
        applied.append("GradientMergeOptimizer")
    return optimizer, applied, notes


def _older(kind: type[Optimizer]) -> tuple[type[Optimizer], ...]:
    """Returns the 1.x spellings of an update rule."""
    return tuple(one for one in kind.__subclasses__() if one.type == kind.type)


def _name(optimizer: Any) -> str:
    return type(optimizer).__name__


@contextmanager
def recomputing(optimizer: Any, checkpoints: Sequence[str]) -> Iterator[None]:
    """Lets the rule that an optimizer wraps keep the checkpoints alone, while it appends backward ops."""
    (*_, rule) = chain(optimizer)
    if not checkpoints or not isinstance(rule, Optimizer):
        yield
        return
    before, rule._checkpoints = rule._checkpoints, list(checkpoints)
    try:
        yield
    finally:
        rule._checkpoints = before


def _amp(rule: Optimizer, given: dict[str, Any]) -> OptimizerWithMixedPrecision:
    lists = AutoMixedPrecisionLists(
        given["custom_white_list"] or None, given["custom_black_list"] or None, given["custom_black_varnames"] or None,
        "bfloat16" if given["use_pure_bf16"] else "float16",
    )  # fmt: skip
    names = (
        "init_loss_scaling", "incr_every_n_steps", "decr_every_n_nan_or_inf", "incr_ratio", "decr_ratio",
        "use_dynamic_loss_scaling", "use_pure_fp16", "use_fp16_guard",
    )  # fmt: skip
    settings = {name: given[name] for name in names}
    if given["use_pure_bf16"]:
        settings |= {"use_pure_fp16": True, "use_bf16": True}
    return decorate_older(rule, lists, **settings)


def _lars(rule: Any, given: dict[str, Any]) -> Optimizer:
    return LarsMomentum(
        rule._learning_rate, rule._momentum, given["lars_coeff"], given["lars_weight_decay"], rule._parameter_list,
        rule.regularization, rule._grad_clip, rule._name, given["exclude_from_weight_decay"], given["epsilon"],
    )  # fmt: skip


def _lamb(rule: Any, given: dict[str, Any]) -> Optimizer:
    excluded = list(given["exclude_from_weight_decay"])
    return Lamb(
        rule._learning_rate, given["lamb_weight_decay"], rule._beta1, rule._beta2, rule._epsilon, rule._parameter_list,
        rule._grad_clip, (lambda param: any(part in param.name for part in excluded)) if excluded else None,
        name=rule._name,
    )  # fmt: skip


def noted(status: PropertyStatus, notes: dict[str, str]) -> PropertyStatus:
    """Returns the status of a field with what it did for this program."""
    note = notes.get(status.name)
    if note is None:
        return status
    return PropertyStatus(status.strategy, status.name, status.value, status.default, "no effect", note)


__all__ = ["decorated", "noted", "recomputing", "settings_of"]
