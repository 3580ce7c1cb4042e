"""BuildStrategy and ExecutionStrategy: defaults, checks, freezing, copies and what they print."""

from __future__ import annotations

import copy
import operator
import pickle
import pydoc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstatic.errors import StrategyTypeError, StrategyValueError, TstaticError, UnknownPropertyError
from tstatic.fusion import FUSIONS
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy
from tstatic.static.strategy.property import MOST, OpenSwitch, Property, Strategy

REDUCE = BuildStrategy.ReduceStrategy
SCALE = BuildStrategy.GradientScaleStrategy
DEVICE = ExecutionStrategy.DeviceType

# The documented defaults, stated here a second time on purpose.
ON = {"remove_unnecessary_lock", "enable_inplace", "fuse_all_reduce_ops", "enable_backward_optimizer_op_deps"} | {
    "fuse_bn_add_act_ops"
}
OFF = {
    *("enable_sequential_execution", "fuse_elewise_add_act_ops", "fuse_broadcast_ops", "fuse_relu_depthwise_conv"),
    *("async_mode", "sync_batch_norm", "fuse_all_optimizer_ops", "cache_runtime_context", "is_distribution"),
    *("use_hierarchical_allreduce", "fuse_bn_act_ops", "enable_auto_fusion", "enable_addto", "fix_op_run_order"),
    *("allow_cuda_graph_capture", "fuse_gemm_epilogue", "build_cinn_pass", "fused_attention", "fused_feedforward"),
    *("fuse_adamw", "sequential_run", "fuse_dot_product_attention", "fuse_resunit"),
}
BUILD_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(ON, True),
    **dict.fromkeys(OFF, False),
    # Of tstatic's own.
    "fuse_linear_cross_entropy": False,
    "fuse_embedding_grad_add": False,
    "reduce_strategy": REDUCE.AllReduce,
    "gradient_scale_strategy": SCALE.CoeffNumDevice,
    "debug_graphviz_path": "",
    "memory_optimize": None,
    "mkldnn_enabled_op_types": set(),
    "num_trainers": 1,
    "trainer_id": 0,
    "trainers_endpoints": [],
    "nccl_comm_num": 1,
    "bkcl_comm_num": 1,
    "hierarchical_allreduce_inter_nranks": 0,
}
STILL_SETTABLE = {
    *("memory_optimize", "enable_inplace", "async_mode", "fuse_all_reduce_ops", "cache_runtime_context"),
    *("mkldnn_enabled_op_types", "num_trainers", "trainer_id", "trainers_endpoints", "is_distribution"),
    *("nccl_comm_num", "bkcl_comm_num", "use_hierarchical_allreduce", "hierarchical_allreduce_inter_nranks"),
    *("enable_backward_optimizer_op_deps", "enable_addto", "fix_op_run_order", "allow_cuda_graph_capture"),
}
EXECUTION_DEFAULTS: dict[str, Any] = {
    "num_threads": 0,
    "num_iteration_per_drop_scope": 100,
    "num_iteration_per_run": 1,
    "allow_op_delay": False,
    "use_thread_barrier": False,
    "use_experimental_executor": True,
    "_dry_run": False,
    "_use_device": DEVICE.CUDA,
    "use_cuda": True,
}
RECORDS = [(cls, item) for cls in (BuildStrategy, ExecutionStrategy) for item in cls.properties()]
every_property = pytest.mark.parametrize(
    ("cls", "item"), RECORDS, ids=[f"{cls.__name__}.{item.name}" for cls, item in RECORDS]
)

names = st.text(max_size=5)
enums = st.sampled_from([*REDUCE, *SCALE, *DEVICE])
GOOD: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans() | st.booleans().map(np.bool_),
    int: st.integers(1, MOST) | st.integers(1, 100).map(np.int32),
    str: names,
    set: st.sets(names) | st.frozensets(names),
    list: st.lists(names),
}


def good_values(item: Property[Any]) -> st.SearchStrategy[Any]:
    """Values that the property takes, found from its default."""
    if item.default is None:
        return st.none() | GOOD[bool]
    if type(item.default) in GOOD:
        return GOOD[type(item.default)]
    return next(st.sampled_from(cls) for cls in (REDUCE, SCALE, DEVICE) if isinstance(item.default, cls))


junk = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), names, st.binary(max_size=3), enums),
    *(
        st.lists(st.none() | st.integers(), min_size=1),
        st.sets(st.integers(), min_size=1),
        st.dictionaries(names, names),
    ),
    *(st.tuples(names), st.builds(object), st.just(bool), st.just(np.ones(2)), st.just(np.float32(1)), st.just(len)),
)


