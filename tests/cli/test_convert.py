"""Weights and models of Paddle, torch and tstatic, each into the others' files and back."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tstatic as paddle
from tests.cli.cases import tstatic
from tstatic import static
from tstatic.cli.outcome import CommandError
from tstatic.cli.weights import FORMATS, convert, read, write

ROOT = Path(__file__).parents[2]

ARRAYS = {
    "w": np.arange(6, dtype="float32").reshape(2, 3),
    "b": np.array([1.5, -2.0], ml_dtypes.bfloat16),
    "half": np.array([[0.5]], "float16"),
    "count": np.array(7, "int64"),
    "mask": np.array([True, False]),
    "none": np.zeros((0, 3), "float64"),
}
SUFFIXES = {"tstatic": ".pdparams", "paddle": ".pdparams", "torch": ".pt", "safetensors": ".safetensors", "npz": ".npz"}


def same(found: Any, wanted: Any) -> None:
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("last", FORMATS)
@pytest.mark.parametrize("first", FORMATS)
def test_any_format_into_any_other(first: str, last: str, tmp_path: Path) -> None:
    source, target = (tmp_path / f"{n}{SUFFIXES[kind]}" for n, kind in (("a", first), ("b", last)))
    arrays = dict(ARRAYS)
    if "npz" in (first, last):
        arrays["b"] = arrays["b"].astype("float32")
    write(arrays, source, first)
    # Only Paddle's files hold bfloat16 as integers.
    bits = ["b"] if first == "paddle" and last != "npz" else []
    outcome = convert(str(source), str(target), last, bfloat16=bits)
    assert outcome.data["format"] == last
    found = read(target)
    if last == "paddle" and "npz" not in (first, last):
        found["b"] = found["b"].view(ml_dtypes.bfloat16)
    same(found, arrays)


def test_torch_loads_what_was_written(tmp_path: Path) -> None:
    import torch

    write(ARRAYS, tmp_path / "a.pdparams", "tstatic")
    convert(str(tmp_path / "a.pdparams"), str(tmp_path / "a.pth"))
    found = torch.load(tmp_path / "a.pth", weights_only=True)
    assert found["b"].dtype is torch.bfloat16
    assert found["b"].tolist() == [1.5, -2.0]
    linear = torch.nn.Linear(3, 2)
    torch.save({"state_dict": linear.state_dict(), "epoch": 3}, tmp_path / "l.pth")
    convert(str(tmp_path / "l.pth"), str(tmp_path / "l.pdparams"), "paddle", ["*weight"], ["^=fc."])
    state = paddle.load(str(tmp_path / "l.pdparams"), return_numpy=True)
    assert list(state) == ["fc.weight", "fc.bias"]
    x = np.ones((1, 3), "float32")
    expected = linear(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(x @ state["fc.weight"] + state["fc.bias"], expected, rtol=1e-5)


def test_a_model_goes_to_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    x = static.data("x", [None, 3])
    y = paddle.nn.functional.relu(static.nn.fc(x, 2))
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    static.save_inference_model(str(tmp_path / "net"), [x], [y], exe)
    found = convert(str(tmp_path / "net"), str(tmp_path / "net.onnx"))
    assert found.data["format"] == "onnx"
    assert [n.op_type for n in onnx.load(str(tmp_path / "net.onnx")).graph.node][:3] == ["MatMul", "Add", "Relu"]
    np.savez(tmp_path / "weights.npz", w=np.ones(2))
    with pytest.raises(CommandError, match="for inference models"):
        convert(str(tmp_path / "weights.npz"), str(tmp_path / "weights.onnx"))


def test_models_both_ways(tmp_path: Path) -> None:
    x = static.data("x", [None, 3])
    y = paddle.nn.functional.relu(static.nn.fc(x, 2))
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    static.save_inference_model(str(tmp_path / "ours"), [x], [y], exe)
    feed = {"x": np.ones((2, 3), "float32")}
    (wanted,) = exe.run(feed=feed, fetch_list=[y])
    convert(str(tmp_path / "ours"), str(tmp_path / "theirs"), "paddle")
    assert not (tmp_path / "theirs.pdmodel").read_bytes().startswith(b"tstatic")
    convert(str(tmp_path / "theirs.pdmodel"), str(tmp_path / "back" / "again"))
    assert (tmp_path / "back" / "again.pdmodel").read_bytes().startswith(b"tstatic")
    before = {v.name: np.array(v.get_value()) for v in static.default_main_program().all_parameters()}
    for prefix in ("theirs", "back/again"):
        with static.scope_guard(static.Scope()):
            program, _, fetches = static.load_inference_model(str(tmp_path / prefix), exe)
            assert exe.run(program, feed=feed, fetch_list=fetches)[0].tobytes() == wanted.tobytes()
    after = {v.name: np.array(v.get_value()) for v in static.default_main_program().all_parameters()}
    same(after, before)


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("code ran",))


def test_hostile_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "evil.pth").write_bytes(pickle.dumps({"w": Evil()}))
    (tmp_path / "evil.pdparams").write_bytes(pickle.dumps({"w": Evil()}))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "text.safetensors").write_text("hello")
    for name in ("evil.pth", "evil.pdparams", "text.npz", "text.safetensors"):
        done = tstatic(tmp_path, "convert", name, "out.npz")
        assert done.returncode in (1, 2), (name, done.stderr)
        assert done.stderr
        assert "Traceback" not in done.stderr
        assert "code ran" not in done.stdout
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"to": "keras"}, "--to takes one of"),
        ({"transpose": ["nothing*"]}, "fits no matrix"),
        ({"rename": ["w"]}, "OLD=NEW"),
        ({"rename": ["(=x"]}, "as a regular expression"),
        ({"rename": [".*=same"]}, "two arrays the name"),
        ({"rename": ["nothing=x"]}, "fits no name; the names are w, count"),
        ({"bfloat16": ["w"]}, "fits no array of 16-bit unsigned integers"),
    ],
)
def test_wrong_options_write_nothing(options: Any, said: str, tmp_path: Path) -> None:
    write({"w": ARRAYS["w"], "count": ARRAYS["count"]}, tmp_path / "a.npz", "npz")
    with pytest.raises(CommandError, match=said):
        convert(str(tmp_path / "a.npz"), str(tmp_path / "b.npz"), **options)
    assert not (tmp_path / "b.npz").exists()


def test_a_suffix_of_no_format_is_refused(tmp_path: Path) -> None:
    write({"w": ARRAYS["w"]}, tmp_path / "a.npz", "npz")
    with pytest.raises(CommandError, match=r"no format has the suffix '\.h5'"):
        convert(str(tmp_path / "a.npz"), str(tmp_path / "b.h5"))
    assert not (tmp_path / "b.h5").exists()
    convert(str(tmp_path / "a.npz"), str(tmp_path / "b.h5"), to="tstatic")
