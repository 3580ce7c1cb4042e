"""Trials of first uses of names that an exception breaks off in the middle of an import: the next use works.

``python -m tests.unit.soak_imports --trials 500`` prints what was broken, and fails if anything was. Each trial is a fork of a
process that has imported numpy, or the package, and nothing of what the trial uses.
"""

from __future__ import annotations

import argparse
import faulthandler
import inspect
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

LIMIT = 300
"""Seconds after which a trial counts as hung; one takes a fraction of a second."""

PACKAGE = str(Path(__file__).parents[2] / "tstatic") + os.sep


REGISTERING = tuple(os.path.join("ir", name) for name in ("registry.py", "export.py", "methods.py"))


def _data(paddle: Any) -> Any:
    return paddle.static.data("x", [2, 3])


def _dropout(paddle: Any) -> None:
    assert paddle.nn.Dropout(0.5)(_data(paddle)).shape == (2, 3)


def _method(paddle: Any) -> None:
    x = _data(paddle)
    assert (x.tanh() + x).cumsum(0)[0].shape == (3,)


def _convolution(paddle: Any) -> None:
    image = paddle.static.data("image", [None, 3, 8, 8])
    out = paddle.nn.functional.max_pool2d(paddle.static.nn.conv2d(image, 4, 3), 2)
    paddle.optimizer.Momentum(0.1).minimize(paddle.mean(out))
    program = paddle.static.default_main_program()
    assert {"conv2d", "conv2d_grad", "momentum"} <= {op.type for op in program.global_block().ops}


def _loader(paddle: Any) -> None:
    data = paddle.io.TensorDataset([np.zeros((4, 2), "f4")])
    assert len(paddle.io.DataLoader(data, batch_size=2)) == 2


def _run(paddle: Any) -> None:
    static = paddle.static
    y = static.nn.fc(_data(paddle), 2, activation="relu")
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    assert exe.run(feed={"x": np.ones((2, 3), "f4")}, fetch_list=[y])[0].shape == (2, 2)


def _old(paddle: Any) -> None:
    from tstatic import fluid

    assert fluid.layers.reduce_sum(fluid.layers.relu(_data(paddle))).dtype is not None


USES: tuple[Callable[[Any], None], ...] = (_dropout, _method, _convolution, _loader, _run, _old)


def _use(use: Callable[[Any], None]) -> None:
    import tstatic as paddle

    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        use(paddle)


def _at(event: int, raised: type[BaseException], noted: list[int]) -> Any:
    """Returns a trace function that raises at a call, or at a line of a module's body or of what registers names.

    It counts these events in ``noted``.
    """

    def trace(frame: FrameType, kind: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE):
            return None
        inside = trace if frame.f_code.co_name == "<module>" or file.endswith(REGISTERING) else None
        # A generator that nobody asks to the end is closed, which a trace function hears of as of a call that raises. Python drops
        # what is raised then, and no signal arrives there: its handlers run at the next instruction of the caller.
        if frame.f_code.co_flags & inspect.CO_GENERATOR and kind != "line":
            return inside
        noted[0] += 1
        if noted[0] == event:
            sys.settrace(None)
            raise raised
        return inside

    return trace


def _in_child(work: Callable[[], int]) -> int:
    """Returns what ``work`` returns in a forked child, or 255 after an exception; a negative number is the signal that ended it."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        faulthandler.register(signal.SIGALRM, chain=True)
        signal.alarm(LIMIT)
        try:
            os.write(write, str(work()).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(255)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return int(text) if code == 0 else code if code < 0 else -255


def _count(use: Callable[[Any], None]) -> int:
    noted = [0]
    sys.settrace(_at(0, KeyboardInterrupt, noted))
    try:
        _use(use)
    finally:
        sys.settrace(None)
    return noted[0]


def _trial(use: Callable[[Any], None], event: int, raised: type[BaseException]) -> int:
    sys.settrace(_at(event, raised, [0]))
    try:
        _use(use)
    except BaseException:  # what a loop of retries, or a prompt, goes on after
        pass
    finally:
        sys.settrace(None)
    _use(use)
    # What is left of the first attempt must not be in the way of anything else.
    _use(USES[event % len(USES)])
    return 1


def soak(trials: int, seed: int) -> list[str]:
    """Runs trials; returns what was broken."""
    rng = random.Random(seed)
    broken = []
    counts: dict[tuple[bool, Callable[[Any], None]], int] = {}
    for i in range(trials):
        # In the first fifth, the import of the package itself may be what is broken off.
        imported = i >= trials // 5
        if imported:
            import tstatic  # noqa: F401
        use, raised = USES[i % len(USES)], rng.choice([KeyboardInterrupt, KeyboardInterrupt, MemoryError])
        kind = imported, use
        if kind not in counts:
            counts[kind] = _in_child(lambda use=use: _count(use))
        event = rng.randrange(1, counts[kind] + 1)
        code = _in_child(lambda use=use, event=event, raised=raised: _trial(use, event, raised))
        if code != 1:
            broken.append(f"trial {i}: {use.__name__[1:]}, {raised.__name__} at {event} of {counts[kind]}: {code}")
            print(broken[-1], flush=True)
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    broken = soak(options.trials, options.seed)
    print(f"{options.trials} imports were broken off, {len(broken)} of them for good")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
