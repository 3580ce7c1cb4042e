"""Places: values, texts, what this machine has, and what happens when it does not have it."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import child
from tstatic import flags, places
from tstatic.errors import DeviceError, PlaceError, PlaceTypeError
from tstatic.places import CPUPlace, CUDAPinnedPlace, CUDAPlace, parse_place, resolve

ROOT = Path(__file__).parents[2]
SAMPLES = [CPUPlace(), CUDAPlace(0), CUDAPlace(1), CUDAPinnedPlace()]


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU, whatever this one has."""
    monkeypatch.setattr(places, "device_count", lambda: 0)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs and a tstatic that can use them."""
    monkeypatch.setattr(places, "BACKENDS", ("cpu", "gpu"))
    monkeypatch.setattr(places, "device_count", lambda: 2)


def test_places_compare_by_value_and_hash_alike() -> None:
    assert CPUPlace() == CPUPlace()
    assert CUDAPlace(1) == CUDAPlace(1)
    assert CUDAPlace(1)._equals(CUDAPlace(1))
    assert not CUDAPlace(1)._equals(CUDAPlace(0))
    assert len(set(SAMPLES) | {CPUPlace(), CUDAPlace(1)}) == 4
    for a in SAMPLES:
        assert [a == b for b in SAMPLES].count(True) == 1
        assert pickle.loads(pickle.dumps(a)) == a


@pytest.mark.parametrize("place", SAMPLES, ids=repr)
def test_places_are_frozen_and_name_themselves(place: places.Place) -> None:
    with pytest.raises(AttributeError):
        place.id = 3  # type: ignore[attr-defined]
    assert repr(place) == str(place) == f"Place({place.name})"
    assert parse_place(place.name) == place
    assert [place.is_cpu_place(), place.is_gpu_place(), place.is_cuda_pinned_place()].count(True) == 1


def test_a_gpu_number_is_any_integer_from_zero_up() -> None:
    assert CUDAPlace(np.int64(3)) == CUDAPlace(3)
    assert type(CUDAPlace(np.int64(3)).id) is int
    assert CUDAPlace(id=2).get_device_id() == 2
    for wrong in (True, 1.0, "0", None):
        with pytest.raises(PlaceTypeError, match="is an integer"):
            CUDAPlace(wrong)  # type: ignore[arg-type]
    with pytest.raises(PlaceError, match="cannot be negative"):
        CUDAPlace(-1)


@pytest.mark.parametrize(
    ("text", "place"),
    [("cpu", CPUPlace()), ("GPU:1", CUDAPlace(1)), (" gpu ", CUDAPlace(0)), ("gpu_pinned", CUDAPinnedPlace())],
)
def test_texts_that_name_a_place(text: str, place: places.Place) -> None:
    assert parse_place(text) == place
    assert places.to_place(text) == place
    assert places.to_place(place) is place


@pytest.mark.parametrize("text", ["", "foo:1", "gpu:", "gpu:-1", "gpu:x", "gpu:0:1", "cpu:0", "cuda:0", "xpu", "gpu:²"])
def test_texts_that_name_no_place_are_value_errors(text: str) -> None:
    with pytest.raises(ValueError, match="does not name a device") as caught:
        parse_place(text)
    assert repr(text) in str(caught.value)
    assert "fix:" in str(caught.value)


def test_cuda_is_a_near_miss_of_gpu() -> None:
    with pytest.raises(PlaceError, match="write 'gpu:3'"):
        parse_place("cuda:3")


@pytest.mark.parametrize("wrong", [None, 0, ["cpu"], CPUPlace])
def test_what_is_neither_place_nor_text_is_a_type_error(wrong: object) -> None:
    with pytest.raises(TypeError):
        places.to_place(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        parse_place(wrong)  # type: ignore[arg-type]


def test_gpu_without_a_number_is_the_first_selected_one() -> None:
    flags.set_flags({"FLAGS_selected_gpus": "3,1"})
    assert parse_place("gpu") == CUDAPlace(3)


def test_using_a_gpu_that_is_not_there_says_what_was_wanted_and_what_is_there(no_gpu: None) -> None:
    assert resolve(CPUPlace()) == CPUPlace()
    for place in (CUDAPlace(1), CUDAPinnedPlace()):
        with pytest.raises(DeviceError) as caught:
            resolve(place)
        assert place.name in str(caught.value)
        assert "received: the CPU" in str(caught.value)
        assert "FLAGS_cpu_fallback=1" in str(caught.value)


def test_a_number_beyond_the_gpus_lists_those_that_are_there(two_gpus: None) -> None:
    assert resolve("gpu:1") == CUDAPlace(1)
    assert resolve(CUDAPinnedPlace()) == CUDAPinnedPlace()
    with pytest.raises(DeviceError, match=r"the CPU and gpu:0, gpu:1"):
        resolve(CUDAPlace(2))


def test_hidden_gpus_are_said_to_be_hidden(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "BACKENDS", ("cpu", "gpu"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES='' hides all"):
        resolve(CUDAPlace(0))


def test_fallback_runs_on_the_cpu_and_says_so_once(no_gpu: None, caplog: pytest.LogCaptureFixture) -> None:
    flags.set_flags({"FLAGS_cpu_fallback": True})
    with caplog.at_level(logging.WARNING, "tstatic"):
        for _ in range(3):
            assert resolve(CUDAPlace(0)) == CPUPlace()
    (record,) = caplog.records
    assert "Place(gpu:0)" in record.getMessage()
    assert "FLAGS_cpu_fallback" in record.getMessage()


def test_fallback_leaves_a_gpu_that_is_there_alone(two_gpus: None) -> None:
    flags.set_flags({"FLAGS_cpu_fallback": True})
    assert resolve(CUDAPlace(1)) == CUDAPlace(1)
    assert resolve(CUDAPlace(7)) == CPUPlace()


def test_cpu_places_counts_by_argument_then_by_cpu_num(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "3")
    assert places.cpu_places() == [CPUPlace()] * 3
    assert places.cpu_places(2) == [CPUPlace()] * 2
    assert places.cpu_places(0) == []
    monkeypatch.setenv("CPU_NUM", "0")
    assert places.cpu_places() == []


def test_unset_cpu_num_is_written_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("CPU_NUM", raising=False)
    monkeypatch.setattr(places, "cpu_count", lambda: 8)
    with caplog.at_level(logging.INFO, "tstatic"):
        assert places.cpu_places() == [CPUPlace()]
        assert os.environ["CPU_NUM"] == "1"
        del os.environ["CPU_NUM"]
        assert places.cpu_places() == [CPUPlace()]
    (record,) = caplog.records
    assert "CPU_NUM is not set" in record.getMessage()
    assert record.levelno == logging.WARNING


@pytest.mark.parametrize("text", ["two", "-1", "1.5", ""])
def test_a_bad_cpu_num_is_a_value_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CPU_NUM", text)
    with pytest.raises(ValueError, match="CPU_NUM is not a number") as caught:
        places.cpu_places()
    assert f"CPU_NUM={text!r}" in str(caught.value)


@pytest.mark.parametrize(("count", "kind"), [(-1, PlaceError), (True, PlaceTypeError), ("2", PlaceTypeError)])
def test_a_bad_count_of_cpu_places(count: object, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="number of CPU places"):
        places.cpu_places(count)  # type: ignore[arg-type]


def test_cuda_places_by_argument_then_selected_then_all(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert places.cuda_places() == [CUDAPlace(0), CUDAPlace(1)]
    assert places.cuda_places([1]) == [CUDAPlace(1)]
    assert places.cuda_places((0, 0)) == [CUDAPlace(0)] * 2
    assert places.cuda_places(np.int64(1)) == [CUDAPlace(1)]
    flags.set_flags({"FLAGS_selected_gpus": "1"})
    assert places.cuda_places() == [CUDAPlace(1)]
    with pytest.raises(DeviceError, match="gpu:5"):
        places.cuda_places([0, 5])


def test_selected_gpus_may_be_exported_after_the_first_use_of_a_flag(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert flags.flag("FLAGS_selected_gpus") == ""
    monkeypatch.setenv("FLAGS_selected_gpus", "1")
    assert places.cuda_places() == [CUDAPlace(1)]
    monkeypatch.setenv("FLAGS_selected_gpus", "one")
    with pytest.raises(PlaceError, match="FLAGS_selected_gpus is not a list"):
        places.cuda_places()


def test_cuda_places_without_a_gpu(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for ids in (None, [0], 1):
        with pytest.raises(DeviceError):
            places.cuda_places(ids)
    flags.set_flags({"FLAGS_cpu_fallback": True})
    monkeypatch.setenv("CPU_NUM", "2")
    assert places.cuda_places() == [CPUPlace()] * 2
    assert places.cuda_places([0, 1]) == [CUDAPlace(0), CUDAPlace(1)]


@pytest.mark.parametrize("wrong", ["0,1", [1.5], None.__class__])
def test_bad_gpu_numbers(two_gpus: None, wrong: object) -> None:
    with pytest.raises(PlaceTypeError):
        places.cuda_places(wrong)  # type: ignore[arg-type]


def test_capabilities_answer_called_and_as_truth_values(two_gpus: None) -> None:
    assert places.is_compiled_with_cuda() is True
    assert bool(places.is_compiled_with_cuda) is True
    assert (CUDAPlace(0) if places.is_compiled_with_cuda else CPUPlace()) == CUDAPlace(0)
    for other in ("rocm", "xpu", "npu", "mlu", "ipu", "cinn", "mkldnn", "distribute"):
        capability = getattr(places, f"is_compiled_with_{other}")
        assert capability() is False
        assert not capability
        assert f"is_compiled_with_{other}: False" in repr(capability)
    assert places.is_compiled_with_custom_device("npu") is False


def test_no_cuda_where_there_is_no_gpu_or_no_backend(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "BACKENDS", ("cpu", "gpu"))
    assert not places.is_compiled_with_cuda
    monkeypatch.setattr(places, "BACKENDS", ("cpu",))
    monkeypatch.setattr(places, "device_count", lambda: 2)
    assert places.is_compiled_with_cuda() is False
    with pytest.raises(DeviceError, match="on the CPU only"):
        resolve(CUDAPlace(0))


def test_default_device_is_what_was_set_else_the_gpu_else_the_cpu(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert places.chosen_place() is None
    assert places.get_device() == "gpu:0"
    assert places.set_device("gpu:1") == CUDAPlace(1)
    assert places.get_device() == "gpu:1"
    with pytest.raises(DeviceError):
        places.set_device("gpu:9")
    assert places.expected_place() == CUDAPlace(1)
    assert places.set_device(CPUPlace()) == CPUPlace()
    assert places.get_device() == "cpu"
    places._reset_for_tests()
    monkeypatch.setattr(places, "device_count", lambda: 0)
    assert places.get_device() == "cpu"


def test_hidden_gpus_are_none() -> None:
    assert places._count_gpus("") == 0
    assert places._count_gpus("-1") == 0
    assert places._count_gpus(" ") == 0


def test_asking_for_places_imports_nothing_heavy() -> None:
    code = (
        "import sys; from tstatic import places, flags, logs, version; places.get_device(); version.show_versions();"
        "bool(places.is_compiled_with_cuda);"
        "print('heavy:', *{'torch', 'triton', 'scipy'} & set(sys.modules))"
    )
    environment = child.environment(CUDA_VISIBLE_DEVICES="")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["heavy:"]
