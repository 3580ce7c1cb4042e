"""What a compiled kernel does, read from its PTX, from what ptxas says about it, and from its disassembly (SASS)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tstatic.chips.loops import Instruction
from tstatic.chips.matrix import MatrixLoop, matrix_loops, matrix_type

__all__ = ["Access", "Resources", "Sass", "read_log", "read_ptx", "read_sass", "threads_per_block"]


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """Global accesses of one width through one parameter, as they stand in the PTX (not how often they run).

    Attributes:
        origin: The pointer parameter, the name of a constant table (of libdevice), or "" where it could not be traced.
        action: "load", "copy" (an asynchronous load into shared memory), "store" or "atomic".
        bits: Width of one access of one thread.
        count: Instructions.
    """

    origin: str
    action: str
    bits: int
    count: int


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas says about a kernel, with the functions that it calls.

    Attributes:
        registers: Per thread.
        stack: Bytes per thread in local memory. More than the spills where a function keeps a local array, as ``sin`` does for
            large arguments.
        spill_stores: Bytes of spilled values written; 0 where nothing spills.
        spill_loads: Bytes of spilled values read.
        barriers: Hardware barriers in use.
    """

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    barriers: int


_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:, used (\d+) barriers)?")


def read_log(log: str) -> Resources:
    """Reads the messages of ``ptxas -v``.

    Raises:
        ValueError: They say nothing about registers or spills; a missing figure must not pass for a zero.
    """
    frames = [tuple(map(int, f)) for f in _FRAME.findall(log)]
    used = [(int(r), int(b or 0)) for r, b in _USED.findall(log)]
    if not frames or not used:
        raise ValueError(f"the messages of ptxas name no registers or no spills: {log[-300:]!r}")
    return Resources(
        registers=max(r for r, _ in used),
        stack=sum(f[0] for f in frames),
        spill_stores=sum(f[1] for f in frames),
        spill_loads=sum(f[2] for f in frames),
        barriers=max(b for _, b in used),
    )


_THREADS = re.compile(r"^\s*\.(?:reqntid|maxntid)\s+([\d, ]+)", re.MULTILINE)


def threads_per_block(ptx: str) -> int:
    """Threads of one program; more than 32 per declared warp where the compiler specialises warps."""
    found = _THREADS.search(ptx)
    return math.prod(int(n) for n in found[1].split(",")) if found else 0


# Braces say nothing about where a body ends: inline assembly brings its own.
_HEAD = re.compile(r"^(?:\.(?:visible|weak|extern)\s+)?\.(entry|func)\b", re.MULTILINE)
_END = re.compile(r"^\s*\.(?:section|file)\b", re.MULTILINE)
# Comments, labels and lines such as ".loc 1 8 0", which no semicolon ends.
_NOISE = re.compile(r"//[^\n]*|^\s*\.loc\b[^\n]*$|^\s*[\w$]+:\s*$", re.MULTILINE)
_INSTRUCTION = re.compile(r"(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s*([^;]*);")
_REGISTER = re.compile(r"%[a-z]+\d+")
_ADDRESS = re.compile(r"\[\s*(%[a-z]+\d+|[\w$]+)")
_PARAMETER = re.compile(r"\[\s*\w+_param_(\d+)")
_TYPE = re.compile(r"\.(?:v(\d)\.)?[busf](\d+)$")
_SIZE = re.compile(r"\]\s*,\s*(0x[0-9a-f]+|\d+)\b")
# Value or address flows through every other instruction; what is loaded is not followed: an index read from memory says
# nothing about where the data lie.
_OPAQUE = ("ld", "tcgen05.ld", "atom.", "tex.", "shfl.")
_WRITES = re.compile(r"\b(?:st\.|red\.|atom\.|cp\.async\.bulk\.tensor\.\dd\.global|cp\.async\.bulk\.global|cp\.reduce)")


def _width(operation: str, operands: str) -> int:
    """Bits that one thread moves."""
    if operation.startswith("cp.async"):
        size = _SIZE.findall(operands)
        return 8 * int(size[-1], 0) if size else 0
    found = _TYPE.search(operation)
    return int(found[1] or 1) * int(found[2]) if found else 0


def _action(operation: str) -> str:
    """Returns what an instruction does to global memory, "" for nothing (tensor-memory copies are counted in the SASS)."""
    head, *rest = operation.split(".")
    if "global" not in rest or "bulk" in rest:
        return ""
    return {"ld": "load", "cp": "copy", "st": "store", "atom": "atomic", "red": "atomic"}.get(head, "")


