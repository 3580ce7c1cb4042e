"""Compiles kernels in a process of its own, run by path: jobs are lines of JSON on stdin, answers lines of JSON on stdout.

A job asks either for the figures of a kernel, or for what a launch will look up in Triton's cache. The process may run under
another interpreter than tstatic does, so this file imports the standard library and triton alone; scripts load it by its path, too.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import importlib.util
import io
import json
import linecache
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

LIMIT = 10.0
"""How many times its limit a job may compute before the system ends the process: where nobody is left who watches it."""


def load(text: str, folder: Path, path: str = "") -> ModuleType:
    """Imports a kernel's module.

    Args:
        text: Its source.
        folder: Where the file is written from which Triton reads the source of its functions.
        path: The file that has the text already, which debuggers and profilers are told of; it is not read.
    """
    data = text.encode("utf-8", "backslashreplace")
    name = "kernel_" + hashlib.sha256(data).hexdigest()
    if name in sys.modules:
        return sys.modules[name]
    if path:
        module = ModuleType(name)
        module.__file__ = path
        # Without a time, it is never compared with the disk.
        linecache.cache[path] = (len(data), None, data.decode().splitlines(keepends=True), path)
        sys.modules[name] = module
        try:
            exec(compile(data, path, "exec"), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
        return module
    file = folder / f"{name}.py"
    if not file.exists():
        staged = folder / f"{name}.{os.getpid()}"
        staged.write_bytes(data)
        staged.replace(file)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def disassemble(cubin: bytes) -> str:
    """Returns the machine code as text, by the tool that comes with triton."""
    import triton

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.nvdisasm.path, "-c", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"nvdisasm exited with {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout


def read_rounding(ttir: str, ptx: str) -> dict[str, Any]:
    """Returns what decides the last bits of results: read here, as a kernel's text is long.

    Args:
        ttir: The kernel in Triton's own form: functions of a library, and sums with the length of the axis that they add up.
        ptx: The kernel, in which products and sums may have become one instruction.
    """
    functions = re.findall(r"= math\.(\w+) [^:\n]*: (?:tensor<[\dx]*x)?(\w+)", ttir)
    reductions = re.findall(
        r'"tt\.reduce"\([^)]*\) <\{axis = (\d+) : i32[^}]*\}> \(\{(.*?)\}\) : \(tensor<([\dx]+)x', ttir, re.S
    )
    return {
        "fused": dict(Counter(re.findall(r"\bfma\.[.\w]+", ptx))),
        "functions": sorted({f"{name} {dtype}" for name, dtype in functions}),
        "summed": [int(shape.split("x")[int(axis)]) for axis, text, shape in reductions if "addf" in text],
    }


def build(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Compiles one kernel for one chip."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(load(job["text"], folder), job["function"])
    names = list(function.arg_names)
    types, constants = job["signature"], job["constants"]
    known = {*types, *constants}
    if known != set(names):
        missing, foreign = sorted(set(names) - known), sorted(known - set(names))
        raise TypeError(f"parameters without type or constant: {missing}; given but not in the function: {foreign}")
    # Both versions want every parameter in the signature, and refer to constants and attributes by position.
    source = ASTSource(
        fn=function,
        signature={n: types.get(n, "constexpr") for n in names},
        constexprs={(names.index(n),): value for n, value in constants.items()},
        attrs={(names.index(n),): [["tt.divisibility", 16]] for n in job["divisible"]},
    )
    # Options are part of Triton's cache key.
    options = {"num_warps": job["num_warps"], "num_stages": job["num_stages"], "enable_fp_fusion": job["contract"]}
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()) as log:
        kernel = triton.compile(source, target=GPUTarget("cuda", job["chip"], 32), options=options)
    seconds = time.perf_counter() - start
    # Megabytes of text for hundreds of kernels: only where something is read from it.
    told = "tt.dot " in kernel.asm["ttir"] or "ttng.async_tma_" in kernel.asm["ttgir"]
    return {
        "seconds": seconds,
        "ptx": kernel.asm["ptx"],
        "log": log.getvalue(),
        "rounding": read_rounding(kernel.asm["ttir"], kernel.asm["ptx"]),
        "shared": kernel.metadata.shared,
        "tensor_memory": getattr(kernel.metadata, "tmem_size", None) or 0,
        "scratch": getattr(kernel.metadata, "global_scratch_size", None) or 0,
        "forms": {name: kernel.asm[name] for name in ("ttir", "ttgir")} if told else None,
        "parameters": [n for n in names if n in types],
        "sass": disassemble(kernel.asm["cubin"]) if job["sass"] else None,
    }


# ------------------------------------------------------------------------------------------------------------- launches
class _Dtype:
    """What Triton reads of a tensor's type, without torch."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Dtype) and other.name == self.name


_DTYPES: dict[str, _Dtype] = {}


class Pointer:
    """Stands where a tensor will.

    Args:
        dtype: Its type, by torch's name.
        odd: Whether it begins between two multiples of 16 bytes.
    """

    def __init__(self, dtype: str, odd: bool = False) -> None:
        self.dtype = _DTYPES.setdefault(dtype, _Dtype(dtype))
        self._begin = 1 if odd else 0

    def data_ptr(self) -> int:
        """Returns what Triton asks for: it looks whether 16 divides it."""
        return self._begin

    @staticmethod
    def ptr_range() -> int:
        return 0


