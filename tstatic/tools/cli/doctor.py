"""The command ``doctor``: whether this machine can run what tstatic does, and what to do where it cannot."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import places, static
from tstatic.chips import seen
from tstatic.chips.aot import compile_all
from tstatic.chips.sources import sources
from tstatic.comm.transport import choice, nccl
from tstatic.comm.transport.choice import Choice
from tstatic.comm.transport.nccl_transport import NcclPlaces
from tstatic.devices import cpu_device, of_place
from tstatic.devices.cuda import CudaDevice
from tstatic.display import size
from tstatic.errors import MissingPackageError, TstaticError
from tstatic.fusion.engine import cache
from tstatic.target import Target, of_properties
from tstatic.tools.cli.outcome import ENVIRONMENT, OK, Outcome, Table
from tstatic.version import asked, versions

SECONDS = 15.0
"""A check in another process that takes longer on an idle machine waits for something that does not come."""
NOT_EXECUTED = "not executed"
LEAST_FREE = 100e6
"""With fewer free bytes than this where kernels are kept, writing them will soon fail."""


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: What was looked at.
        status: ``ok``, ``absent`` (optional and not there), ``note`` (worth knowing) or ``broken``.
        detail: What was found.
        remedy: What to do.
    """

    name: str
    status: str
    detail: str
    remedy: str = ""


def doctor(quick: bool = False) -> Outcome:
    """Checks this machine.

    Args:
        quick: Leave out the checks that start other processes: torch, GPUs, Triton, gloo and NCCL.
    """
    checks: list[Callable[[], list[Check]]] = [_cpu, _backend, _cache, _seen]
    if not quick:
        checks += [_torch, _collectives, _triton_compiles, _triton_runs]
    with ThreadPoolExecutor(len(checks)) as pool:
        found = [one for made in pool.map(_guarded, checks) for one in made]
    broken = any(one.status == "broken" for one in found)
    installed = versions()
    parts = (
        Table("", ("", ""), list(installed.items())),
        Table("", ("check", "", "found", "what to do"), [(c.name, c.status, c.detail, c.remedy) for c in found]),
        "Something is broken." if broken else "Nothing is broken.",
    )
    data = {"ok": not broken, "versions": installed, "checks": [asdict(one) for one in found]}
    return Outcome(data, parts, ENVIRONMENT if broken else OK)


def _guarded(check: Callable[[], list[Check]]) -> list[Check]:
    try:
        return check()
    except Exception as error:  # whatever it is, it is a finding
        return [Check(check.__name__.strip("_").replace("_", " "), "broken", f"{type(error).__name__}: {error}")]


# ------------------------------------------------------------------------------------------------------ in this process
def _program() -> tuple[static.Program, Any, static.BuildStrategy]:
    """Returns a small program, its result, and the strategy that makes one kernel of it."""
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        y = paddle.exp(static.data("x", [4]) * 2.0 + 1.0)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    return main, y, strategy


def runs_right(place: str) -> int:
    """Runs a small fused program on a place, compares the result with numpy, and returns how many kernels ran."""
    main, y, strategy = _program()
    compiled = static.CompiledProgram(main, strategy)
    x = np.arange(4, dtype="float32") / 4
    (found,) = static.Executor(place).run(compiled, feed={"x": x}, fetch_list=[y], scope=static.Scope())
    expected = np.exp(2 * x + 1)
    if not np.allclose(found, expected, rtol=1e-5):
        raise AssertionError(f"exp(2 x + 1) is {found}, and should be {expected}")
    return len(compiled.kernels)


def _cpu() -> list[Check]:
    if os.environ.get("TSTATIC_CPU_BACKEND"):
        return [Check("programs on the CPU", "note", "not run: TSTATIC_CPU_BACKEND chooses another device", "unset it")]
    runs_right("cpu")
    return [
        Check("programs on the CPU", "ok", f"a small program gives what numpy gives; {versions()['cpus']} processors")
    ]


def _backend() -> list[Check]:
    name = os.environ.get("TSTATIC_CPU_BACKEND")
    if not name:
        return []
    try:
        cpu_device()
    except TstaticError as error:
        return [Check("TSTATIC_CPU_BACKEND", "broken", str(error).splitlines()[0], "unset it, or see docs/devices.md")]
    return [Check("TSTATIC_CPU_BACKEND", "ok", f"CPU places run on '{name}'")]


