"""The registry of ``FLAGS_*``: typed process-wide switches, set by environment variables or ``set_flags``."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal

from tstatic.errors import FlagTypeError, FlagValueError, NotFoundError, near
from tstatic.locks import rlock
from tstatic.logs import warn_once

__all__ = [
    "FILL",
    "NUMERICS",
    "REGISTRY",
    "Flag",
    "fill_byte",
    "filling_memory",
    "flag",
    "get_flags",
    "key",
    "numerics",
    "set_flags",
    "using_numerics",
    "version",
]

Value = bool | int | float | str

NUMERICS = ("default", "strict")
"""The values of ``FLAGS_numerics``, and of what a CompiledProgram says instead."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """What a flag is.

    Attributes:
        name: With its prefix ``FLAGS_``.
        type: ``bool``, ``int``, ``float`` or ``str``.
        default: The value when neither the environment nor ``set_flags`` gives one.
        help: What it does, as the documentation prints it.
        compiled: The flag changes what a program is compiled to, so it is part of the executor's cache key.
        effect: False for a flag that exists only so that Paddle scripts run.
        check: Returns what would be accepted when a value of the right type is not, else the empty string.
    """

    name: str
    type: type[bool] | type[int] | type[float] | type[str]
    default: Value
    help: str
    compiled: bool = False
    effect: bool = True
    check: Callable[[Any], str] = lambda value: ""


def _one_of(*choices: str) -> Callable[[str], str]:
    return lambda value: "" if value in choices else "one of " + ", ".join(map(repr, choices))


def _one_of_numbers(*choices: int) -> Callable[[int], str]:
    return lambda value: "" if value in choices else "one of " + ", ".join(map(str, choices))


def _at_least(low: float) -> Callable[[float], str]:
    return lambda value: "" if value >= low else f"a number >= {low}"


def _fraction(value: float) -> str:
    return "" if 0.0 <= value <= 1.0 else "a number from 0 to 1"


def _positive(value: float) -> str:
    return "" if value > 0.0 and math.isfinite(value) else "a finite number of seconds > 0"


def _factor(value: float) -> str:
    return "" if value >= 1.0 and math.isfinite(value) else "a finite number >= 1"


def _device_list(value: str) -> str:
    fits = all(part.strip().isdecimal() for part in value.split(",")) if value.strip() else True
    return "" if fits else "device numbers separated by commas, such as '0,1', or ''"


_FLAGS = (
    Flag(
        "FLAGS_cpu_fallback",
        bool,
        False,
        "A GPU place that this machine does not have is replaced by CPUPlace, and a warning says so once. "
        "Off: using it raises DeviceError.",
    ),
    Flag(
        "FLAGS_check_nan_inf",
        bool,
        False,
        "Every run looks for NaN and infinities in the outputs of its operators and raises NumericsError, which says whether "
        "a fed value, a variable or an operator was bad first, with the ranges of its inputs. Slower: every value is read "
        "once more, and no operator overwrites its input.",
        compiled=True,
    ),
    Flag(
        "FLAGS_init_allocated_mem",
        bool,
        False,
        "Every run first fills the memory of its temporaries with bytes of 255: NaN in floating-point values, -1 in whole numbers. "
        "What an operator or a kernel leaves unwritten then shows in the results; otherwise it may hold what an earlier run put "
        "there. Results of correct operators do not change. Each run writes that memory once more. (Paddle fills memory when it "
        "allocates it, with other bytes.)",
    ),
    Flag(
        "FLAGS_check_rank_gradients",
        int,
        -1,
        "Before gradients are summed over several places or processes, each looks for NaN and infinity in its own. If one finds "
        "any, all raise RankNumericsError, which names it, and no variable changes. 1: always; 0: never, so that the sum, and with "
        "it every parameter, becomes NaN; -1: where memory is the host's, as on CPU places, which costs next to nothing. On a GPU "
        "it takes a pass over the gradients, and the host waits for its result. Programs with dynamic loss scaling skip such "
        "steps by themselves and are not looked at.",
        compiled=True,
        check=_one_of_numbers(-1, 0, 1),
    ),
    Flag(
        "FLAGS_numerics",
        str,
        "default",
        "'strict': a fused program gives bit for bit what the unfused one gives. 'default': a fused program may keep "
        "more precision between operators than the unfused one, and a CPU computes float16 of mixed precision in float32. "
        "In all else, where no kernels are generated, both are the same. Under 'strict' "
        "every chip gets the launches that an H200 gets: how a sum is cut does not depend on the chip. What a CompiledProgram is "
        "given as numerics= beats the flag.",
        compiled=True,
        check=_one_of(*NUMERICS),
    ),
    Flag(
        "FLAGS_max_recompiles",
        int,
        0,
        "How often an Executor compiles a program again, after the first time, before it raises an error that says what changed "
        "each time (Executor.compilations has it, too); 0 sets no limit.",
        check=_at_least(0),
    ),
    Flag(
        "FLAGS_plan_cache_bytes",
        int,
        1 << 31,
        "Bytes of the host that the plans of an Executor may keep, one for each size of a feed; beyond, those that were not used "
        "for longest are removed, and compiled again when their sizes return. Temporaries do not count: plans take turns in one "
        "arena. A plan of a small net takes about 0.1 to 1 MB (Executor.plans says how many there are, and their bytes).",
        check=_at_least(1),
    ),
    Flag(
        "FLAGS_plan_any_size",
        bool,
        True,
        "On CPU places, plan a program for feeds of any size when it is fed a second size: a new one then costs about 0.3 of a "
        "compilation. A size that ran 64 times gets a plan of its own, which is up to a third faster where steps take less than a "
        "millisecond. Results have the same bits. False: a plan of its own for every size.",
    ),
    Flag(
        "FLAGS_step_timeout_s",
        float,
        60.0,
        "Seconds after which a step of a parallel run in which one replica or rank stands still is given up, with an "
        "error that names it. Runs on one place do not look at it.",
        check=_positive,
    ),
    Flag(
        "FLAGS_rendezvous_timeout_s",
        float,
        300.0,
        "Seconds that the processes of a distributed run have to find each other; then an error names the missing ones.",
        check=_positive,
    ),
    Flag(
        "FLAGS_failure_grace_s",
        float,
        10.0,
        "Seconds after which a process that does not learn of another rank's failure in a collective is ended (code 1).",
        check=_positive,
    ),
    Flag(
        "FLAGS_load_limit_factor",
        float,
        1.0,
        "What reading a file may cost, as a multiple of the usual limits (docs/files.md): memory and work for each of its bytes, "
        "and the bytes that a packed file unpacks to. Raise it for a file you trust that a LoadLimitError refuses.",
        check=_factor,
    ),
    Flag(
        "FLAGS_max_line_bytes",
        int,
        16 << 20,
        "Bytes that a line of a data set's file may have; a longer one is an error, so that a packed file or one without lines "
        "does not fill the memory. Reading a line takes about twenty times its bytes.",
        check=_at_least(1),
    ),
    Flag(
        "FLAGS_selected_gpus",
        str,
        "",
        "The GPUs that cuda_places() returns, as numbers separated by commas, counted after CUDA_VISIBLE_DEVICES. "
        "Empty: all of them.",
        check=_device_list,
    ),
    Flag(
        "FLAGS_eager_delete_tensor_gb",
        float,
        0.0,
        "Accepted for Paddle scripts, without effect: there is no garbage collection to tune. The memory plan, made "
        "before the run, reuses the place of every dead value; BuildStrategy.memory_optimize = False turns that off.",
        effect=False,
    ),
    Flag(
        "FLAGS_max_inplace_grad_add",
        int,
        0,
        "Accepted for Paddle scripts, without effect: append_backward adds the gradients of a variable with several "
        "uses by one sum operator, and BuildStrategy.enable_addto does not wait for this flag.",
        effect=False,
        check=_at_least(0),
    ),
    Flag(
        "FLAGS_cuda_graph",
        str,
        "auto",
        "Whether a GPU replays what no step interrupts as a CUDA graph: auto, from the third run on; off; check: the second run "
        "makes the calls and launches the graph from the same values, compares bits, and says where they differ.",
        compiled=True,
        check=_one_of("auto", "off", "check"),
    ),
    Flag(
        "FLAGS_collectives",
        str,
        "auto",
        "What moves values between GPUs: nccl, where each place is a GPU of its own and, of several processes, each has one; gloo "
        "between processes, through the host's memory; host, which also adds the arrays of the places of a process there; auto: "
        "nccl where it can be, else the devices themselves in one process and gloo between several. What was chosen, and why, "
        "stands in explain() and in the log dist. nccl where it cannot be is an error of the first run.",
        compiled=True,
        check=_one_of("auto", "nccl", "gloo", "host"),
    ),
    Flag(
        "FLAGS_collectives_in_graph",
        bool,
        False,
        "Between processes of one GPU each that NCCL connects, collectives are captured in the CUDA graphs of a step instead of "
        "ending them, so that the host launches a step in two graphs. Off until it has been seen on two GPUs. It does nothing "
        "between the places of one process, where NCCL may hang in graphs, nor where NCCL does not move the values.",
        compiled=True,
    ),
    Flag(
        "FLAGS_fuse_parameter_memory_size",
        float,
        -1.0,
        "Megabytes (2 ** 20 bytes) of gradients in one all-reduce of a data-parallel run; a larger gradient goes in several. 0: "
        "one for each gradient. -1: what fleet's fuse_grad_size_in_MB says, else 25 on devices whose work runs late, where sums "
        "run beside the backward part, and over several processes; places of one process on the CPU sum all at once, since more "
        "sums took as much processor time and made a step of a small net 5 % longer. Where there is a size, the first all-reduce "
        "ends with the gradient that fills 1 MB, and the last one is 1 MB, or the last gradient.",
        compiled=True,
        check=_at_least(-1),
    ),
    Flag(
        "FLAGS_fuse_parameter_groups_size",
        int,
        1,
        "Least number of gradients in one all-reduce of a data-parallel run.",
        compiled=True,
        check=_at_least(1),
    ),
    Flag(
        "FLAGS_cpu_deterministic",
        bool,
        False,
        "Accepted for Paddle scripts, without effect: CPU runs are deterministic, from any thread and for any number of threads, "
        "unless FLAGS_keep_blas_threads is on.",
        effect=False,
    ),
    Flag(
        "FLAGS_keep_blas_threads",
        bool,
        False,
        "Matrix products of numpy keep the number of threads that you gave them (OPENBLAS_NUM_THREADS, threadpoolctl). Off: from "
        "the first use of a CPU place on, every product of the process, your own included, takes one thread, and tstatic's "
        "threads share the work. On: results may depend on the number of threads and on the thread that runs, and threads that "
        "run programs at the same time compete for the cores.",
    ),
    Flag(
        "FLAGS_allow_tf32",
        bool,
        False,
        "Products and convolutions of float32, those inside of fused attentions too, may be computed in TF32 on a GPU, which keeps "
        "10 bits of the mantissa. torch's own settings are as before when a run ends. The CPU has no TF32: nothing changes there.",
        compiled=True,
    ),
    Flag(
        "FLAGS_cudnn_deterministic",
        bool,
        False,
        "Only deterministic algorithms of cuDNN are used on a GPU. The CPU has no others, so nothing changes there.",
        compiled=True,
    ),
    Flag(
        "FLAGS_fraction_of_gpu_memory_to_use",
        float,
        0.92,
        "Accepted for Paddle scripts, without effect: the memory plan is exact, so nothing is reserved beyond it.",
        effect=False,
        check=_fraction,
    ),
    Flag(
        "FLAGS_allocator_strategy",
        str,
        "auto_growth",
        "Accepted for Paddle scripts, without effect: each plan has one arena, there is no allocator to choose.",
        effect=False,
        check=_one_of("auto_growth", "naive_best_fit", "thread_local"),
    ),
    Flag(
        "FLAGS_sync_nccl_allreduce",
        bool,
        True,
        "Accepted for Paddle scripts, without effect: a step waits for an all-reduce where its result is used.",
        effect=False,
    ),
    Flag(
        "FLAGS_use_mkldnn",
        bool,
        False,
        "Accepted for Paddle scripts, without effect: CPU operators run on numpy.",
        effect=False,
    ),
    Flag(
        "FLAGS_USE_STANDALONE_EXECUTOR", bool, True, "Accepted for Paddle scripts, without effect: there is one executor.",
        effect=False,
    ),
    Flag(
        "FLAGS_call_stack_level", int, 1,
        "Which frames Python prints for an uncaught error of tstatic: 0 and 1 your own, 2 all of them.",
    ),
)  # fmt: skip

# name -> Flag, in the order of the documentation.
REGISTRY: Mapping[str, Flag] = {one.name: one for one in _FLAGS}

# Bumped by every change, so that "has anything changed?" is one comparison of integers.
version: int = 0
_lock = rlock()
_values: dict[str, Value] = {}  # replaced, never written to: readers need no lock
_key: tuple[Value, ...] = ()

_TRUE = frozenset({"1", "true", "yes", "on", "t", "y"})
_FALSE = frozenset({"0", "false", "no", "off", "f", "n", ""})


def flag(name: str) -> Any:
    """Returns the value of one flag; for internal use, so an unknown name is a plain ``KeyError``."""
    if not _values:
        _load()
    return _values[name]


_numerics: ContextVar[str | None] = ContextVar("numerics", default=None)


def numerics() -> str:
    """Returns the numerics in force: that of the CompiledProgram at work, or the flag's."""
    chosen = _numerics.get()
    return str(flag("FLAGS_numerics")) if chosen is None else chosen


