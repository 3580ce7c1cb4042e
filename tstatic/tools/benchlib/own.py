"""Peers from a user's file: a kernel that ``register_kernel`` registered, or a function of arrays or tensors."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tstatic.devices import Device
from tstatic.errors import ProgramError, near, shown
from tstatic.fusion.user.user_kernel import UserKernel, accepted
from tstatic.ir.opdef import op_def
from tstatic.regular import read_bytes
from tstatic.static.strategy import BuildStrategy
from tstatic.tools.benchlib.cases import Case, build
from tstatic.tools.benchlib.peers import (
    PEERS,
    Competitor,
    Peer,
    PeerMissingError,
    Prepare,
    by_torch,
    executed,
    import_torch,
)
from tstatic.tools.benchlib.rows import FORWARD
from tstatic.tools.benchlib.timers import Timer
from tstatic.tools.testing.parts import Array, Step
from tstatic.tools.testing.runner import baseline_of

FORM = "FILE.py:NAME, where NAME is a function, or what register_kernel() made"


@dataclass(frozen=True)
class OwnPeer:
    """A peer from a user's file.

    Attributes:
        name: What results call it: ``file:name``.
        digest: Some digits that change with the text of the file.
    """

    name: str
    digest: str


def register_own(text: str, device: Device) -> OwnPeer:
    """Registers the peer that ``FILE.py:NAME`` names.

    Args:
        text: What ``--peer`` was given.
        device: Where rows are measured.

    Raises:
        ProgramError: If there is no such file or name, it cannot be measured, or the device runs no kernels.
    """
    file, colon, name = text.rpartition(":")
    path = Path(file)
    if not colon or not name.isidentifier() or path.suffix != ".py":
        raise ProgramError(f"--peer {text}: this names no peer", expected=FORM, received=repr(text))
    try:
        digest = hashlib.sha256(read_bytes(path)).hexdigest()[:12]
    except OSError as error:
        raise ProgramError(
            f"--peer {text}: '{file}' cannot be read: {error.strerror or error}", expected=FORM
        ) from error
    module = _loaded(path, text)
    known = {n: v for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__}
    found = vars(module).get(name)
    if found is None:
        raise ProgramError(
            f"--peer {text}: '{file}' has no '{name}'", expected=", ".join(known) or "a function",
            received=repr(name), fix=near(name, known) or FORM,
        )  # fmt: skip
    peer = Peer(f"{path.stem}:{name}", _peer_of(found, text, device), usual=False)
    if peer.name in PEERS:
        raise ProgramError(f"--peer {text}: there is a peer '{peer.name}' already", fix="give each peer once")
    PEERS[peer.name] = peer
    return OwnPeer(peer.name, digest)


def _loaded(path: Path, text: str) -> Any:
    """Runs a file as a module of its own, whose functions have a source."""
    spec = importlib.util.spec_from_file_location(f"tstatic_peer_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.resolve().parent))  # as for a script
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ProgramError(
            f"--peer {text}: '{path}' raised {type(error).__name__}: {error}", fix="run it by itself first"
        ) from error
    finally:
        sys.path.pop(0)
    return module


def _peer_of(found: Any, text: str, device: Device) -> Prepare:
    registered = getattr(found, "registered", None)
    if isinstance(registered, UserKernel):
        if not device.generated:
            raise ProgramError(
                f"--peer {text}: no kernel runs on this device, where '{registered.op}' runs as its reference",
                expected="a GPU, or Triton's interpreter", received=f"the device '{device.name}'",
                fix="add --device cuda, or set TSTATIC_CPU_BACKEND=interpret TRITON_INTERPRET=1",
            )  # fmt: skip
        return lambda case, timer, sets: _registered(registered, case, timer, sets)
    if type(found).__module__.partition(".")[0] == "triton":
        raise ProgramError(
            f"--peer {text}: nothing says how to launch this kernel", expected=FORM, received="a @triton.jit function",
            fix="put @register_kernel(...) above it, or name a function that launches it",
        )  # fmt: skip
    if not callable(found):
        raise ProgramError(f"--peer {text}: this cannot be called", expected=FORM, received=shown(found))
    return lambda case, timer, sets: _called(found, case, timer, sets)


def _check_row(case: Case) -> None:
    if case.row.own is not None:
        raise PeerMissingError(
            "it stands beside operators, fusions and small programs, and not beside a program of your own"
        )
    if case.trains:
        raise PeerMissingError("it has no form of a step with an optimizer")


# ------------------------------------------------------------------------------------------------------ registered kernels
def _registered(kernel: UserKernel, case: Case, timer: Timer, sets: int) -> Competitor:
    """Returns runs of the row with one operator of the user's in place of all of its operators."""
    _check_row(case)
    recipe, definition = case.row.recipe, op_def(kernel.op)
    if case.row.direction != FORWARD and kernel.stated["grad"] is None:
        raise PeerMissingError(f"'{kernel.op}' was registered without a gradient: measure it with --direction fwd")
    pairs = (definition.inputs, [one.name for one in recipe.inputs]), (definition.outputs, recipe.fetches)
    for slots, names in pairs:
        if len(slots) != len(names):
            raise ProgramError(
                f"'{kernel.op}' does not fit the row '{case.row.name}'",
                expected=f"slots for {', '.join(names)}, in this order", received=", ".join(s.name for s in slots),
                fix="register the kernel with as many slots, or choose other rows",
            )  # fmt: skip
    read, written = ({s.name: (n,) for s, n in zip(slots, names, strict=True)} for slots, names in pairs)
    attrs = {n: v for n, v in _attributes(case).items() if n in definition.attrs}
    step = Step.of(definition.type, read, written, attrs)
    inputs = dict(case.inputs)
    mine = build(replace(case.row, recipe=replace(recipe, steps=(step,)), draw=lambda seed: inputs))
    if mine.fetches != case.fetches:
        raise PeerMissingError(
            f"'{kernel.op}' has gradients for {', '.join(mine.fetches)}, and not {', '.join(case.fetches)}"
        )
    return executed(baseline_of(BuildStrategy()), mine, timer, sets)