def is_good(item: Property[Any], value: Any) -> bool:
    """Says by type alone, without the code under test, whether a value is of the property's type."""
    default = item.default
    if default is None:
        return value is None or type(value) in (bool, np.bool_)
    if isinstance(default, bool):
        return type(value) in (bool, np.bool_)
    if isinstance(default, list):
        return type(value) is list and all(type(name) is str for name in value)
    if isinstance(default, set):
        return type(value) in (set, frozenset) and all(type(name) is str for name in value)
    if isinstance(default, int):
        return type(value) is int or isinstance(value, np.integer)
    return isinstance(value, type(default))


@pytest.mark.parametrize(
    ("cls", "defaults"), [(BuildStrategy, BUILD_DEFAULTS), (ExecutionStrategy, EXECUTION_DEFAULTS)]
)
def test_the_documented_properties_and_no_other_have_the_documented_defaults(
    cls: type[Strategy], defaults: dict[str, Any]
) -> None:
    assert {item.name for item in cls.properties()} == set(defaults)
    for name, default in defaults.items():
        value = getattr(cls(), name)
        assert value == default
        assert type(value) is type(default)
    assert set(defaults) <= set(dir(cls()))


def test_the_enums_are_paddles() -> None:
    assert {m.name: int(m) for m in REDUCE} == {"AllReduce": 0, "Reduce": 1, "_NoReduce": 2}
    assert {m.name: int(m) for m in SCALE} == {"CoeffNumDevice": 0, "One": 1, "Customized": 2}
    assert operator.index(REDUCE.Reduce) == 1
    number: Any = 1
    assert number != REDUCE.Reduce
    assert {REDUCE.Reduce: "a hashable member"}[REDUCE.Reduce]
    assert BuildStrategy().ReduceStrategy is REDUCE
    assert str(REDUCE._NoReduce) == "ReduceStrategy._NoReduce"


@every_property
def test_every_record_is_complete_and_help_shows_it(cls: type[Strategy], item: Property[Any]) -> None:
    assert getattr(cls, item.name) is item
    assert item.owner == cls.__name__
    assert item.status in ("active", "not yet active", "no effect")
    assert item.doc.endswith(".")
    assert item.reason.endswith(".")
    assert item.reason[0].islower() or item.reason.startswith(("Customized", "Kunlun"))
    assert item.since
    assert item.effect
    if item.name.startswith("_"):
        return  # help() hides such names
    page = pydoc.plain(pydoc.render_doc(cls))
    assert item.doc in page
    assert item.reason in page


@every_property
@given(data=st.data())
def test_a_good_value_is_kept_and_seen_everywhere(
    cls: type[Strategy], item: Property[Any], data: st.DataObject
) -> None:
    value = data.draw(good_values(item))
    strategy = cls()
    setattr(strategy, item.name, value)
    kept = getattr(strategy, item.name)
    assert kept == value
    # No numpy scalar and no frozenset gets in; a None default stands for None, False and True.
    assert type(kept) is type(item.default) or (item.default is None and type(kept) is bool)
    # An open switch that was set to its default is not open any more.
    differs = bool(value != item.default) or isinstance(item, OpenSwitch)
    assert (repr(strategy) == f"{cls.__name__}()") is not differs
    assert strategy.changed() == ({item.name: value} if differs else {})
    assert (strategy.key() != cls().key()) is differs
    assert (strategy != cls()) is differs
    hash(strategy.key())
    for restored in (
        strategy.copy(),
        copy.copy(strategy),
        copy.deepcopy(strategy),
        pickle.loads(pickle.dumps(strategy)),
    ):
        assert restored == strategy
        assert restored.key() == strategy.key()
        assert type(restored) is cls


@every_property
@given(value=junk)
def test_a_wrong_type_is_a_type_error_that_names_the_property(
    cls: type[Strategy], item: Property[Any], value: Any
) -> None:
    strategy = cls()
    if is_good(item, value):
        return
    with pytest.raises(TypeError) as caught:
        setattr(strategy, item.name, value)
    error = caught.value
    assert isinstance(error, StrategyTypeError)
    assert f"{cls.__name__}.{item.name}" in str(error)
    assert f"({type(value).__name__})" in str(error.received)
    assert error.expected == item.kind.expected
    assert error.fix
    assert strategy == cls()


