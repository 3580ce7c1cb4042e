"""Loads files of strangers in one process of limited memory: ``python -m tests.helpers.hostile HOW COUNT SEED FOLDER [FAULT]``.

``HOW`` is ``mutated`` (files of every kind with some bytes changed), ``expensive`` (files that try to cost far more than their
size) or ``odd`` (programs that lack a part or have an absurd number in it). Each must load, or be refused by a typed error and
change nothing; within its memory, its counted work and some seconds. Prints a JSON object: how many files of each kind were loaded
and how many refused, seconds of processor time, and how many bytes of address space stayed behind. The first file that did
something else ends the process with its kind and number, from which it can be made again.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg  # some operators import it when they are first used: not because of a file
import scipy.special  # noqa: F401

import tstatic as paddle
from tests.helpers import expensive, odd_programs
from tstatic import fluid, static
from tstatic.errors import TstaticError, near
from tstatic.formats import serial
from tstatic.formats.objects import dump_object
from tstatic.ir import budget
from tstatic.ir.opdef import OPS

DATA = Path(__file__).parents[1] / "data"
ROOM, PER_BYTE, PROGRAM_PER_BYTE = 32 << 20, 4, 40
"""Bytes that a file may cost, and that each of its own adds: of values, and of a program."""
CALLS, CALLS_PER_BYTE = 4 << 20, 32
"""Calls that loading a file may make, and that each of its bytes adds: counted from outside, whatever the reader counts."""
LONGEST = 5
"""Seconds of processor time for one file: the clock runs on where the machine does something else."""
WATCHED = {
    "exec", "compile", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class",
    "socket.connect", "ctypes.dlopen", "import", "os.remove", "os.rename", "os.mkdir", "shutil.rmtree",
}  # fmt: skip
"""Audit events of code that is run, and of files that are changed."""


# -------------------------------------------------------------------------------------------------------------- mutations
def mutated(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """Returns bytes with one to four changes: of bits, lengths, order, or by parts of another file."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        at = draw.randrange(len(out) + 1)
        size = draw.choice((1, 1, 2, 4, 8, 16, 64))
        kind = draw.randrange(9)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << draw.randrange(8)
        elif kind == 1 and out:
            out[at % len(out)] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        elif kind == 2:
            del out[at : at + size]
        elif kind == 3:
            out[at:at] = draw.randbytes(size)
        elif kind == 4:
            out[at:at] = out[at : at + size] * draw.choice((1, 2, 50, 1000))
        elif kind == 5:
            out[at : at + size] = draw.choice((b"\xff", b"\x00", b"\x7f")) * size
        elif kind == 6:
            out[at : at + 8] = draw.choice((2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1)).to_bytes(
                8, "little"
            )
        elif kind == 7:
            begin = draw.randrange(len(other) + 1)
            out[at : at + size] = other[begin : begin + draw.choice((size, 200))]
        else:
            del out[at:]
    return bytes(out)