def _cache() -> list[Check]:
    own, reason = cache.objection()
    if reason is not None:
        remedy = "set TSTATIC_CACHE_DIR to a folder that only you can write, or mend its owner and mode"
        return [Check("kernel cache", "broken", f"{own} is not used: {reason}", remedy)]
    found = cache.entries()
    free = shutil.disk_usage(own).free
    detail = f"{own}: {len(found)} kernels, {size(sum(info.st_size for _, info in found))}; {size(free)} free"
    if free < LEAST_FREE:
        return [Check("kernel cache", "broken", detail, "free some space, or set TSTATIC_CACHE_DIR to another disk")]
    text = "def value():\n    return 3\n"
    if cache.load(text, "doctor").value() != 3:
        return [Check("kernel cache", "broken", f"{own} gives back other bytes than were written", "look at the disk")]
    return [Check("kernel cache", "ok", detail)]


def _seen() -> list[Check]:
    found = f"{seen.on_chips()} {seen.on_several()}"
    return [Check("GPUs seen so far", "note", found, "docs/gpu_status.md has what was checked, and how")]


# ---------------------------------------------------------------------------------------------------- in other processes
def probe(script: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Runs a script in another process and returns what it printed last, as JSON; ``error`` says why there is nothing."""
    given = dict(os.environ) | dict(environment or {})
    given["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    # Beside other work it takes much longer, and is not broken.
    limit = 3 * SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=given,
            capture_output=True,
            text=True,
            timeout=limit,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {limit:.3g} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines()
        return {"error": said[-1] if said else f"the process ended with status {done.returncode}"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


TORCH = """
import json, torch
import torch.distributed as dist
found = {"version": torch.__version__, "cuda": torch.version.cuda, "gpus": [], "gloo": ""}
for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
    p = torch.cuda.get_device_properties(i)
    facts = ("name", "major", "minor", "multi_processor_count", "total_memory", "L2_cache_size", "shared_memory_per_block_optin",
             "clock_rate", "memory_clock_rate", "memory_bus_width")
    gpu = {"driver": {n: getattr(p, n) for n in facts if hasattr(p, n)}, "free": torch.cuda.mem_get_info(i)[0]}
    gpu["right"] = float((torch.ones(8, device=f"cuda:{i}") * 2).sum()) == 16.0
    found["gpus"].append(gpu)
def ring():
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        one = torch.ones(2)
        dist.all_reduce(one)
        dist.destroy_process_group()
        return "works" if one.tolist() == [1.0, 1.0] else f"gives {one.tolist()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
if dist.is_available() and dist.is_gloo_available():
    found["gloo"] = ring()
print(json.dumps(found))
"""


def _torch() -> list[Check]:
    if find_spec("torch") is None:
        remedy = "pip install 'tstatic[torch]', where GPUs or several processes are wanted"
        return [Check("torch", "absent", "not installed", remedy)]
    found = probe(TORCH)
    if "error" in found:
        return [
            Check(
                "torch", "broken", str(found["error"]), "install torch again; python -c 'import torch' shows the error"
            )
        ]
    checks = [Check("torch", "ok", f"{found['version']}, built for {found['cuda'] or 'the CPU'}")]
    return [*checks, *_gpus(found), _gloo(found["gloo"])]


def _gpus(found: Mapping[str, Any]) -> list[Check]:
    driver = os.path.exists("/proc/driver/nvidia/version")
    if not found["gpus"]:
        if driver and not found["cuda"]:
            return [
                Check(
                    "GPU",
                    "broken",
                    "a driver is loaded, and this torch is built for the CPU",
                    "install a torch for CUDA",
                )
            ]
        if driver:
            return [Check("GPU", "broken", "a driver is loaded, and torch finds no GPU",
                          "compare nvidia-smi, CUDA_VISIBLE_DEVICES and the CUDA version of torch")]  # fmt: skip
        if os.environ.get("CUDA_VISIBLE_DEVICES"):
            return [Check("GPU", "note", "CUDA_VISIBLE_DEVICES is set, and there is no GPU", "unset it")]
        return [Check("GPU", "absent", "none; programs run on the CPU")]
    checks = []
    for i, gpu in enumerate(found["gpus"]):
        chip, said = of_properties(SimpleNamespace(**gpu["driver"])), gpu["driver"]["name"]
        detail = f"{said}, {chip.architecture}, {size(gpu['free'])} of {size(chip.memory_bytes)} free"
        checks.append(
            Check(f"GPU {i}", "ok", detail, _unseen(said))
            if gpu["right"]
            else Check(f"GPU {i}", "broken", detail, "it computes wrongly")
        )
        checks.append(_facts(f"facts of GPU {i}", gpu["driver"], chip))
    answer = probe(
        "import json\nfrom tstatic.tools.cli.doctor import runs_right\nprint(json.dumps({'kernels': runs_right('gpu:0')}))"
    )
    if answer.get("kernels"):
        return [*checks, Check("kernels on the GPU", "ok", "a generated kernel gives what numpy gives")]
    return [
        *checks,
        Check("kernels on the GPU", "broken", str(answer.get("error", "no kernel ran")), "compare torch and triton"),
    ]


_SIZES = {
    "total_memory": "memory",
    "L2_cache_size": "L2 cache",
    "shared_memory_per_block_optin": "shared memory of a program",
}
_CLOCKS = {"clock_rate": "clock", "memory_clock_rate": "memory clock"}


def _facts(name: str, driver: Mapping[str, Any], chip: Target) -> Check:
    """Returns what the driver says of a GPU, and what tstatic makes of it."""
    said = [f"{driver['multi_processor_count']} multiprocessors"]
    said += [f"{word} {size(driver[key])}" for key, word in _SIZES.items() if driver.get(key)]
    said += [f"{word} {driver[key] / 1e3:,.0f} MHz" for key, word in _CLOCKS.items() if driver.get(key)]
    said += [f"memory bus {driver['memory_bus_width']} bits"] if driver.get("memory_bus_width") else []
    reads = f"bandwidth {size(chip.bandwidth)}/s (the {chip.source})" if chip.bandwidth else "bandwidth not known"
    rates = [f"{word} {rate / 1e12:,.1f} TFLOP/s" if rate else f"{word} not known"
             for word, rate in (("16-bit products", chip.matrix_rate), ("float32", chip.vector_rate))]  # fmt: skip
    whose = (
        f"taken for {chip.name}"
        if chip.has_sheet
        else "no data sheet at hand: rates are those of the architecture, at most"
    )
    detail = f"the driver says {', '.join(said)}; {', '.join([reads, *rates])}; {whose}"
    known = chip.bandwidth and chip.matrix_rate
    return Check(name, "ok" if known else "note", detail, "" if known else "shares of the bandwidth are not shown")


def _unseen(name: str) -> str:
    """Returns what to do before a chip is trusted, or nothing if tstatic has run on it."""
    if set(re.split(r"\W+", name.upper())) & set(seen.chips()):
        return ""
    return "tstatic has not run on this chip: check it by make gpu PART=auto"


def _gloo(said: str) -> Check:
    if not said:
        remedy = "install a torch that has it, for several processes"
        return Check("gloo", "absent", "this torch was built without it", remedy)
    if said == "works":
        return Check("gloo", "ok", "an all-reduce works")
    return Check("gloo", "broken", said.splitlines()[0], "check that the host's name resolves, and GLOO_SOCKET_IFNAME")


COLLECTIVES = "import json\nfrom tstatic.tools.cli.doctor import collectives\nprint(json.dumps(collectives()))"


def collectives() -> dict[str, Any]:
    """Returns what moves values here between places and between processes, and what NCCL is and does.

    Of several GPUs each is taken for a place, or for the place of a process; of one, or of the CPU, two places or processes.
    """
    gpus = [of_place(paddle.CUDAPlace(number)) for number in range(places.device_count())]
    here = gpus if len(gpus) > 1 else [*(gpus or [cpu_device()])] * 2
    found: dict[str, Any] = {"asked": choice.asked(), "gpus": len(gpus), "places": _chosen(choice.between_places, here)}
    whose = [choice.identity([device], "here") for device in here]
    found["processes"] = _chosen(choice.between_processes, here[:1], whose)
    try:
        library = nccl.load()
    except MissingPackageError as error:
        return found | {"nccl": "", "without": str(error.received or error.what)}
    found |= {"nccl": library.version, "where": library.where}
    return found | {"test": tested([one for one in gpus if isinstance(one, CudaDevice)], library)}


def _chosen(choose: Callable[..., choice.Choice], *given: Any) -> dict[str, str]:
    """Returns what one of the two functions of ``comm.choice`` chooses: ``name`` and ``why``; or its ``error``."""
    devices, *more = given
    try:
        made = choose(devices, choice.asked(), *more)
    except TstaticError as error:
        return {"error": error.what, "fix": str(error.fix or "")}
    return {"name": made.name, "why": made.why}


def tested(devices: Sequence[CudaDevice], library: nccl.Library) -> str:
    """Connects GPUs by NCCL, which makes their communicators prove themselves.

    Args:
        devices: The GPUs.
        library: NCCL.

    Returns:
        What is wrong; ``"not executed"`` without GPUs; empty if all is well.
    """
    if not devices:
        return NOT_EXECUTED
    made = NcclPlaces(devices, library)
    try:
        made.connect()
        made.close()
    except TstaticError as error:
        return f"{error.what}: {error.received}"
    return ""


def _collectives() -> list[Check]:
    if find_spec("torch") is None:
        alone = Choice("host", "the places share the host's memory; several processes need torch")
        return [Check("collectives", "ok", f"between places {alone}")]
    found = probe(COLLECTIVES)
    if "error" in found:
        return [Check("collectives", "broken", str(found["error"]), "see docs/many_gpus.md, and set FLAGS_collectives")]
    return [_choices(found), _nccl(found)]


def _choices(found: Mapping[str, Any]) -> Check:
    """Returns what ``FLAGS_collectives`` chooses, and why."""
    said = []
    for between in ("places", "processes"):
        one = found[between]
        text = one.get("error") or f"{one['name']}, since {one['why']}"
        # A single process cannot try what connects several.
        said.append(
            f"between {between} {text}"
            + f" ({NOT_EXECUTED} here)" * (between == "processes" and one.get("name") == "nccl")
        )
    refused = [found[between]["fix"] for between in ("places", "processes") if "error" in found[between]]
    # NCCL may connect processes though it cannot connect places.
    status = "broken" if len(refused) == 2 else "ok"
    return Check(
        "collectives",
        status,
        f"FLAGS_collectives={found['asked']}: {'; '.join(said)}",
        refused[0] if status == "broken" else "",
    )


def _nccl(found: Mapping[str, Any]) -> Check:
    gpus = found["gpus"]
    if not found["nccl"]:
        several = "broken" if gpus > 1 else "absent"
        remedy = "install torch for CUDA; until then the GPUs' sums go through the host's memory" if gpus > 1 else ""
        return Check("NCCL", several, f"cannot be loaded: {found['without']}", remedy)
    which = f"{found['nccl']} ({found['where']})"
    if found["test"] == NOT_EXECUTED:
        return Check("NCCL", "note", f"{which}: {NOT_EXECUTED}, since there is no GPU")
    if found["test"]:
        remedy = "set FLAGS_collectives=gloo (processes) or host (places); NCCL_DEBUG=INFO says what NCCL does"
        return Check("NCCL", "broken", f"{which}: {found['test']}", remedy)
    of = "a communicator of one GPU passes its test" if gpus == 1 else f"communicators of {gpus} GPUs pass their test"
    more = f"; several GPUs: {NOT_EXECUTED} here" * (gpus == 1)
    return Check("NCCL", "ok", f"{which}: {of}{more}")


def _triton_compiles() -> list[Check]:
    if find_spec("triton") is None:
        return [Check("Triton", "absent", "not installed", "pip install 'tstatic[gpu]', for generated kernels")]
    main, y, strategy = _program()
    (kernel,) = static.CompiledProgram(main, strategy).explain([y]).kernels
    (report,) = compile_all(dict(sources(kernel)), (90,), workers=1, sass=(), timeout=SECONDS)
    if report.error:
        detail = report.error.splitlines()[0]
        return [Check("Triton compiles", "broken", detail, "unset TRITON_PTXAS_PATH, or install triton again")]
    return [Check("Triton compiles", "ok", f"triton {report.triton}: a kernel for sm_90 in {report.seconds:.1f} s")]


def _triton_runs() -> list[Check]:
    if find_spec("triton") is None or find_spec("torch") is None:
        return []
    script = "import json\nfrom tstatic.tools.cli.doctor import runs_right\nprint(json.dumps({'kernels': runs_right('cpu')}))"
    answer = probe(script, {"TSTATIC_CPU_BACKEND": "interpret"})
    if answer.get("kernels"):
        return [Check("Triton's interpreter", "ok", "a generated kernel gives what numpy gives")]
    remedy = f"compare the versions: tstatic asks for {asked('torch')} and {asked('triton')}"
    return [Check("Triton's interpreter", "broken", str(answer.get("error", "no kernel ran")), remedy)]