@every_property
@given(number=st.integers())
def test_an_int_out_of_range_is_a_value_error_and_leaves_the_old_value(
    cls: type[Strategy], item: Property[Any], number: int
) -> None:
    if type(item.default) is not int:
        return
    strategy = cls()
    least = 0 if item.name in ("trainer_id", "num_threads", "hierarchical_allreduce_inter_nranks") else 1
    if least <= number <= MOST:
        setattr(strategy, item.name, number)
        assert getattr(strategy, item.name) == number
        return
    with pytest.raises(ValueError, match=rf"{cls.__name__}\.{item.name} is out of range") as caught:
        setattr(strategy, item.name, number)
    assert isinstance(caught.value, StrategyValueError)
    assert strategy == cls()


@pytest.mark.parametrize("name", ["num_threads", "num_iteration_per_drop_scope", "num_iteration_per_run"])
@pytest.mark.parametrize("value", [True, np.True_, 1.0, 1e9, "4", None, [4]])
def test_the_counts_of_an_execution_strategy_take_ints_only(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=name):
        setattr(ExecutionStrategy(), name, value)


def test_the_least_count_is_zero_for_threads_and_one_for_iterations() -> None:
    strategy = ExecutionStrategy()
    strategy.num_threads = 0
    for name in ("num_iteration_per_drop_scope", "num_iteration_per_run"):
        with pytest.raises(ValueError, match=name):
            setattr(strategy, name, 0)
    with pytest.raises(ValueError, match="num_threads"):
        strategy.num_threads = -1


def test_an_unknown_name_suggests_a_near_one() -> None:
    strategy = BuildStrategy()
    with pytest.raises(AttributeError, match="did you mean 'memory_optimize'") as caught:
        strategy.memory_optimise = True
    assert isinstance(caught.value, UnknownPropertyError)
    with pytest.raises(AttributeError, match="did you mean 'fuse_adamw'"):
        _ = strategy.fuse_adam
    with pytest.raises(AttributeError, match="has no property 'zzz'"):
        _ = strategy.zzz
    with pytest.raises(AttributeError, match="did you mean 'num_threads'"):
        ExecutionStrategy().num_thread = 2
    assert not hasattr(strategy, "__array__")


def test_nothing_but_properties_can_be_set_or_deleted() -> None:
    strategy = BuildStrategy()
    for name in ("copy", "key", "_values", "_finalized", "ReduceStrategy", "__class__"):
        with pytest.raises(UnknownPropertyError):
            setattr(strategy, name, 1)
    with pytest.raises(AttributeError, match="set it to its default, True"):
        del strategy.enable_inplace
    with pytest.raises(AttributeError, match="has no property 'zzz'"):
        del strategy.zzz
    with pytest.raises(TypeError):
        BuildStrategy(enable_inplace=False)  # type: ignore[call-arg]


@every_property
def test_finalizing_freezes_the_documented_properties_only(cls: type[Strategy], item: Property[Any]) -> None:
    if cls is ExecutionStrategy:
        assert not item.freezes
        return
    assert item.freezes is (item.name not in STILL_SETTABLE)
    strategy = BuildStrategy()
    strategy._finalize_strategy_and_create_passes()
    if item.freezes:
        with pytest.raises(RuntimeError, match=f"finalized, so its property '{item.name}'") as caught:
            setattr(strategy, item.name, item.default)
        assert isinstance(caught.value, TstaticError)
        strategy._clear_finalized()
    setattr(strategy, item.name, item.default)


def test_a_copy_is_not_finalized_and_shares_nothing() -> None:
    strategy = BuildStrategy()
    strategy.trainers_endpoints = ["a:1", "b:2"]
    strategy.mkldnn_enabled_op_types = {"relu"}
    strategy._finalize_strategy_and_create_passes()
    for other in (strategy.copy(), strategy._copy()):
        other.fuse_adamw = True
        other.trainers_endpoints.append("c:3")
        other.mkldnn_enabled_op_types.add("tanh")
    assert strategy.trainers_endpoints == ["a:1", "b:2"]
    assert strategy.mkldnn_enabled_op_types == {"relu"}
    # Those of the copy and pickle modules keep the whole state.
    for other in (copy.deepcopy(strategy), copy.copy(strategy), pickle.loads(pickle.dumps(strategy))):
        with pytest.raises(RuntimeError, match="finalized"):
            other.fuse_adamw = True