GraphMode = Literal["auto", "off", "check"]
"""What ``FLAGS_cuda_graph`` may be; its description says what each does."""


def graph_mode() -> GraphMode:
    """Returns whether steps are captured as graphs."""
    mode: GraphMode = flag("FLAGS_cuda_graph")
    return mode


@contextlib.contextmanager
def using_numerics(chosen: str | None) -> Iterator[None]:
    """Compiles and runs what is inside under some numerics; ``None`` leaves it to the flag.

    A context variable: replicas' threads, which run in copies of the caller's context, see it, and other programs' threads do not.
    """
    token = _numerics.set(chosen)
    try:
        yield
    finally:
        _numerics.reset(token)


FILL = 255
"""The byte that ``FLAGS_init_allocated_mem`` fills memory with."""

filling: ContextVar[int | None] = ContextVar("filling", default=None)
"""The byte that a check fills memory with, whatever the flag says."""

memory_is_filled: bool = False
"""``FLAGS_init_allocated_mem``, for each run to look at without a call."""


def fill_byte() -> int | None:
    """Returns the byte that memory of temporaries is filled with before a run; ``None`` leaves it as it is."""
    chosen = filling.get()
    return chosen if chosen is not None else FILL if flag("FLAGS_init_allocated_mem") else None


@contextlib.contextmanager
def filling_memory(byte: int) -> Iterator[None]:
    """Fills memory of temporaries with a byte before each run inside, whatever the flag says; seen by replicas' threads."""
    token = filling.set(byte)
    try:
        yield
    finally:
        filling.reset(token)


