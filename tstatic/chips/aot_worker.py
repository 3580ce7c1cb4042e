"""Compiles kernels in a process of its own, run by path: jobs are lines of JSON on stdin, answers lines of JSON on stdout.

It may run under another interpreter than tstatic does, so it imports the standard library and triton alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any


def load(text: str, folder: Path) -> ModuleType:
    """Imports a kernel's module; Triton reads the source of its functions from the file."""
    name = "kernel_" + hashlib.sha256(text.encode()).hexdigest()
    if name in sys.modules:
        return sys.modules[name]
    path = folder / f"{name}.py"
    if not path.exists():
        staged = folder / f"{name}.{os.getpid()}"
        staged.write_text(text, encoding="utf-8")
        staged.replace(path)
    spec = importlib.util.spec_from_file_location(name, path)
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


def describe(error: BaseException) -> str:
    """Returns the error and what caused it, without the frames of this file and of Triton."""
    lines: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(lines) < 5:
        lines.append("".join(traceback.format_exception_only(cause)).strip())
        cause = cause.__cause__
    return "\n".join(lines)


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
        try:
            answer(build(job, folder))
        except (Exception, SystemExit) as error:
            answer({"error": describe(error)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
