"""Words, signs and values of a program's text, line by line; values nest to a fixed depth."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn

from tstatic.errors import ProgramError, near
from tstatic.ir.types import DTYPES

MAX_DEPTH = 32
"""Brackets inside brackets."""
_TOKEN = re.compile(
    r"""(?P<space>[ \t]+)
    |(?P<comment>\#.*)
    |(?P<string>b?'[^'\\]*(?:\\.[^'\\]*)*'|b?"[^"\\]*(?:\\.[^"\\]*)*")
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

    # ------------------------------------------------------------------------------------------------------------ lines
    def refuse(self, what: str, expected: str, received: str, fix: str) -> ProgramError:
        return ProgramError(f"line {self.number}: {what}", expected=expected, received=received, fix=fix)

    def advance(self) -> bool:
        """Goes to the next line that holds something; returns whether there is one."""
        while self.number < len(self.lines):
            line = self.lines[self.number].rstrip("\r")
            self.number += 1
            self.tokens, self.at, self.comment = [], 0, ""
            self.tokenize(line)
            if self.tokens:
                return True
        self.tokens, self.at, self.comment = [], 0, ""
        return False

    def tokenize(self, line: str) -> None:
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
                self.tokens.append(Token(kind, match.group(), at + 1))
            at = match.end()

    def peek(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else END

    def take(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    def wrong(self, expected: str, token: Token, fix: str = "write what print(program) writes") -> NoReturn:
        received = repr(token.text[:60]) + f" in column {token.column}" if token is not END else token.text
        raise self.refuse("something else was expected", expected, received, fix)

    def accept(self, sign: str) -> bool:
        if self.peek().text == sign and self.peek().kind == "sign":
            self.at += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            self.wrong(repr(sign), self.peek())

    def end(self) -> None:
        if self.peek() is not END:
            self.wrong("the end of the line", self.peek())

    def word(self, expected: str) -> str:
        """A name, with or without quotes."""
        token = self.take()
        if token.kind == "name":
            return token.text
        if token.kind == "string" and token.text[0] != "b":
            return self.unquoted(token)
        self.wrong(expected, token)

    def integer(self, expected: str) -> int:
        token = self.take()
        value = self.number_of(token) if token.kind == "number" else None
        if not isinstance(value, int):
            self.wrong(expected, token)
        return value

    # ----------------------------------------------------------------------------------------------------------- values
    def number_of(self, token: Token) -> int | float:
        text = token.text
        if text.lstrip("-").startswith("0x"):
            return int(text, 16)
        if text.lstrip("-").isdigit():
            if len(text) > 400:
                self.wrong("an int of at most 400 digits", token, "write large ints in hexadecimal")
            return int(text)
        return float(text)

    def unquoted(self, token: Token) -> str:
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
        try:
            return self.unquoted(Token(token.kind, token.text[1:], token.column)).encode("latin-1")
        except UnicodeEncodeError:
            self.wrong("bytes, written with \\x escapes", token)

    def value(self, depth: int = 0) -> Any:
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
        """Values up to the closing bracket, and whether a comma stood before it."""
        found: list[Any] = []
        comma = True
        while not self.accept(close):
            if not comma:
                self.wrong(f"',' or {close!r}", self.peek())
            found.append(self.value(depth + 1))
            comma = self.accept(",")
        return found, comma

    def mapping(self, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        comma = True
        while not self.accept("}"):
            if not comma:
                self.wrong("',' or '}'", self.peek())
            token = self.peek()
            key = self.value(depth + 1)
            if not isinstance(key, str | int | float) or key in found:
                self.wrong("a key that is a string or a number, once", token)
            self.expect(":")
            found[key] = self.value(depth + 1)
            comma = self.accept(",")
        return found

    def marks(self, known: tuple[str, ...]) -> dict[str, Any]:
        """``(feed, lod_level = 1)`` as a dict; nothing at all is an empty one."""
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