# ------------------------------------------------------------------------------------------------------------------ kinds
class Kinds:
    """Valid files of every kind, and how each is loaded; a load that succeeds returns what must not have changed, or ``None``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exe = static.Executor("cpu")
        self.main, startup = static.Program(), static.Program()
        with static.program_guard(self.main, startup), paddle.utils.unique_name.guard():
            x = static.data("x", [None, 4])
            y = static.nn.fc(static.nn.fc(x, 3, activation="relu"), 2)
            loss = paddle.mean(y)
            paddle.optimizer.SGD(0.1).minimize(loss)
        self.exe.run(startup)
        static.save(self.main, str(folder / "save"))
        static.save_inference_model(str(folder / "model"), [x], [y], self.exe, program=self.main)
        static.save_inference_model(str(folder / "ours"), [x], [y], self.exe, program=self.main, format="paddle")
        nest = {"w": np.arange(4, dtype="float32"), "rows": [1, 2.5, "text", (None, True)], "deep": {"a": [np.ones(2)]}}
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        model, values = self.files["model.pdmodel"], self.files["model.pdiparams"]
        theirs, weights = self.files["ours.pdmodel"], self.files["ours.pdiparams"]
        old, sentences = ((DATA / "paddle-1.8" / name / "__model__").read_bytes() for name in ("mlp", "sentences"))
        self.kinds: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
            "values of a save": (self.files["save.pdparams"], self.load_save),
            "program of a model": (model, lambda data: self.load_model(data, values)),
            "program with its digest": (model, self.load_resealed),
            "values of a model": (values, lambda data: self.load_model(model, data)),
            "program of Paddle": (theirs, lambda data: self.load_theirs(data, weights)),
            "program of Paddle 1.8": (old, lambda data: serial.decode(data) and None),
            "program over sequences": (sentences, lambda data: serial.decode(data) and None),
            "values of Paddle": (weights, lambda data: self.load_theirs(theirs, data)),
            "pickle": (dump_object(nest, 4, checksum=False), self.load_nest),
            "pickle of protocol 2": ((DATA / "paddle-2.6" / "nest_2").read_bytes(), self.load_nest),
            "state of Paddle": ((DATA / "paddle-2.6" / "mlp_training.pdparams").read_bytes(), self.load_state),
            "object": (dump_object(nest), lambda data: self.plain(paddle.load(io.BytesIO(data), return_numpy=True))),
        }  # fmt: skip

        self.before = {
            var.name: np.full(var.shape, 7, var.dtype.np) for var in self.main.list_vars() if var.persistable
        }

    def scope(self) -> static.Scope:
        """A scope in which every variable has a value that no file has."""
        scope = static.Scope()
        for name, value in self.before.items():
            scope.var(name).get_tensor().set(value)
        return scope

    def untouched(self) -> Any:
        """What a refused file must leave as it is: the values in the scope and the program."""
        return self.values(), self.main.version

    def values(self) -> Any:
        scope = static.global_scope()
        names = sorted(scope.local_var_names())
        return [(name, np.array(scope.find_var(name).get_tensor()).tobytes()) for name in names]

    def load_save(self, data: bytes) -> Any:
        (self.folder / "save.pdparams").write_bytes(data)
        static.load(self.main, str(self.folder / "save"))
        return self.values()

    def load_model(self, model: bytes, values: bytes) -> Any:
        program = static.load_inference_model(None, self.exe, model_filename=model, params_filename=values)[0]
        return program.to_string(True), self.values()

    def load_resealed(self, data: bytes) -> Any:
        serial.decode(serial.seal(data.partition(b"\n")[2]))

    def load_theirs(self, model: bytes, values: bytes) -> Any:
        static.load_inference_model(None, self.exe, model_filename=model, params_filename=values)

    def load_nest(self, data: bytes) -> Any:
        paddle.load(io.BytesIO(data))

    def load_state(self, data: bytes) -> Any:
        (self.folder / "state.pdparams").write_bytes(data)
        static.load_program_state(str(self.folder / "state"))
        fluid.load_dygraph(str(self.folder / "state"))

    def plain(self, value: Any) -> str:
        return repr(value)


# ------------------------------------------------------------------------------------------------------------------ limits
class _Watch:
    """Notes the first audit event of code that runs while a file is loaded."""

    def __init__(self) -> None:
        self.on = False
        self.seen = ""
        sys.addaudithook(self.hook)

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self.on and event in WATCHED and not self.seen:
            self.seen = f"{event} {str(args)[:200]}"


def mapped() -> int:
    """Returns the bytes of address space that the process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


