"""Loads mutated files of every kind, in one process of limited memory: ``python -m tests.helpers.hostile COUNT SEED FOLDER``.

Prints a JSON object: how many files of each kind were loaded and how many refused, seconds of processor time, and how many bytes
of address space stayed behind; the first file that did something else ends the process with its kind and number, from which it
can be made again.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import TstaticError, near
from tstatic.ir import serial
from tstatic.ir.opdef import OPS
from tstatic.runtime.objects import dump_object

DATA = Path(__file__).parents[1] / "data"
ROOM = 32 << 20
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


FAULTS: dict[str, Callable[[bytes], Any]] = {
    "memory": lambda data: np.zeros(2 * ROOM, np.uint8) and None,
    "code": lambda data: eval("1"),
    "time": lambda data: all(time.process_time() for _ in itertools.repeat(None)),
    "class": lambda data: {}[0],
    "value": lambda data: random.random(),
}
"""Loaders that do what no loader may do, for the test of this test."""


def main(count: int, seed: str, folder: Path, fault: str = "") -> dict[str, Any]:
    """Loads mutated files; returns per kind how many were loaded and how many refused.

    Args:
        count: How many.
        seed: What the mutations are drawn from.
        folder: An empty folder.
        fault: One of :data:`FAULTS`, which stands in for the reader of pickles.

    Raises:
        AssertionError: If one did anything else than load as it was saved, or raise a typed error.
    """
    kinds = Kinds(folder)
    whole = {}
    for name, (data, load) in kinds.kinds.items():
        with static.scope_guard(static.Scope()):
            whole[name] = load(data)
    if fault:
        kinds.kinds["pickle"] = kinds.kinds["pickle"][0], FAULTS[fault]
    # What unknown names would load: modules of ops, and of near names.
    len(OPS)
    near("name", ["names"])
    watch = _Watch()
    signal.signal(signal.SIGPROF, _too_long)
    names = list(kinds.kinds)
    found = {name: [0, 0] for name in names}
    begun, slowest, before = time.process_time(), 0.0, mapped()
    for number in range(count):
        name = names[number % len(names)]
        draw = random.Random(f"{seed} {number}")
        data, load = kinds.kinds[name]
        other = kinds.kinds[draw.choice(names)][0]
        made = mutated(data, other, draw)
        # A second attempt for those that did not change.
        made = mutated(made, other, draw) if made == data else made
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        outcome = ""
        try:
            with static.scope_guard(static.Scope()), limited(4 * len(made) + ROOM):
                watch.on = True
                try:
                    if load(made) != whole[name] and made != data:
                        outcome = "loaded, but not as it was saved"
                    found[name][0] += 1
                except TstaticError:
                    found[name][1] += 1
                finally:
                    watch.on = False
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        slowest = max(slowest, time.process_time() - started)
        if outcome or watch.seen:
            (folder / "culprit").write_bytes(made)
            raise AssertionError(f"file {number} of seed {seed}, {name}: {watch.seen or outcome}")
    seconds = round(time.process_time() - begun, 1)
    return {"kinds": found, "seconds": seconds, "slowest": round(slowest, 3), "kept": mapped() - before}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])))