def _origins(start: str, sources: Mapping[str, set[str]], leaves: Mapping[str, set[str]]) -> set[str]:
    """Returns where an address comes from: names at the ends of the chains of definitions."""
    found: set[str] = set()
    seen, todo = {start}, [start]
    while todo:
        register = todo.pop()
        found |= leaves.get(register, set())
        fresh = sources.get(register, set()) - seen
        seen |= fresh
        todo += fresh
    return found


def read_ptx(ptx: str, parameters: Iterable[tuple[str, bool]]) -> tuple[tuple[Access, ...], int]:
    """Traces each global access of the kernel back to the parameter whose memory it touches.

    Args:
        ptx: The kernel's module as text.
        parameters: (name, is a pointer) of the kernel's parameters, constants left out.

    Returns:
        The accesses, sorted, and how many bodies trap instead of doing their work (they contain a trap and write nothing).
    """
    pointers = {i: name for i, (name, pointer) in enumerate(parameters) if pointer}
    counts: Counter[tuple[str, str, int]] = Counter()
    traps = 0
    _, *parts = _HEAD.split(_END.split(ptx, maxsplit=1)[0])
    for kind, body in zip(parts[::2], parts[1::2], strict=True):
        plain = _NOISE.sub("", body)
        traps += bool(re.search(r"\btrap;", plain)) and not _WRITES.search(plain)
        if kind == "entry":
            counts.update(_accesses(plain, pointers))
    return tuple(sorted(Access(*key, count) for key, count in counts.items())), traps


def _accesses(body: str, pointers: Mapping[int, str]) -> list[tuple[str, str, int]]:
    """Returns (origin, action, bits) per access of one body; an address that may lie in two parameters counts for both."""
    sources: dict[str, set[str]] = {}
    leaves: dict[str, set[str]] = {}
    touched: list[tuple[str, str, int]] = []
    for operation, operands in _INSTRUCTION.findall(body):
        if action := _action(operation):
            # An asynchronous copy names its target in shared memory first.
            addresses = _ADDRESS.findall(operands)
            if addresses:
                touched.append((addresses[-1], action, _width(operation, operands)))
        if operation.startswith("ld.param"):
            parameter = _PARAMETER.search(operands)
            if parameter and int(parameter[1]) in pointers:
                leaves.setdefault(operands.split(",")[0].strip(), set()).add(pointers[int(parameter[1])])
            continue
        if operation.startswith(_OPAQUE):
            continue
        target, _, rest = operands.partition(",")
        if "{" in target:
            target, _, rest = operands.partition("}")
        read = set(_REGISTER.findall(rest))
        symbol = re.fullmatch(r"\s*([A-Za-z_$][\w$]*)\s*", rest) if operation.startswith(("mov.", "cvta.")) else None
        for register in _REGISTER.findall(target):
            sources.setdefault(register, set()).update(read)
            if symbol:
                leaves.setdefault(register, set()).add(symbol[1])
    names = set(pointers.values())
    result: list[tuple[str, str, int]] = []
    for address, action, bits in touched:
        origins = _origins(address, sources, leaves) if address.startswith("%") else {address}
        # An offset may be computed from a symbol's address (shared memory's, say); the memory is still the parameter's.
        origins = origins & names or origins
        result += [(origin, action, bits) for origin in sorted(origins) or [""]]
    return result