def _attributes(case: Case) -> dict[str, Any]:
    """Returns the attributes of the row's operator, defaults included; none of a program with several."""
    steps = case.row.recipe.steps
    return dict(op_def(steps[0].type).complete(steps[0].all_attrs())) if len(steps) == 1 else {}


# --------------------------------------------------------------------------------------------------------------- functions
def _called(function: Callable[..., Any], case: Case, timer: Timer, sets: int) -> Competitor:
    """Returns runs of a function of the row's inputs."""
    _check_row(case)
    names = [one.name for one in case.row.recipe.inputs]
    attrs = accepted(function, _attributes(case))
    try:
        inspect.signature(function).bind(*names, **attrs)
    except TypeError as error:
        raise ProgramError(
            f"'{function.__name__}' does not fit the row '{case.row.name}': {error}",
            expected=f"a function of {', '.join(names)}, and of attributes by name", received=str(inspect.signature(function)),
        ) from None  # fmt: skip

    def forward(*given: Any) -> list[Any]:
        made = function(*given, **attrs)
        return list(made) if isinstance(made, tuple | list) else [made]

    if timer.device != "cpu" or _takes_tensors(function):
        torch = import_torch()
        if timer.device == "cpu":
            torch.set_num_threads(timer.threads)
        return by_torch(torch, case, timer, sets, forward, names)
    if case.row.direction != FORWARD:
        raise PeerMissingError("a function of arrays has no gradient: measure it with --direction fwd")
    # Each set has arrays of its own, so that one that the function writes to spoils no other peer's inputs.
    given = [[np.array(case.inputs[name]) for name in names] for _ in range(sets)]

    def results() -> list[Array]:
        return [np.asarray(one) for one in forward(*(np.array(case.inputs[name]) for name in names))]

    return Competitor([_run_of(forward, own) for own in given], results)


def _run_of(forward: Callable[..., Any], given: Sequence[Any]) -> Callable[[], Any]:
    return lambda: forward(*given)


def _takes_tensors(function: Callable[..., Any]) -> bool:
    """Returns whether a function's first parameter is annotated as a tensor of torch, by a type or by a text."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    note = getattr(first, "annotation", None)
    return str(getattr(note, "__name__", note)).rpartition(".")[2] == "Tensor"


__all__ = ["OwnPeer", "register_own"]