def key() -> tuple[Value, ...]:
    """Returns the values of all flags that change what a program is compiled to; part of the executor's cache key."""
    if not _values:
        _load()
    return _key


def key_names() -> tuple[str, ...]:
    """Returns the names that belong to the values of ``key()``, in the same order."""
    return tuple(one.name for one in _FLAGS if one.compiled)


def set_flags(flags: Mapping[str, Any]) -> None:
    """Sets flags for this process; either all of them are set or, after an error, none.

    Args:
        flags: Names (``FLAGS_...``) and values. A bool flag also takes 0 and 1, a float flag also an int.

    Raises:
        FlagTypeError: ``flags`` is not a dict, or a value is of the wrong type (a ``TypeError``).
        FlagValueError: A value is out of range (a ``ValueError``).
        NotFoundError: There is no flag of that name (a ``ValueError``).

    Example:
        >>> paddle.set_flags({"FLAGS_check_nan_inf": True})
        >>> paddle.get_flags("FLAGS_check_nan_inf")
        {'FLAGS_check_nan_inf': True}
        >>> paddle.set_flags({"FLAGS_check_nan_inf": False})
    """
    if not isinstance(flags, dict):
        raise FlagTypeError(
            "set_flags takes a dict of flag names and values", expected="dict, such as {'FLAGS_check_nan_inf': True}",
            received=_described(flags), fix="write paddle.set_flags({'FLAGS_name': value})",
        )  # fmt: skip
    _update({name: _converted(_lookup(name), value) for name, value in flags.items()})