@contextmanager
def limited(room: int) -> Iterator[None]:
    """Lets the process map this many bytes more than now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped() + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _too_long(*args: Any) -> None:
    raise TimeoutError


def _overwrites(data: bytes) -> None:
    """Changes a variable, then refuses the file."""
    scope = static.global_scope()
    tensor = scope.find_var(min(scope.local_var_names())).get_tensor()
    tensor.set(np.zeros_like(np.asarray(tensor)))
    raise TstaticError("refused")


def _counts_too_late(data: bytes) -> None:
    """Works without paying for it first."""
    budget.Budget(len(data), 0, 0).worked = 1 << 40


FAULTS: dict[str, Callable[[bytes], Any]] = {
    "memory": lambda data: np.zeros(2 * ROOM, np.uint8) and None,
    "code": lambda data: eval("1"),
    "time": lambda data: all(time.process_time() for _ in itertools.repeat(None)),
    "class": lambda data: {}[0],
    "value": lambda data: random.random(),
    "state": _overwrites,
    "calls": lambda data: all(len(data) for _ in itertools.repeat(None)),
    "unpaid": _counts_too_late,
}
"""Loaders that do what no loader may do, for the test of this test."""


class Unexpected(AssertionError):
    """A file did something else than load as it should, or be refused."""


class Guard:
    """Loads files one by one, each within its limits.

    Args:
        kinds: What a refused file must leave as it is.
        folder: Where a file that did something else is kept.
        counted: Whether calls are counted, too, which takes twice the time.
    """

    def __init__(self, kinds: Kinds, folder: Path, counted: bool = False) -> None:
        # What unknown names would load: modules of ops, and of near names.
        len(OPS)
        near("name", ["names"])
        static.Program.parse_from_text(str(kinds.main))
        with static.scope_guard(kinds.scope()):
            self.whole = {name: load(data) for name, (data, load) in kinds.kinds.items()}
        self.kinds, self.folder, self.counted = kinds, folder, counted
        self.watch = _Watch()
        self.slowest, self.budgets, self.calls = 0.0, [], 0
        self.most_calls = 0
        signal.signal(signal.SIGPROF, _too_long)
        made, guard = budget.Budget.__init__, self

        def noted(self: budget.Budget, *args: Any, **kwargs: Any) -> None:
            made(self, *args, **kwargs)
            guard.budgets.append(self)

        budget.Budget.__init__ = noted  # type: ignore[method-assign]

    def count(self, frame: Any, event: str, arg: Any) -> None:
        self.calls += event in ("call", "c_call")
        if self.calls > self.most_calls:
            sys.setprofile(None)
            raise Unexpected(f"more than {self.most_calls:,} calls")

    def load(self, what: str, data: bytes, load: Callable[[bytes], Any], per_byte: int, expected: Any = None) -> bool:
        """Loads a file; returns whether it was, rather than refused.

        Args:
            what: Names the file.
            data: The file.
            load: Loads it.
            per_byte: Bytes of memory that each of its bytes may cost.
            expected: What a load gives, if anything.
        """
        outcome, loaded = "", False
        self.budgets.clear()
        self.calls, self.most_calls = 0, CALLS + CALLS_PER_BYTE * len(data)
        with static.scope_guard(self.kinds.scope()):
            before = self.kinds.untouched()
            started = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, LONGEST * (3 if self.counted else 1))
            try:
                with limited(per_byte * len(data) + ROOM):
                    self.watch.on = True
                    if self.counted:
                        sys.setprofile(self.count)
                    try:
                        found = load(data)
                        loaded = True
                        outcome = "" if found == expected else "loaded, but not as it was saved"
                    except TstaticError:
                        pass
                    finally:
                        sys.setprofile(None)
                        self.watch.on = False
            except BaseException as error:
                # Not its traceback, which holds what the load made.
                outcome = f"{type(error).__name__}: {error}"[:500]
                self.frames = traceback.extract_tb(error.__traceback__)[-4:]
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            self.slowest = max(self.slowest, time.process_time() - started)
            if not loaded and not outcome and self.kinds.untouched() != before:
                outcome = "refused, but something is not as it was"
        for one in self.budgets:
            if one.worked > one.most_work + budget.STEP * len(data) + budget.WORK:
                outcome = outcome or f"{one.worked:,} units of work, of at most {one.most_work:,}"
        if outcome or self.watch.seen:
            (self.folder / "culprit").write_bytes(data)
            raise Unexpected(
                f"{what} ({len(data):,} bytes): {self.watch.seen or outcome} {getattr(self, 'frames', '')}"
            )
        return loaded


def mutated_files(guard: Guard, count: int, seed: str, fault: str) -> dict[str, list[int]]:
    """Loads files of every kind with some bytes changed."""
    kinds, whole = guard.kinds, guard.whole
    if fault:
        kinds.kinds["pickle"] = kinds.kinds["pickle"][0], FAULTS[fault]
    names = list(kinds.kinds)
    found = {name: [0, 0] for name in names}
    for number in range(count):
        name = names[number % len(names)]
        draw = random.Random(f"{seed} {number}")
        data, load = kinds.kinds[name]
        other = kinds.kinds[draw.choice(names)][0]
        made = mutated(data, other, draw)
        # A second attempt for those that did not change.
        made = mutated(made, other, draw) if made == data else made
        found[name][not guard.load(f"file {number} of seed {seed}, {name}", made, load, PER_BYTE, whole[name])] += 1
    return found


def expensive_files(guard: Guard, count: int, seed: str, fault: str) -> dict[str, list[int]]:
    """Loads files that try to cost far more than their size, each kind in turn; a hundredth of them are large."""
    rows = {"build": (expensive.build, FAULTS[fault])} if fault else expensive.KINDS
    names = list(rows)
    found = {name: [0, 0] for name in names}
    for number in range(count):
        name = names[number % len(names)]
        draw = random.Random(f"{seed} {number}")
        make, load = rows[name]
        size = int(2 ** draw.uniform(8, 20 if number // len(names) % 10 == 9 else 15))
        per_byte = PER_BYTE if name.startswith(("pickle", "header", "tensors")) else PROGRAM_PER_BYTE
        found[name][not guard.load(f"file {number} of seed {seed}, {name}", make(draw, size), load, per_byte)] += 1
    return found


def odd_files(guard: Guard, count: int, seed: str, fault: str) -> dict[str, list[int]]:
    """Loads programs that lack a part or have an absurd number in it: one in so many of them, which the seed chooses."""
    found = {"lacking": [0, 0], "absurd": [0, 0]}
    load = FAULTS[fault] if fault else expensive.load_program
    draw = random.Random(seed)
    for name, data in odd_programs.models().items():
        for how in found:
            for what, make in getattr(odd_programs, how)(data):
                if not draw.randrange(count):
                    found[how][not guard.load(f"{name}, {how}: {what}", make(), load, PROGRAM_PER_BYTE)] += 1
    return found


def main(how: str, count: int, seed: str, folder: Path, fault: str = "") -> dict[str, Any]:
    """Loads files; returns per kind how many were loaded and how many refused.

    Args:
        how: ``mutated``, ``expensive`` or ``odd``.
        count: How many; of odd programs one in so many.
        seed: What they are drawn from.
        folder: An empty folder.
        fault: One of :data:`FAULTS`, which stands in for a reader.

    Raises:
        Unexpected: If one did anything else than load as it was saved, or raise a typed error and change nothing.
    """
    guard = Guard(Kinds(folder), folder, counted=how == "expensive")
    begun, before = time.process_time(), mapped()
    run = {"mutated": mutated_files, "expensive": expensive_files, "odd": odd_files}[how]
    found = run(guard, count, seed, fault)
    seconds = round(time.process_time() - begun, 1)
    return {"kinds": found, "seconds": seconds, "slowest": round(guard.slowest, 3), "kept": mapped() - before}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), *sys.argv[5:])))
