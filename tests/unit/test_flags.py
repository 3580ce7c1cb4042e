"""Flags: types, ranges, the environment, and the part of them that belongs to the executor's key."""

from __future__ import annotations

import logging

import pytest

from tstatic import flags
from tstatic.errors import FlagTypeError, FlagValueError, NotFoundError
from tstatic.flags import REGISTRY, flag, get_flags, set_flags

ALL = sorted(REGISTRY)
WRONG = {
    bool: [2, -1, 1.0, "True", None],
    int: [True, 1.5, "1", None],
    float: [True, "0.5", None],
    str: [1, None, b"a"],
}


@pytest.mark.parametrize("name", ALL)
def test_default_is_a_value_of_the_flag_and_is_what_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests run with FLAGS_init_allocated_mem set.
    monkeypatch.delenv(name, raising=False)
    flags._reset_for_tests()
    one = REGISTRY[name]
    assert type(one.default) is one.type
    assert one.check(one.default) == ""
    assert get_flags(name) == {name: one.default}
    assert flag(name) == one.default
    assert len(one.help) > 20
    assert one.effect == ("without effect" not in one.help)


@pytest.mark.parametrize("name", ALL)
def test_a_value_of_the_wrong_type_is_refused_by_name(name: str) -> None:
    before = get_flags(ALL)
    for value in WRONG[REGISTRY[name].type]:
        with pytest.raises(FlagTypeError) as caught:
            set_flags({name: value})
        assert name in str(caught.value)
        assert f"expected: {REGISTRY[name].type.__name__}" in str(caught.value)
        assert repr(value) in str(caught.value)
        assert "fix:" in str(caught.value)
    assert get_flags(ALL) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLAGS_numerics", "exact"),
        ("FLAGS_step_timeout_s", 0.0),
        ("FLAGS_step_timeout_s", float("nan")),
        ("FLAGS_step_timeout_s", float("inf")),
        ("FLAGS_selected_gpus", "0;1"),
        ("FLAGS_selected_gpus", "0,,1"),
        ("FLAGS_fraction_of_gpu_memory_to_use", 1.5),
        ("FLAGS_fraction_of_gpu_memory_to_use", float("nan")),
        ("FLAGS_allocator_strategy", "auto"),
        ("FLAGS_max_inplace_grad_add", -1),
        ("FLAGS_fuse_parameter_groups_size", 0),
    ],
)
def test_a_value_out_of_range_is_refused_and_the_range_is_said(name: str, value: object) -> None:
    with pytest.raises(FlagValueError) as caught:
        set_flags({name: value})
    assert name in str(caught.value)
    assert caught.value.expected
    assert repr(value) in str(caught.value)
    assert flag(name) == REGISTRY[name].default


def test_an_integer_is_a_float_and_zero_and_one_are_bools() -> None:
    set_flags({"FLAGS_step_timeout_s": 5, "FLAGS_check_nan_inf": 1})
    assert get_flags(["FLAGS_step_timeout_s", "FLAGS_check_nan_inf"]) == {
        "FLAGS_step_timeout_s": 5.0,
        "FLAGS_check_nan_inf": True,
    }
    assert type(flag("FLAGS_step_timeout_s")) is float
    assert flag("FLAGS_check_nan_inf") is True


@pytest.mark.parametrize("given", [["FLAGS_check_nan_inf"], "FLAGS_check_nan_inf", None, ("FLAGS_check_nan_inf", 1)])
def test_set_flags_takes_a_dict_only(given: object) -> None:
    with pytest.raises(TypeError, match="set_flags takes a dict"):
        set_flags(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, {"FLAGS_numerics": 1}, 3])
def test_get_flags_takes_names_only(given: object) -> None:
    with pytest.raises(TypeError, match="get_flags takes the name"):
        get_flags(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "meant"), [("FLAGS_check_nan", "FLAGS_check_nan_inf"), ("numerics", "FLAGS_numerics")]
)
def test_an_unknown_name_is_a_value_error_that_names_near_ones(name: str, meant: str) -> None:
    for call in (lambda: set_flags({name: True}), lambda: get_flags(name), lambda: get_flags([name])):
        with pytest.raises(ValueError, match="there is no flag") as caught:
            call()
        assert isinstance(caught.value, NotFoundError)
        assert meant in str(caught.value)