def get_flags(flags: str | list[str] | tuple[str, ...]) -> dict[str, Value]:
    """Returns the values of one or several flags by name.

    Raises:
        FlagTypeError: ``flags`` is neither a name nor a list or tuple of names (a ``TypeError``).
        NotFoundError: There is no flag of that name (a ``ValueError``).
    """
    if not isinstance(flags, str | list | tuple):
        raise FlagTypeError(
            "get_flags takes the name of a flag, or a list or tuple of names",
            expected="str, list or tuple",
            received=_described(flags),
            fix="write paddle.get_flags('FLAGS_name') or paddle.get_flags(['FLAGS_one', 'FLAGS_two'])",
        )
    names = [flags] if isinstance(flags, str) else flags
    return {_lookup(name).name: flag(name) for name in names}


def _lookup(name: object) -> Flag:
    if not isinstance(name, str):
        raise FlagTypeError(
            "the name of a flag is a text",
            expected="str, such as 'FLAGS_check_nan_inf'",
            received=_described(name),
            fix="write the flag's name in quotes",
        )
    if name not in REGISTRY:
        hint = near(name, REGISTRY) or near(f"FLAGS_{name}", REGISTRY)
        raise NotFoundError(
            f"there is no flag '{name}'",
            expected="a name listed in docs/flags.md",
            received=repr(name),
            fix=hint or "look the name up in tstatic.flags.REGISTRY",
        )
    return REGISTRY[name]


