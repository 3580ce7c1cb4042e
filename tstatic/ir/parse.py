"""Text back into a program: the inverse of ``print(program)``, strict, with the line in every message."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from tstatic.errors import ProgramTypeError, near
from tstatic.ir.desc import BlockDesc, Line, OpDesc, ProgramDesc, VarDesc
from tstatic.ir.program import Program
from tstatic.ir.restore import restore
from tstatic.ir.rng import op_position
from tstatic.ir.text import REGULARIZERS, ROLES
from tstatic.ir.tokens import MAX_DEPTH, Reader

_COMMENT = re.compile(r"#\s*(.*):([0-9]{1,10})\Z")
_VARIABLE_MARKS = ("persistable", "stop_gradient", "is_data", "need_check_feed", "lod_level", "type", "initialised")
_PARAMETER_MARKS = ("trainable", "optimize_attr", "do_model_average", "need_clip", "is_distributed")
_BLOCK_MARKS = ("parent", "forward", "built", "grad_prefix")
_PROGRAM_MARKS = (
    "random_seed", "is_test", "loss", "learning_rate", "feeds", "fetches", "current_block", "process",
)  # fmt: skip


def parse(text: str) -> Program:
    """Reads what ``print(program)`` or ``program.to_string(True, with_details=True)`` wrote.

    Everything survives but initializers, learning-rate schedulers and regularizers of your own classes.

    Args:
        text: The whole text; comments that begin with ``#`` and empty lines may stand anywhere.

    Raises:
        ProgramTypeError: If ``text`` is not a str.
        ProgramError: If the text is not a program; it names the line.
    """
    if not isinstance(text, str):
        raise ProgramTypeError(
            "a program is parsed from a text",
            expected="a str",
            received=f"{type(text).__name__}",
            fix="pass str(program); for bytes use Program.parse_from_string",
        )
    return _Parser(text).program()


class _Parser(Reader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.files: dict[str, int] = {}
        self.paths: list[str] = []
        self.places: dict[tuple[str, int, int], int] = {}

    def where(self) -> Line | None:
        match = _COMMENT.match(self.comment)
        if match is None or match.group(1) not in self.files:
            return None
        return self.files[match.group(1)], int(match.group(2))

    def checked(self, fields: dict[str, Any], kind: Any) -> Any:
        try:
            return msgspec.convert(fields, kind)
        except msgspec.ValidationError as error:
            raise self.refuse(
                "a value is of the wrong kind", "what print(program) writes", str(error), "correct the value"
            ) from None

    # ---------------------------------------------------------------------------------------------------------- program
    def program(self) -> Program:
        if not self.advance() or self.peek().text != "program":
            self.number = max(self.number, 1)
            self.wrong("'program', the first word of a program's text", self.peek(), "pass all of str(program)")
        self.take()
        fields = self.marks(_PROGRAM_MARKS)
        self.end()
        blocks: list[BlockDesc] = []
        while self.advance():
            word = self.take()
            if word.text == "file" and not blocks:
                self.file()
            elif word.text == "block":
                blocks.append(self.block(len(blocks)))
            else:
                self.wrong("'block'" if blocks else "'file' or 'block'", word)
        if not blocks:
            raise self.refuse(
                "the program has no block", "block 0 { ... }", "the end of the text", "add 'block 0 {' and '}'"
            )
        self.number = 1
        desc: ProgramDesc = self.checked({**fields, "blocks": [], "files": self.paths}, _Header)
        desc.blocks = blocks
        return restore(desc, self.locate)

    def locate(self, kind: str, block: int, index: int) -> str:
        return f"line {self.places.get((kind, block, index), 1)}"

    def file(self) -> None:
        label = self.word("the short name of a file")
        self.expect("=")
        path = self.word("the path of the file")
        self.end()
        if label in self.files:
            raise self.refuse("two files have one short name", "a new name", repr(label), "rename one of them")
        self.files[label] = len(self.paths)
        self.paths.append(path)

    def block(self, index: int) -> BlockDesc:
        token = self.peek()
        if self.integer("the number of the block") != index:
            self.wrong(f"block {index}: blocks are numbered from 0", token, "number the blocks in order")
        self.places["block", index, 0] = self.number
        marks = self.marks(_BLOCK_MARKS)
        self.expect("{")
        self.end()
        variables: list[VarDesc] = []
        ops: list[OpDesc] = []
        start = self.number
        while self.advance():
            token = self.peek()
            if token.text == "}":
                self.take()
                self.end()
                fields = {"built": len(ops), **marks, "vars": [], "ops": []}
                desc: BlockDesc = self.checked(fields, BlockDesc)
                desc.vars, desc.ops = variables, ops
                return desc
            if token.kind == "name" and token.text in ("var", "param"):
                self.places["var", index, len(variables)] = self.number
                variables.append(self.variable())
            elif token.text == "{":
                self.places["op", index, len(ops)] = self.number
                ops.append(self.op(op_position(index, len(ops))))
            else:
                self.wrong("'var', 'param', an operator that begins with '{', or '}'", token)
        raise self.refuse(
            f"block {index} has no end", f"'}}' for the block of line {start}", "the end of the text", "add '}'"
        )

    def variable(self) -> VarDesc:
        is_parameter = self.take().text == "param"
        fields: dict[str, Any] = {"name": self.word("a variable's name"), "where": self.where()}
        self.expect(":")
        fields["dtype"] = None if self.accept("?") else self.word("a dtype, or '?'")
        self.expect("[")
        if self.accept("?"):
            fields["shape"] = None
            self.expect("]")
        else:
            fields["shape"] = self.items("]", MAX_DEPTH - 1)[0]
        known = ("feed", *_VARIABLE_MARKS, *((*_PARAMETER_MARKS, *REGULARIZERS) if is_parameter else ()))
        marks = self.marks(known)
        self.end()
        if marks.pop("feed", False):
            marks["is_data"] = marks["need_check_feed"] = True
        if is_parameter:
            more: dict[str, Any] = {"do_model_average": True}
            more |= {n: marks.pop(n) for n in _PARAMETER_MARKS if n in marks}
            for name in REGULARIZERS:
                if name in marks:
                    more["regularizer"] = (name, marks.pop(name))
            fields["parameter"] = more
            marks.setdefault("persistable", True)
            marks.setdefault("stop_gradient", not more.get("trainable", True))
        desc: VarDesc = self.checked({**fields, **marks}, VarDesc)
        return desc

    # --------------------------------------------------------------------------------------------------------------- op
    def op(self, position: int) -> OpDesc:
        fields: dict[str, Any] = {"where": self.where(), "outputs": self.slots()}
        self.expect("=")
        fields["type"] = self.word("an operator's type")
        self.expect("(")
        if self.word("'inputs'") != "inputs":
            self.at -= 1
            self.wrong("'inputs'", self.peek())
        self.expect("=")
        fields["inputs"] = self.slots()
        fields["position"] = position
        automatic: dict[str, Callable[[], Any]] = {
            "op_role": self.role, "op_role_var": self.value, "op_namescope": self.value, "op_device": self.value,
            "op_position": self.value,
        }  # fmt: skip
        attrs: dict[str, Any] = {}
        given: set[str] = set()
        while not self.accept(")"):
            if not self.accept(","):
                self.wrong("',' or ')'", self.peek())
            token = self.peek()
            name = self.word("an attribute's name")
            if name in given:
                self.wrong("each attribute once", token, "remove one of them")
            given.add(name)
            self.expect("=")
            if name in automatic:
                fields[name.removeprefix("op_")] = automatic[name]()
            else:
                attrs[name] = self.value()
        self.end()
        desc: OpDesc = self.checked(fields, OpDesc)
        desc.attrs = attrs
        return desc

    def slots(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        self.expect("{")
        while not self.accept("}"):
            if found and not self.accept(","):
                self.wrong("',' or '}'", self.peek())
            token = self.peek()
            name = self.word("a slot's name")
            if name in found:
                self.wrong("each slot once", token, "remove one of them")
            self.expect("=")
            self.expect("[")
            found[name] = self.items("]", MAX_DEPTH - 1)[0]
        return found

    def role(self) -> int:
        bits = {name: bit for bit, name in ROLES.items()}
        if self.peek().kind == "number":
            return self.integer("a role")
        role = 0
        while True:
            token = self.take()
            if token.text not in bits:
                self.wrong(f"one of {', '.join(bits)}", token, near(token.text, bits) or "use one of these")
            role |= bits[token.text]
            if not self.accept("|"):
                return role


class _Header(ProgramDesc):
    """A program whose blocks are still to come."""

    blocks: list[BlockDesc]