def test_lists_and_sets_are_copied_in_and_can_be_changed_in_place() -> None:
    endpoints = ["a:1"]
    strategy = BuildStrategy()
    before = strategy.key()
    strategy.trainers_endpoints = endpoints
    endpoints.append("b:2")
    assert strategy.trainers_endpoints == ["a:1"]
    strategy.trainers_endpoints.append("c:3")
    assert strategy.changed() == {"trainers_endpoints": ["a:1", "c:3"]}
    assert strategy.key() != before
    assert BuildStrategy().trainers_endpoints == []
    strategy.trainers_endpoints.append(3)  # type: ignore[arg-type]
    for use in (strategy.key, strategy.copy, strategy.check):
        with pytest.raises(StrategyTypeError, match="trainers_endpoints"):
            use()


def test_a_trainer_needs_an_endpoint() -> None:
    strategy = BuildStrategy()
    strategy.trainer_id = 2
    strategy.trainers_endpoints = ["a:1", "b:2"]
    for use in (strategy.check, strategy._finalize_strategy_and_create_passes):
        with pytest.raises(StrategyValueError, match="trainer_id"):
            use()
    strategy.trainer_id = 1
    strategy._finalize_strategy_and_create_passes()


def test_repr_shows_what_changed_and_str_shows_all() -> None:
    strategy = BuildStrategy()
    assert repr(strategy) == "BuildStrategy()"
    strategy.reduce_strategy = REDUCE.Reduce
    strategy.memory_optimize = False
    strategy.fuse_all_optimizer_ops = False
    strategy.mkldnn_enabled_op_types = {"tanh", "relu"}
    changed = "reduce_strategy=ReduceStrategy.Reduce, memory_optimize=False, mkldnn_enabled_op_types={'relu', 'tanh'}"
    assert repr(strategy) == f"BuildStrategy({changed})"
    head, *lines = str(strategy).splitlines()
    assert head == "BuildStrategy: 3 changed, marked *"
    shown = {line[2:].split(" = ")[0].strip(): line for line in lines}
    assert list(shown) == [item.name for item in BuildStrategy.properties()]
    assert "= False  (default None)" in shown["memory_optimize"]
    assert shown["memory_optimize"].startswith("* ")
    assert shown["fuse_all_optimizer_ops"].endswith("= False")
    assert sum(line.startswith("* ") for line in lines) == 3
    strategy._finalize_strategy_and_create_passes()
    assert str(strategy).startswith("BuildStrategy (finalized)")


def test_equality_is_by_value_and_never_across_classes() -> None:
    strategy, other = BuildStrategy(), BuildStrategy()
    assert strategy == other
    other.enable_inplace = False
    assert strategy != other
    other.enable_inplace = True
    assert strategy == other
    assert strategy.key() == other.key()
    assert strategy != ExecutionStrategy()
    assert strategy != 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(strategy)


def test_a_subclass_keeps_the_properties() -> None:
    class Mine(BuildStrategy):
        pass

    mine = Mine()
    mine.enable_inplace = False
    assert repr(mine) == "Mine(enable_inplace=False)"
    assert [item.name for item in Mine.properties()] == [item.name for item in BuildStrategy.properties()]
    assert mine != BuildStrategy()


def test_what_acts_on_the_cpu_is_said_to_be_active() -> None:
    active = {item.name for _, item in RECORDS if item.status == "active"}
    order = {"enable_sequential_execution", "sequential_run", "fix_op_run_order", "remove_unnecessary_lock"}
    places = {
        "reduce_strategy",
        "gradient_scale_strategy",
        "fuse_all_reduce_ops",
        "fuse_broadcast_ops",
        "sync_batch_norm",
        "nccl_comm_num",
    }
    processes = {
        "use_hierarchical_allreduce",
        "hierarchical_allreduce_inter_nranks",
        "num_trainers",
        "trainer_id",
        "trainers_endpoints",
        "enable_backward_optimizer_op_deps",
    }
    assert active == {
        *("debug_graphviz_path", "enable_inplace", "memory_optimize", "enable_addto", *(f.switch for f in FUSIONS)),
        *("num_threads", "num_iteration_per_run", "num_iteration_per_drop_scope", "_dry_run"),
        *order, *places, *processes,
        "allow_cuda_graph_capture",  # on a GPU
    }  # fmt: skip


def test_reasons_of_properties_name_their_own_default_and_no_fusion_that_exists_as_missing() -> None:
    reasons = {p.name: p.reason for p in BuildStrategy.properties()}
    for name, default in (("num_trainers", "1"), ("trainer_id", "0"), ("trainers_endpoints", "an empty list")):
        assert f"{default} leaves it to the environment" in reasons[name]
    assert not [name for name, reason in reasons.items() if "the fusion passes come with a later release" in reason]