class Chip:
    """Triton's driver of a chip that this process does not touch.

    Args:
        capability: Its compute capability, times 10.
    """

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        """Returns a number by which Triton tells chips apart."""
        capability: int = self.target.arch
        return capability

    @staticmethod
    def get_current_stream(device: int) -> int:
        return 0


def use_chip(capability: int) -> None:
    """Makes a chip the one that this process compiles for."""
    from triton.runtime import driver

    driver.set_active(Chip(capability))


def values_of(arguments: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Returns arguments of a launch, made from ``{"pointer": "float32"}``, perhaps with ``odd``, and ``{"value": 5}``."""
    return [Pointer(one["pointer"], one.get("odd", False)) if "pointer" in one else one["value"] for one in arguments]


def alike(job: Mapping[str, Any]) -> str:
    """Returns what is the same for launches that Triton compiles once: of a number that it is 1, that 16 divides it, its width."""
    shapes = [
        [v == 1, isinstance(v, float), v % 16 == 0, abs(v) < 2**31] if (v := one.get("value")) is not None else one
        for one in job["arguments"]
    ]
    rest = [job["text"], job["function"], job["constants"], job["options"]]
    return hashlib.sha256(json.dumps([shapes, *rest]).encode()).hexdigest()


class _Keys:
    """In the place of Triton's own block of compilations that run beside: it takes down what is to be compiled, and drops it."""

    key = ""

    def submit(self, key: str, compile_now: Callable[[], Any], use: Callable[[Any], None]) -> None:
        self.key = key


def entry_of(function: Any, job: Mapping[str, Any]) -> tuple[str, bool]:
    """Returns the name under which Triton's cache has, or will have, what a launch runs, and whether it is there.

    Triton itself makes the key, as the launch will, for the chip of its active driver. Nothing is compiled.

    Args:
        function: Triton's function.
        job: The launch: ``arguments``, ``constants`` and ``options``.
    """
    from triton.runtime import _async_compile
    from triton.runtime.cache import get_cache_manager

    seen = _Keys()

    def ask() -> Any:
        _async_compile.active_mode.set(seen)
        return function.warmup(*values_of(job["arguments"]), grid=(1,), **job["constants"], **job["options"])

    # Triton's setting is one of the context: other threads, and the user's own, go on as they were.
    made = contextvars.copy_context().run(ask)
    if made is not None:  # this process has launched it
        return made.hash, True
    if not seen.key:  # a hook of the user's refused it
        return "", True
    entry = hashlib.sha256(seen.key.encode()).hexdigest()
    name = f"{function.__name__[:150]}.json"
    found = (get_cache_manager(entry).get_group(name) or {}).get(name)
    return entry, found is not None and os.path.exists(found)


def compile_launch(job: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Compiles what a launch will look up in Triton's cache, for the chip of the active driver: the launch finds it there.

    Args:
        job: ``text`` of the module, its ``path`` if it has one, ``function``, ``arguments``, ``constants``, ``options``, and
            whether its ``launcher`` is wanted: the C code that Triton 3.6 has gcc make for each signature.
        folder: For files of modules.
    """
    start = time.perf_counter()
    function = getattr(load(job["text"], folder, job.get("path", "")), job["function"])
    made = function.warmup(*values_of(job["arguments"]), grid=(1,), **job["constants"], **job["options"])
    answer = {"entry": made.hash, "compile_s": time.perf_counter() - start, "launcher": "", "seconds": 0.0}
    if job.get("launcher"):
        answer["launcher"] = _make_launcher(made)
    answer["seconds"] = time.perf_counter() - start
    return answer


def _make_launcher(made: Any) -> str:
    """Makes the launcher, if this version of Triton has one for each signature; returns why not, empty if it lies in the cache."""
    from triton.backends.nvidia import driver

    if not hasattr(driver, "make_launcher"):
        return "this version of triton needs none"
    try:
        driver.CudaLauncher(made.src, made.metadata)
    except (
        Exception
    ) as error:  # no C compiler, no headers of Python, no library of the driver: the launch will say so itself
        return describe(error)
    return ""


def describe(error: BaseException) -> str:
    """Returns the error and what caused it, without the frames of this file and of Triton."""
    lines: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(lines) < 5:
        lines.append("".join(traceback.format_exception_only(cause)).strip())
        cause = cause.__cause__
    return "\n".join(lines)


def _limit(seconds: float) -> None:
    """Has the system end this process should the next job compute for much longer than its watcher would let it."""
    if seconds > 0:
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        soft = int(used.ru_utime + used.ru_stime + LIMIT * seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soft if most == resource.RLIM_INFINITY else min(soft, most), most))


def main(folder: Path) -> None:
    """Says which triton this is, then answers jobs until stdin ends."""
    # Kernels and compiler passes may print or read: they get stderr and nothing, the conversation keeps its own files.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    jobs = os.fdopen(os.dup(0), "r", encoding="utf-8")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        import triton
        import triton.compiler
    except Exception as error:
        answer({"error": describe(error)})
        return
    answer({"triton": triton.__version__})
    for line in jobs:
        job = json.loads(line)
        _limit(job.get("limit", 0.0))
        try:
            if "arguments" in job:
                use_chip(job["chip"])
                answer(compile_launch(job, folder))
            else:
                answer(build(job, folder))
        except (Exception, SystemExit) as error:
            answer({"error": describe(error)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
