"""Makes a program of plain data, in which nothing is trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tstatic.errors import LoadLimitError, NotFoundError, ProgramError, TstaticError, near
from tstatic.formats.schema import (
    REGULARIZERS,
    BlockDesc,
    Line,
    OpDesc,
    ProgramDesc,
    Real,
    VarDesc,
    calls_functions,
    this_process,
)
from tstatic.ir import edit
from tstatic.ir.budget import STEP, Budget, building
from tstatic.ir.build import append_op
from tstatic.ir.composed import composed_op
from tstatic.ir.export import PUBLIC_API
from tstatic.ir.names import FreeNames, guard
from tstatic.ir.opdef import EMPTY, OPS, OpDef, Slot, op_def
from tstatic.ir.program import Block, Operator, Parameter, Program, Variable
from tstatic.ir.types import DTYPES, is_addressable
from tstatic.where import Where

MAX_NESTING = 1_000
"""Blocks inside blocks."""
_VARIABLE, _OP = 800, 1200
"""Bytes that are counted for a variable and an op, beside their descriptions."""
MAX_DERIVED = 4
"""Orders of a backward op that may have to be derived; each one costs ten times the last, the next one 20 seconds."""

DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, RecursionError)
"""What rules of operators raise for slots, attributes and shapes that no program has: they are written for those that are whole."""

Place = tuple[str, int, int]
"""``("program" | "block" | "var" | "op", block, index)``."""
Locate = Callable[[str, int, int], str]
"""A place to the words that say where it stands in the source."""


def restore(desc: ProgramDesc, locate: Locate, budget: Budget, error: type[TstaticError] = ProgramError) -> Program:
    """Makes a program of plain data.

    Args:
        desc: The data; nothing in it is trusted.
        locate: Says where a part stands in the text or file.
        budget: What reading the source may cost.
        error: What is raised.

    Raises:
        TstaticError: Of class ``error``, for anything that no program could hold.
        LoadLimitError: If looking up its names takes more work than the source's size allows.
    """
    return _Restore(desc, locate, budget, error).program()


class _Restore:
    def __init__(self, desc: ProgramDesc, locate: Locate, budget: Budget, error: type[TstaticError]) -> None:
        self.budget = budget
        self.desc = desc
        self.locate = locate
        self.error = error
        self.depth: list[int] = []
        # Per block: name -> whether the block or one around it has it.
        self.seen: list[dict[str, bool]] = []
        # The names of all variables, from when parts of an op need names of their own.
        self.taken: frozenset[str] | None = None

    def refuse(
        self, place: Place, what: str, expected: object, received: object, fix: str, **context: str
    ) -> TstaticError:
        """Returns an error that says where in the source the part stands."""
        return self.error(f"{self.locate(*place)}: {what}", expected=expected, received=received, fix=fix, **context)

    def program(self) -> Program:
        desc = self.desc
        made = Program()
        made._seed = desc.random_seed
        made._is_test = desc.is_test
        made.loss_name = desc.loss
        made.blocks = []
        for index, block in enumerate(desc.blocks):
            self.block(made, index, block)
        self.check_owners(made)
        if calls_functions(made) and desc.process != this_process():
            raise self.refuse(
                ("program", 0, 0), "the program calls Python functions, which are not part of what is saved",
                "a program of this process, or one without py_func", f"one of process {desc.process or 'unknown'}",
                "build the program again in this process, and load only its values", op="py_func",
            )  # fmt: skip
        if any(op.definition.collective for block in made.blocks for op in block.ops):
            made.distributed = made.collectives = True
        if desc.current_block >= len(made.blocks):
            raise self.no_block(("program", 0, 0), "the current block", desc.current_block)
        made.current_block_idx = desc.current_block
        names = made.global_block().vars
        rates = [desc.learning_rate] if isinstance(desc.learning_rate, str) else desc.learning_rate or []
        for what, row in (("feeds", desc.feeds), ("fetches", desc.fetches), ("learning_rate", rates)):
            for name in row:
                if name not in names:
                    raise self.no_variable(("program", 0, 0), f"'{what}' of the program names", name, names)
        made.feed_names, made.fetch_names = tuple(desc.feeds), tuple(desc.fetches)
        # Errors of a later run then name the file as the possible cause.
        made._from_file = True
        made.learning_rates = dict.fromkeys(rates)
        made._touch()
        return made

    def no_block(self, place: Place, what: str, received: object, **context: str) -> TstaticError:
        """Returns the error for a number that is not that of a block."""
        return self.refuse(
            place, f"{what} is not a block of the program", f"a number from 0 to {len(self.desc.blocks) - 1}", received,
            "name a block that the program has", **context,
        )  # fmt: skip

    def no_variable(self, place: Place, what: str, name: str, known: Any, **context: str) -> TstaticError:
        """Returns the error for a name that is not declared; near names are suggested."""
        return self.refuse(
            place, f"{what} a variable that is not declared", "a variable of this block or of one around it", repr(name),
            near(name, known) or "declare it in the block", **context,
        )  # fmt: skip

    # ----------------------------------------------------------------------------------------------------------- blocks
    def block(self, program: Program, index: int, desc: BlockDesc) -> None:
        """Adds a block with its variables and ops to the program."""
        place = ("block", index, 0)
        # A block is made inside the one around it, so its parent has a smaller number: no cycle can be written.
        if not (desc.parent == -1 if index == 0 else 0 <= desc.parent < index):
            raise self.refuse(
                place, f"block {index} has a parent that cannot be",
                "-1 for block 0" if index == 0 else f"a block before it: 0 to {index - 1}", desc.parent,
                "write blocks after the one that they stand in",
            )  # fmt: skip
        depth = 0 if index == 0 else self.depth[desc.parent] + 1
        if depth > MAX_NESTING:
            raise self.refuse(
                place, "blocks are nested too deep", f"at most {MAX_NESTING} levels", f"{depth} levels", "nest fewer blocks"
            )  # fmt: skip
        if desc.forward >= len(self.desc.blocks):
            raise self.no_block(place, f"the forward block of block {index}", desc.forward)
        self.depth.append(depth)
        made = Block(program, index, desc.parent, desc.forward)
        made.built = desc.built
        made.grad_prefix = desc.grad_prefix
        program.blocks.append(made)
        for i, var in enumerate(desc.vars):
            if var.name in made.vars or var.name == EMPTY:
                raise self.refuse(
                    ("var", index, i), f"variable '{var.name}' cannot be declared here", "a name that is free",
                    "a name that is reserved" if var.name == EMPTY else "a name that was declared before",
                    "rename or remove one of them", var=var.name,
                )  # fmt: skip
            made.vars[var.name] = self.variable(made, ("var", index, i), var)
        self.seen.append(dict.fromkeys(made.vars, True))
        for i, var in enumerate(desc.vars):
            for name in var.lod:
                if not self.has(made, name):
                    raise self.no_variable(
                        ("var", index, i), f"the LoD of '{var.name}' names", name, made.vars, var=var.name
                    )
        for i, op in enumerate(desc.ops):
            builder = composed_op(op.type, (), ())
            if builder is not None and builder.in_files:
                self.build(made, ("op", index, i), op)
            else:
                made.ops.append(self.op(made, ("op", index, i), op))

    def where(self, place: Place, line: Line | None) -> Where | None:
        """Returns the user's file and line; the file stands in the list of files."""
        if line is None:
            return None
        if line[0] >= len(self.desc.files):
            raise self.refuse(
                place, "the source file is not in the list of files", f"a number below {len(self.desc.files)}", line[0],
                "add the file to the list",
            )  # fmt: skip
        return self.desc.files[line[0]], line[1]

    def variable(self, block: Block, place: Place, desc: VarDesc) -> Variable:
        """Makes a variable or a parameter."""
        self.budget.step(_VARIABLE)
        if desc.dtype is not None and desc.dtype not in DTYPES:
            raise self.refuse(
                place, f"variable '{desc.name}' has a dtype that tstatic lacks", f"one of {', '.join(DTYPES)}",
                repr(desc.dtype), near(desc.dtype, DTYPES) or "use one of these", var=desc.name,
            )  # fmt: skip
        if not is_addressable(desc.shape or ()):
            raise self.refuse(
                place, f"variable '{desc.name}' has more elements than can be addressed", "fewer than 2**60 elements",
                f"{list(desc.shape or ())}", "write smaller sizes, or -1 for an unknown one", var=desc.name,
            )  # fmt: skip
        common = {n: getattr(desc, n) for n in ("stop_gradient", "is_data", "need_check_feed", "lod_level", "type")}
        common["where"] = self.where(place, desc.where)
        more = desc.parameter
        if more is None:
            var = Variable(block, desc.name, desc.shape, desc.dtype, **common)
        else:
            if desc.shape is None or desc.dtype is None or any(size <= 0 for size in desc.shape):
                raise self.refuse(
                    place, f"parameter '{desc.name}' needs a dtype and known sizes", "a dtype and positive sizes",
                    f"{desc.dtype}{desc.shape}", "write both", var=desc.name,
                )  # fmt: skip
            var = Parameter(
                block, desc.name, desc.shape, desc.dtype,
                optimize_attr={n: self.real(place, v) for n, v in more.optimize_attr.items()},
                regularizer=self.regularizer(place, desc.name, more.regularizer),
                **{n: getattr(more, n) for n in ("trainable", "do_model_average", "need_clip", "is_distributed")},
                **common,
            )  # fmt: skip
        # Behind the setter, which would count as an edit of the program, once per variable.
        var._persistable = desc.persistable
        var.initialised = desc.initialised
        if desc.lod:
            var.lod = tuple(desc.lod)
        return var

    def regularizer(self, place: Place, var: str, value: tuple[str, Real] | None) -> Any:
        """Makes a parameter's regularizer."""
        if value is None:
            return None
        kind, coeff = value
        if kind not in REGULARIZERS or f"regularizer.{kind}" not in PUBLIC_API:
            raise self.refuse(
                place, f"the regularizer of '{var}' is not known", " or ".join(REGULARIZERS), repr(kind),
                near(kind, REGULARIZERS) or "use one of these", var=var,
            )  # fmt: skip
        return PUBLIC_API[f"regularizer.{kind}"].function(self.real(place, coeff))

    def real(self, place: Place, value: Real) -> float:
        """Returns a number, which a file writes as a text if it is infinite or NaN."""
        if isinstance(value, str) and value not in ("inf", "-inf", "nan"):
            raise self.refuse(place, "a number is written as a text", "a number, 'inf', '-inf' or 'nan'", repr(value[:80]),
                              "write a number")  # fmt: skip
        return float(value)

    # -------------------------------------------------------------------------------------------------------------- ops
    def has(self, block: Block, name: str) -> bool:
        """Returns whether a block, or one around it, declares a name; remembers the answer.

        Only for the block itself: remembered in each block on the way, a thousand names in a thousand blocks would be a million.
        """
        at: Block | None = block
        found, steps = False, 0
        while at is not None:
            known = self.seen[at.idx].get(name)
            if known is not None:
                found = known
                break
            steps += 1
            at = at.parent
        self.budget.work(STEP * steps)
        self.seen[block.idx][name] = found
        return found

    def definition(self, place: Place, type: str) -> OpDef:
        """Returns the definition of an op type; derives those of backward ops, up to ``MAX_DERIVED`` orders."""
        stem, orders = type, 0
        known = type in OPS  # loads the op and its backward ops
        while not known and stem not in OPS.loaded and stem.endswith("_grad"):
            stem, orders = stem.removesuffix("_grad"), orders + 1
        try:
            if orders > MAX_DERIVED:
                raise NotFoundError(
                    "too many orders", fix=f"no backward op of order {orders} is derived for a text or file"
                )
            return op_def(type)
        except NotFoundError as error:
            raise self.refuse(
                place, f"operator '{type[:80]}' is not one of this tstatic", "a registered op type", repr(type[:80]),
                error.fix or "update tstatic", op=type[:80],
            ) from None  # fmt: skip

    def op(self, block: Block, place: Place, desc: OpDesc) -> Operator:
        self.budget.step(_OP)
        definition = self.definition(place, desc.type)
        attrs = self.attributes(place, definition, desc.attrs)
        return Operator(
            block,
            desc.type,
            self.slots(block, place, definition, definition.input_slots, desc.inputs, "input"),
            self.slots(block, place, definition, definition.output_slots, desc.outputs, "output"),
            attrs,
            role=desc.role,
            role_var=tuple(desc.role_var),
            where=self.where(place, desc.where),
            position=desc.position,
            namescope=desc.namescope,
            device=desc.device,
            updates=tuple(desc.updates),
        )

    def build(self, block: Block, place: Place, desc: OpDesc) -> None:
        """Builds what an op is made of that had a definition when the program was saved."""
        self.budget.step(_OP)
        automatic = {"op_role": desc.role, "op_role_var": tuple(desc.role_var), "op_device": desc.device}
        before = len(block.ops)
        if self.taken is None:
            self.taken = frozenset(var.name for one in self.desc.blocks for var in one.vars)
        token = building.set(self.budget)
        try:
            with guard(FreeNames(self.taken)):
                append_op(block, desc.type, desc.inputs, desc.outputs, {**desc.attrs, **automatic})
        except LoadLimitError:
            raise
        except TstaticError as error:
            fix = error.fix or "build this part of the program again"
            raise self.refuse(place, error.what, error.expected, error.received, fix, op=desc.type) from None
        except DAMAGE as error:
            raise self.refuse(
                place, f"an operator '{desc.type}' cannot be built", "inputs and attributes of their types",
                f"{type(error).__name__}: {error}"[:200], "correct the operator", op=desc.type,
            ) from None  # fmt: skip
        finally:
            building.reset(token)
        where = self.where(place, desc.where)
        for made in block.ops[before:]:
            made.where, made.namescope = where, desc.namescope

    def slots(
        self, block: Block, place: Place, definition: OpDef, slots: Any, given: dict[str, list[str]], side: str
    ) -> dict[str, tuple[str, ...]]:
        """Checks the slots of an op and the variables that they name."""
        for name, row in given.items():
            slot: Slot | None = slots.get(name)
            if slot is None:
                raise self.refuse(
                    place, f"operator '{definition.type}' has no {side} '{name}'", f"one of {', '.join(slots) or 'none'}",
                    repr(name), near(name, slots) or "leave it out", op=definition.type,
                )  # fmt: skip
            if len(row) != 1 and not slot.many:
                raise self.refuse(
                    place, f"{side} '{name}' of operator '{definition.type}' takes one variable", "one name", f"{len(row)} names",
                    "name one variable, or leave the slot out", op=definition.type,
                )  # fmt: skip
            for var in row:
                if var != EMPTY and not self.has(block, var):
                    what = f"{side} '{name}' of operator '{definition.type}' names"
                    raise self.no_variable(place, what, var, block.vars, op=definition.type, var=var)
        for name, slot in slots.items():
            # Backward ops leave out what the program does not have; gradients of a result that nothing uses, for one.
            if name not in given and not slot.optional and not definition.type.endswith("_grad"):
                raise self.refuse(
                    place, f"operator '{definition.type}' needs {side} '{name}'", f"a variable in slot '{name}'", "nothing",
                    f"name a variable for '{name}'", op=definition.type,
                )  # fmt: skip
        return {name: tuple(row) for name, row in given.items()}

    def attributes(self, place: Place, definition: OpDef, given: dict[str, Any]) -> dict[str, Any]:
        """Checks an op's attributes and adds the defaults of those left out; the order in the source is kept."""
        for name in given:
            if name not in definition.attrs:
                raise self.refuse(
                    place, f"operator '{definition.type}' has no attribute '{name}'",
                    f"one of {', '.join(definition.attrs) or 'none'}",
                    repr(name), near(name, definition.attrs) or "leave it out", op=definition.type,
                )  # fmt: skip
        try:
            done = definition.complete(given)
        except TstaticError as error:
            fix = error.fix or "correct the attribute"
            raise self.refuse(place, error.what, error.expected, error.received, fix, op=definition.type) from None
        except OverflowError:
            raise self.refuse(
                place, f"an attribute of operator '{definition.type}' is too large for a float", "numbers below 1.8e308",
                repr(given)[:80], "write a smaller number", op=definition.type,
            ) from None  # fmt: skip
        for name, value in given.items():
            # A default may be of another type than what `clean` gives (an int for a float): equal values stay as written.
            spec = definition.attrs[name]
            if type(value) is type(spec.default) and value == spec.default:
                done[name] = value
            if spec.kind == "block" and not (type(value) is int and 0 <= value < len(self.desc.blocks)):
                raise self.no_block(
                    place, f"attribute '{name}' of operator '{definition.type}'", repr(value), op=definition.type
                )
        return {name: done[name] for name in [*given, *(n for n in done if n not in given)]}

    def check_owners(self, program: Program) -> None:
        """Refuses an op whose block holds, at some depth, the op itself: running it would never end."""
        done: set[int] = set()
        for root in range(len(program.blocks)):
            if root in done:
                continue
            path: set[int] = {root}
            stack: list[tuple[int, Iterator[tuple[int, int]]]] = [(root, _owned(program, root))]
            while stack:
                block, rest = stack[-1]
                found = next(rest, None)
                if found is None:
                    stack.pop()
                    path.discard(block)
                    done.add(block)
                    continue
                op, inner = found
                if inner in path:
                    raise self.refuse(
                        ("op", block, op), f"operator '{program.blocks[block].ops[op].type}' owns a block that holds it",
                        "a block of its own", f"block {inner}", "give the operator another block",
                        op=program.blocks[block].ops[op].type,
                    )  # fmt: skip
                if inner not in done:
                    path.add(inner)
                    stack.append((inner, _owned(program, inner)))


def _owned(program: Program, block: int) -> Iterator[tuple[int, int]]:
    for i, op in enumerate(program.blocks[block].ops):
        for inner in edit.sub_blocks(op):
            yield i, inner