@dataclass(frozen=True, slots=True)
class Sass:
    """Instructions of a disassembled kernel.

    Attributes:
        opcodes: Full opcode ("LDG.E.128") -> how often it stands there, padding left out.
        traps: Bodies that contain a trap and write nothing.
        loops: The loops around matrix instructions.
    """

    opcodes: Mapping[str, int]
    traps: int
    loops: tuple[MatrixLoop, ...] = ()

    def count(self, *heads: str) -> int:
        """Instructions whose opcode begins with one of these words: ``count("STL", "LDL")``."""
        return sum(n for opcode, n in self.opcodes.items() if opcode.split(".")[0] in heads)

    def widths(self, head: str) -> dict[int, int]:
        """Accesses by width in bits: ``widths("LDG") == {32: 1, 128: 2}``."""
        found: Counter[int] = Counter()
        for opcode, n in self.opcodes.items():
            first, *modifiers = opcode.split(".")
            if first == head:
                found[next((_SASS_BITS[m] for m in modifiers if m in _SASS_BITS), 32)] += n
        return dict(sorted(found.items()))

    @property
    def instructions(self) -> int:
        """All instructions."""
        return sum(self.opcodes.values())

    @property
    def matrix(self) -> int:
        """Instructions of the matrix units: HMMA (up to sm_90), HGMMA (sm_90) and UTC*MMA (sm_100)."""
        return sum(n for opcode, n in self.opcodes.items() if matrix_type(opcode) is not None)

    def of_type(self, type_: str) -> int:
        """Matrix instructions whose operands have this type; "" where the opcode does not say it (sm_100)."""
        return sum(n for opcode, n in self.opcodes.items() if matrix_type(opcode) == type_)

    @property
    def tf32(self) -> int:
        """Matrix instructions that round their operands to TF32; none belongs in a kernel with 16-bit operands."""
        return sum(n for opcode, n in self.opcodes.items() if "TF32" in opcode)

    def _blackwell(self) -> int:
        return sum(n for o, n in self.opcodes.items() if re.match(r"UTC\w*MMA", o))

    def figures(self) -> dict[str, int]:
        """Returns the counts that golden files keep."""
        wide = {head: sum(n for bits, n in self.widths(head).items() if bits >= 128) for head in ("LDG", "STG")}
        return {
            "instructions": self.instructions,
            "stl": self.count("STL"),
            "ldl": self.count("LDL"),
            "ldg": self.count("LDG"),
            "ldg_128": wide["LDG"],
            "ldg_64": self.widths("LDG").get(64, 0),
            "stg": self.count("STG"),
            "stg_128": wide["STG"],
            "stg_64": self.widths("STG").get(64, 0),
            "ldgsts": self.count("LDGSTS"),
            "utmaldg": self.count("UTMALDG"),
            "bar": self.count("BAR"),
            "hmma": self.count("HMMA"),
            "hgmma": self.count("HGMMA"),
            "utcmma": self._blackwell(),
            "tf32": self.tf32,
            "loop_ffma": max((loop.fma for loop in self.loops), default=0),
            "usetmaxreg": self.count("USETMAXREG"),
            "mufu": self.count("MUFU"),
            "i2f": self.count("I2F", "I2FP"),
            "imad_wide": sum(n for o, n in self.opcodes.items() if o.startswith("IMAD.WIDE")),
            "atomics": self.count("ATOM", "ATOMG", "RED", "REDG"),
        }


_SASS_BITS = {"256": 256, "128": 128, "64": 64, "U16": 16, "S16": 16, "U8": 8, "S8": 8}
_SASS_SECTION = re.compile(r"^\.text\.[^:\n]+:$", re.MULTILINE)
_SASS_LINE = re.compile(r"^(\.\w+):$|/\*[0-9a-f]{4,}\*/\s+\{?\s*(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);", re.MULTILINE)
_SASS_LABEL = re.compile(r"`\((\.\w+)\)")
_SASS_WRITES = ("STG", "ST", "STS", "ATOM", "ATOMG", "RED", "REDG", "UTMASTG", "UTMAREDG", "UBLKCP")
# After these, without a condition, comes nothing.
_SASS_ENDS = ("EXIT", "RET", "BRX", "JMX", "JMP", "KILL")
_SASS_FMA = ("FFMA", "FFMA2")


def _sass_code(body: str) -> list[Instruction]:
    """Returns the instructions of one function, padding left out."""
    code: list[Instruction] = []
    labels: list[str] = []
    for label, condition, opcode, operands in _SASS_LINE.findall(body):
        if label:
            labels.append(label)
            continue
        if opcode == "NOP":
            continue
        head = opcode.split(".")[0]
        jump = _SASS_LABEL.search(operands) if head == "BRA" else None
        # A condition may be an operand as well: "BRA.U UP0, `(.L_x_3)".
        ends = not condition and ((bool(jump) and operands.lstrip().startswith("`")) or head in _SASS_ENDS)
        code.append(Instruction(opcode, tuple(labels), jump[1] if jump else "", ends))
        labels = []
    return code


def read_sass(text: str) -> Sass:
    """Reads what ``nvdisasm -c`` prints: one ``.text`` section per function.

    Raises:
        ValueError: There is not one instruction in it.
    """
    opcodes: Counter[str] = Counter()
    traps = 0
    loops: list[MatrixLoop] = []
    for body in _SASS_SECTION.split(text)[1:]:
        code = _sass_code(body)
        found = [one.operation for one in code]
        heads = {opcode.split(".")[0] for opcode in found}
        traps += any(o.startswith("BPT.TRAP") for o in found) and not heads & set(_SASS_WRITES)
        opcodes.update(found)
        loops += matrix_loops(
            code,
            (i for i, opcode in enumerate(found) if matrix_type(opcode) is not None),
            (i for i, opcode in enumerate(found) if opcode.split(".")[0] in _SASS_FMA),
        )
    if not opcodes:
        raise ValueError(f"the disassembly holds no instruction: {text[:300]!r}")
    return Sass(dict(sorted(opcodes.items())), traps, tuple(sorted(loops)))