def _converted(which: Flag, value: object) -> Value:
    """Returns ``value`` as the flag's type, or raises an error that names the flag, what it takes and what it got."""
    result: Value | None = None
    if which.type is bool and (isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))):
        result = bool(value)
    elif which.type is float and isinstance(value, int | float) and not isinstance(value, bool):
        result = float(value)
    elif which.type is int and isinstance(value, int) and not isinstance(value, bool):
        result = int(value)
    elif which.type is str and isinstance(value, str):
        result = value
    if result is None:
        raise FlagTypeError(
            f"flag '{which.name}' was set to a value of the wrong type",
            expected=which.type.__name__,
            received=_described(value),
            fix=f"set it to a {which.type.__name__}, such as {which.default!r}",
        )
    wanted = which.check(result)
    if wanted:
        raise FlagValueError(
            f"flag '{which.name}' was set to a value that is out of range",
            expected=wanted,
            received=repr(value),
            fix=f"choose {wanted}; the default is {which.default!r}",
        )
    return result


def _from_text(which: Flag, text: str) -> Value:
    """Reads the value of an environment variable."""
    value: object = text
    if which.type is bool:
        word = text.strip().lower()
        value = True if word in _TRUE else False if word in _FALSE else text
    elif which.type is not str:
        with contextlib.suppress(ValueError):
            value = which.type(text.strip())
    try:
        return _converted(which, value)
    except (FlagTypeError, FlagValueError) as error:
        error.what = f"the environment variable {which.name}={text!r} is not a value of that flag"
        error.fix = f"unset {which.name}, or export it as {error.expected}, such as {which.default!r}"
        raise


def _load() -> None:
    """Fills in defaults and the environment; at first use, so that ``os.environ`` may still be set after the import."""
    with _lock:
        if _values:
            return
        found = {name: _from_text(one, os.environ[name]) for name, one in REGISTRY.items() if name in os.environ}
        _store({one.name: one.default for one in _FLAGS} | found)
    for name in os.environ:
        if name.startswith("FLAGS_") and name not in REGISTRY:
            hint = near(name, REGISTRY)
            warn_once(
                ("flag", name), f"the environment sets {name}, which is not a flag of tstatic{hint and '; '}{hint}"
            )


def _update(changes: dict[str, Value]) -> None:
    global version
    with _lock:
        if not _values:
            _load()
        if any(_values[name] != value for name, value in changes.items()):
            _store(_values | changes)
            version += 1


def _store(values: dict[str, Value]) -> None:
    global _values, _key, memory_is_filled
    _key = tuple(values[one.name] for one in _FLAGS if one.compiled)
    _values = values
    memory_is_filled = bool(_values["FLAGS_init_allocated_mem"])


def _described(value: object) -> str:
    return f"{value!r} of type {type(value).__name__}"


def _reset_for_tests() -> None:
    """Forgets every value, so that the next read looks at the environment again."""
    global _values, version
    with _lock:
        _values = {}
        version += 1