def test_a_name_that_is_no_text_is_a_type_error() -> None:
    with pytest.raises(FlagTypeError, match="the name of a flag is a text"):
        set_flags({1: True})  # type: ignore[dict-item]


def test_one_bad_value_leaves_all_flags_as_they_were() -> None:
    before, version = get_flags(ALL), flags.version
    with pytest.raises(FlagTypeError):
        set_flags({"FLAGS_check_nan_inf": True, "FLAGS_numerics": 1})
    assert get_flags(ALL) == before
    assert flags.version == version


def test_version_counts_changes_and_only_changes() -> None:
    start = flags.version
    set_flags({"FLAGS_check_nan_inf": True})
    assert flags.version == start + 1
    set_flags({"FLAGS_check_nan_inf": True})
    assert flags.version == start + 1
    set_flags({"FLAGS_check_nan_inf": False, "FLAGS_numerics": "strict"})
    assert flags.version == start + 2


@pytest.mark.parametrize("name", ALL)
def test_key_changes_with_the_flags_that_change_compiled_code_and_with_no_other(name: str) -> None:
    other = {
        "FLAGS_numerics": "strict",
        "FLAGS_cuda_graph": "off",
        "FLAGS_collectives": "host",
        "FLAGS_selected_gpus": "1",
        "FLAGS_allocator_strategy": "naive_best_fit",
        "FLAGS_fraction_of_gpu_memory_to_use": 0.5,
    }
    default = REGISTRY[name].default
    before = flags.key()
    hash(before)
    value = other[name] if name in other else not default if isinstance(default, bool) else default + 1
    set_flags({name: value})
    assert (flags.key() != before) == REGISTRY[name].compiled
    assert len(flags.key()) == len(flags.key_names())
    assert (name in flags.key_names()) == REGISTRY[name].compiled


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("FLAGS_check_nan_inf", "1", True),
        ("FLAGS_check_nan_inf", "True", True),
        ("FLAGS_sync_nccl_allreduce", "false", False),
        ("FLAGS_cpu_fallback", "0", False),
        ("FLAGS_step_timeout_s", "2.5", 2.5),
        ("FLAGS_max_inplace_grad_add", "8", 8),
        ("FLAGS_selected_gpus", "0,2", "0,2"),
        ("FLAGS_numerics", "strict", "strict"),
    ],
)
def test_environment_is_read_at_first_use(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object) -> None:
    monkeypatch.setenv(name, text)
    assert flag(name) == value
    assert type(flag(name)) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("FLAGS_check_nan_inf", "maybe", FlagTypeError),
        ("FLAGS_step_timeout_s", "soon", FlagTypeError),
        ("FLAGS_max_inplace_grad_add", "1.5", FlagTypeError),
        ("FLAGS_step_timeout_s", "-3", FlagValueError),
        ("FLAGS_numerics", "exact", FlagValueError),
    ],
)
def test_a_bad_environment_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, kind: type[Exception]
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(kind, match=f"the environment variable {name}='{text}'") as caught:
        flag("FLAGS_cpu_fallback")
    assert f"unset {name}" in str(caught.value)
    monkeypatch.delenv(name)
    assert flag("FLAGS_cpu_fallback") is False  # a failed first read leaves nothing behind


def test_set_flags_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGS_numerics", "strict")
    set_flags({"FLAGS_numerics": "default"})
    assert flag("FLAGS_numerics") == "default"


def test_an_unknown_environment_flag_is_said_once_with_near_names(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FLAGS_check_nan_infs", "1")
    with caplog.at_level(logging.WARNING, "tstatic"):
        flag("FLAGS_cpu_fallback")
        flags._reset_for_tests()
        flag("FLAGS_cpu_fallback")
    (record,) = caplog.records
    assert "FLAGS_check_nan_infs" in record.getMessage()
    assert "did you mean 'FLAGS_check_nan_inf'" in record.getMessage()


def test_an_internal_read_of_an_unknown_flag_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        flag("FLAGS_nothing")


def test_the_level_of_call_stacks_is_accepted_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FLAGS_call_stack_level", "2")
    assert flags.get_flags("FLAGS_call_stack_level") == {"FLAGS_call_stack_level": 2}
    assert caplog.text == ""
