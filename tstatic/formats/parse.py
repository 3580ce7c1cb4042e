"""Text back into a program: the inverse of ``print(program)``, strict, with the line in every message."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, NamedTuple, NoReturn

import msgspec

from tstatic.errors import ProgramError, near
from tstatic.formats.restore import restore
from tstatic.formats.schema import (
    REGULARIZERS,
    BlockDesc,
    Line,
    OpDesc,
    ParameterDesc,
    ProgramDesc,
    VarDesc,
    checked_form,
)
from tstatic.formats.serial import is_key
from tstatic.formats.text import ROLES
from tstatic.ir.budget import budget_of_program
from tstatic.ir.checks import check_type
from tstatic.ir.program import Program
from tstatic.ir.rng import op_position
from tstatic.ir.types import DTYPES

_LINE = re.compile(r"[0-9]{1,10}")
_VARIABLE_MARKS = tuple(f.name for f in fields(VarDesc) if f.name in VarDesc.MARKS and f.name != "parameter")
_PARAMETER_MARKS = tuple(name for name in ParameterDesc.MARKS if name != "regularizer")


def parse(text: str) -> Program:
    """Reads what ``print(program)`` or ``program.to_string(True, with_details=True)`` wrote.

    Everything survives but initializers, learning-rate schedulers and regularizers of your own classes.

    Args:
        text: The whole text; comments that begin with ``#`` and empty lines may stand anywhere.

    Raises:
        ProgramTypeError: If ``text`` is not a str.
        ProgramError: If the text is not a program; it names the line.
    """
    fix = "pass str(program); for bytes use Program.parse_from_string"
    check_type(text, str, "source", "Program.parse_from_text", fix=fix)
    return _Parser(text).program()


# -------------------------------------------------------------------------------------------------------------- tokens
MAX_DEPTH = 32
"""Brackets inside brackets."""
_TOKEN_BYTES, _VALUE = 200, 64
"""Bytes that are counted for a token while its line is read, and for what is made of it."""
_TOKEN = re.compile(
    r"""(?P<space>[ \t]+)
    |(?P<comment>\#.*)
    |(?P<string>b?'[^'\\]*+(?:\\.[^'\\]*+)*+'|b?"[^"\\]*+(?:\\.[^"\\]*+)*+")
    |(?P<number>-?(?:0x[0-9a-f]+|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)|-(?:inf|nan)(?![\w.@/+-]))
    |(?P<name>[A-Za-z_][A-Za-z0-9_.@/+-]*)
    |(?P<sign>[{}\[\]()=,:|?])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[\\'\"nrt])|(\\.?)", re.DOTALL)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_WORDS: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "inf": float("inf"),
    "nan": float("nan"),
    **DTYPES,
}


class Token(NamedTuple):
    """A piece of a line; columns count from 1."""

    kind: str
    text: str
    column: int


END = Token("end", "the end of the line", 0)


class Reader:
    """Goes through a text; every refusal names the line."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.number = 0
        self.tokens: list[Token] = []
        self.at = 0
        self.comment = ""
        self.budget = budget_of_program(len(text), "this text")

    # ------------------------------------------------------------------------------------------------------------ lines
    def refuse(self, what: str, expected: str, received: str, fix: str) -> ProgramError:
        """Returns an error that names the line."""
        return ProgramError(f"line {self.number}: {what}", expected=expected, received=received, fix=fix)

    def advance(self) -> bool:
        """Goes to the next line that holds something; returns whether there is one."""
        while self.number < len(self.lines):
            line = self.lines[self.number].rstrip("\r")
            self.number += 1
            self.forget()
            self.tokenize(line)
            if self.tokens:
                return True
        self.forget()
        return False

    def forget(self) -> None:
        """Drops the tokens of a line; what was made of them stays."""
        self.budget.give_back((_TOKEN_BYTES - _VALUE) * len(self.tokens))
        self.tokens, self.at, self.comment = [], 0, ""

    def tokenize(self, line: str) -> None:
        """Splits a line into tokens; the comment goes to ``comment``."""
        at = 0
        while at < len(line):
            match = _TOKEN.match(line, at)
            if match is None:
                quoted = line[at] in "'\"" or line[at : at + 2] in ("b'", 'b"')
                raise self.refuse(
                    "a string has no end" if quoted else "a character has no meaning here",
                    "the closing quote on the same line" if quoted else "a name, a number, a string or one of { } [ ] ( ) = , : |",
                    f"{line[at : at + 20]!r} in column {at + 1}",
                    "write what print(program) writes",
                )  # fmt: skip
            kind = match.lastgroup or ""
            if kind == "comment":
                self.comment = match.group()
            elif kind != "space":
                self.budget.step(_TOKEN_BYTES)
                self.tokens.append(Token(kind, match.group(), at + 1))
            at = match.end()

    def peek(self) -> Token:
        """Returns the next token; ``END`` after the last one of the line."""
        return self.tokens[self.at] if self.at < len(self.tokens) else END

    def take(self) -> Token:
        """Returns the next token and goes past it."""
        token = self.peek()
        self.at += 1
        return token

    def wrong(self, expected: str, token: Token, fix: str = "write what print(program) writes") -> NoReturn:
        """Raises an error for a token that does not belong there."""
        received = repr(token.text[:60]) + f" in column {token.column}" if token is not END else token.text
        raise self.refuse("something else was expected", expected, received, fix)

    def accept(self, sign: str) -> bool:
        """Goes past a sign if it comes next; returns whether it did."""
        if self.peek().text == sign and self.peek().kind == "sign":
            self.at += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        """Goes past a sign."""
        if not self.accept(sign):
            self.wrong(repr(sign), self.peek())

    def end(self) -> None:
        """Checks that the line holds nothing else."""
        if self.peek() is not END:
            self.wrong("the end of the line", self.peek())

    def word(self, expected: str) -> str:
        """Reads a name, with or without quotes."""
        token = self.take()
        if token.kind == "name":
            return token.text
        if token.kind == "string" and token.text[0] != "b":
            return self.unquoted(token)
        self.wrong(expected, token)

    def integer(self, expected: str) -> int:
        """Reads an int."""
        token = self.take()
        value = self.number_of(token) if token.kind == "number" else None
        if not isinstance(value, int):
            self.wrong(expected, token)
        return value

    # ----------------------------------------------------------------------------------------------------------- values
    def number_of(self, token: Token) -> int | float:
        """Returns a token's number."""
        text = token.text
        if text.lstrip("-").startswith("0x"):
            return int(text, 16)
        if text.lstrip("-").isdigit():
            # The time of int() grows with the square of the digits; in hexadecimal it does not.
            if len(text) > 400:
                self.wrong("an int of at most 400 digits", token, "write large ints in hexadecimal")
            return int(text)
        return float(text)

    def unquoted(self, token: Token) -> str:
        """Returns a string token's text, with its escapes resolved."""
        body = token.text[1:-1]
        if "\\" not in body:
            return body

        def plain(match: re.Match[str]) -> str:
            code = match.group(1)
            if code is None or (code[0] == "U" and int(code[1:], 16) > 0x10FFFF):
                self.wrong("escapes as Python writes them", token, f"correct {match.group()!r}")
            return chr(int(code[1:], 16)) if code[0] in "xuU" else _PLAIN[code]

        return _ESCAPE.sub(plain, body)

    def bytes_of(self, token: Token) -> bytes:
        """Returns a bytes token's content."""
        try:
            return self.unquoted(Token(token.kind, token.text[1:], token.column)).encode("latin-1")
        except UnicodeEncodeError:
            self.wrong("bytes, written with \\x escapes", token)

    def value(self, depth: int = 0) -> Any:
        """Reads a value, as ``value_text`` writes it."""
        if depth > MAX_DEPTH:
            raise self.refuse(
                "brackets are nested too deep", f"at most {MAX_DEPTH} levels", f"{depth} levels", "nest fewer brackets"
            )
        token = self.take()
        if token.kind == "string":
            return self.bytes_of(token) if token.text[0] == "b" else self.unquoted(token)
        if token.kind == "number":
            return self.number_of(token)
        if token.kind == "name" and token.text in _WORDS:
            return _WORDS[token.text]
        if token.text == "[":
            return self.items("]", depth)[0]
        if token.text == "(":
            found, comma = self.items(")", depth)
            if len(found) == 1 and not comma:
                self.wrong("a comma after the only item of a tuple", self.tokens[self.at - 1], "write (1,)")
            return tuple(found)
        if token.text == "{":
            return self.mapping(depth)
        fix = near(token.text, _WORDS) if token.kind == "name" else ""
        self.wrong(
            "a value", token, fix or "write a number, a string, True, False, None, a dtype, or a list or tuple of them"
        )

    def items(self, close: str, depth: int) -> tuple[list[Any], bool]:
        """Reads values up to the closing bracket; returns them and whether a comma stood before it."""
        found: list[Any] = []
        comma = True
        while not self.accept(close):
            if not comma:
                self.wrong(f"',' or {close!r}", self.peek())
            found.append(self.value(depth + 1))
            comma = self.accept(",")
        return found, comma

    def mapping(self, depth: int) -> dict[Any, Any]:
        """Reads a dict up to its closing brace."""
        found: dict[Any, Any] = {}
        comma = True
        while not self.accept("}"):
            if not comma:
                self.wrong("',' or '}'", self.peek())
            token = self.peek()
            key = self.value(depth + 1)
            if not is_key(key) or key in found:
                self.wrong("a key that is a string or a number below 2**53, once", token)
            self.expect(":")
            found[key] = self.value(depth + 1)
            comma = self.accept(",")
        return found

    def marks(self, known: tuple[str, ...]) -> dict[str, Any]:
        """Reads ``(feed, lod_level = 1)`` as a dict; nothing at all is an empty one."""
        found: dict[str, Any] = {}
        if not self.accept("("):
            return found
        while True:
            token = self.take()
            if token.kind != "name" or token.text not in known:
                self.wrong(f"one of {', '.join(known)}", token, near(token.text, known) or "leave it out")
            if token.text in found:
                self.wrong("each mark once", token, "remove one of them")
            found[token.text] = self.value() if self.accept("=") else True
            if self.accept(")"):
                return found
            if not self.accept(","):
                self.wrong("',' or ')'", self.peek())


# -------------------------------------------------------------------------------------------------------------- parser
class _Parser(Reader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.files: dict[str, int] = {}
        self.paths: list[str] = []
        self.places: dict[tuple[str, int, int], int] = {}

    def where(self) -> Line | None:
        """Reads the user's file and line from the comment; another comment is ignored."""
        # By hand: an expression for both goes through a long comment once for each of its spaces.
        file, _, line = self.comment[1:].rpartition(":")
        if file.lstrip() not in self.files or not _LINE.fullmatch(line):
            return None
        return self.files[file.lstrip()], int(line)

    def checked(self, fields: dict[str, Any], kind: Any) -> Any:
        """Returns a description of the fields, whose kinds and limits are checked."""
        try:
            return msgspec.convert(fields, checked_form(kind))
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
        fields = self.marks(ProgramDesc.MARKS)
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
        # What is wrong with the program as a whole is reported for its first line.
        self.number = 1
        desc: ProgramDesc = self.checked({**fields, "blocks": blocks, "files": self.paths}, ProgramDesc)
        return restore(desc, self.locate, self.budget)

    def locate(self, kind: str, block: int, index: int) -> str:
        """Returns the words that say on which line a part of the program stands."""
        return f"line {self.places.get((kind, block, index), 1)}"

    def file(self) -> None:
        """Reads ``file 'train.py' = '/home/me/train.py'``."""
        label = self.word("the short name of a file")
        self.expect("=")
        path = self.word("the path of the file")
        self.end()
        if label in self.files:
            raise self.refuse("two files have one short name", "a new name", repr(label), "rename one of them")
        self.files[label] = len(self.paths)
        self.paths.append(path)

    def block(self, index: int) -> BlockDesc:
        """Reads ``block 0 {`` and everything up to its ``}``."""
        token = self.peek()
        if self.integer("the number of the block") != index:
            self.wrong(f"block {index}: blocks are numbered from 0", token, "number the blocks in order")
        self.places["block", index, 0] = self.number
        marks = self.marks(BlockDesc.MARKS)
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
                # Variables and ops were checked one by one, where their lines were known.
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
        """Reads ``var x: float32[-1, 3] (feed)`` or ``param ...``."""
        is_parameter = self.take().text == "param"
        found: dict[str, Any] = {"name": self.word("a variable's name"), "where": self.where()}
        self.expect(":")
        found["dtype"] = None if self.accept("?") else self.word("a dtype, or '?'")
        self.expect("[")
        if self.accept("?"):
            found["shape"] = None
            self.expect("]")
        else:
            found["shape"] = self.items("]", MAX_DEPTH - 1)[0]
        known = ("feed", *_VARIABLE_MARKS, *((*_PARAMETER_MARKS, *REGULARIZERS) if is_parameter else ()))
        marks = self.marks(known)
        self.end()
        if marks.pop("feed", False):
            marks["is_data"] = marks["need_check_feed"] = True
        if is_parameter:
            more = {**ParameterDesc.IN_TEXT, **{n: marks.pop(n) for n in _PARAMETER_MARKS if n in marks}}
            for name in REGULARIZERS:
                if name in marks:
                    more["regularizer"] = (name, marks.pop(name))
            marks = {**VarDesc.in_text(more.get("trainable", True)), **marks, "parameter": more}
        desc: VarDesc = self.checked({**found, **marks}, VarDesc)
        return desc

    # --------------------------------------------------------------------------------------------------------------- op
    def op(self, position: int) -> OpDesc:
        """Reads ``{Out=['y']} = relu(inputs={X=['x']}, ...)``."""
        found: dict[str, Any] = {"where": self.where(), "outputs": self.slots()}
        self.expect("=")
        found["type"] = self.word("an operator's type")
        self.expect("(")
        if self.word("'inputs'") != "inputs":
            self.at -= 1
            self.wrong("'inputs'", self.peek())
        self.expect("=")
        found["inputs"] = self.slots()
        found["position"] = position
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
            field = name.removeprefix("op_")
            if field != name and field in OpDesc.MARKS:
                found[field] = self.role() if field == "role" else self.value()
            else:
                attrs[name] = self.value()
        self.end()
        desc: OpDesc = self.checked(found, OpDesc)
        desc.attrs = attrs
        return desc

    def slots(self) -> dict[str, list[Any]]:
        """Reads ``{X=['x'], Y=['y', 'z']}``."""
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
        """Reads ``Backward | Loss``, or a number."""
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
