"""Program, Block, Operator, Variable and Parameter: the graph that users build."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from tstatic.display import counted
from tstatic.errors import IndexRangeError, NotFoundError, ProgramError, ProgramTypeError, near, shown
from tstatic.ir import names
from tstatic.ir.export import notes_signatures
from tstatic.ir.hooks import ProgramForms, ProgramView, hooks, text_of
from tstatic.ir.methods import ProgramMethods
from tstatic.ir.operator import OperatorBase, OpRole
from tstatic.ir.types import dtype_of
from tstatic.ir.variable import VariableBase, check_shape
from tstatic.no_effect import PRINTS, no_effect
from tstatic.undo import HERE, NotedAttributes, NotedDict, NotedList, put_back, take_off
from tstatic.where import Where, show, user_line

_ids = itertools.count()


class Variable(VariableBase):
    """A named value of a program; its arguments are attributes, too, ``where`` as ``made_at``.

    Args:
        block: The Block it belongs to; the constructor does not enter it there.
        name: Unique within its block.
        shape: Sizes; ``-1`` is unknown.
        dtype: Element type.
        persistable: Lives in the scope between runs.
        stop_gradient: No gradient flows to or through it.
        is_data: Declared by ``static.data``.
        need_check_feed: Whether the shape and dtype of a fed array are checked; those without ``is_data`` always are.
        lod_level, type: How deep its rows are nested in sequences, whose offsets ``lod`` names; and Paddle's kind of variable.
        where: The user's file and line that made it.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> y = paddle.matmul(x, x.transpose([1, 0])) + 1
        >>> y.shape, y.dtype, isinstance(y, paddle.Tensor)
        ((-1, -1), tstatic.float32, True)
        >>> static.Executor().run(feed={"x": np.array([[1, 2], [3, 4]], "float32")}, fetch_list=[y])[0]
        array([[ 6., 12.],
               [12., 26.]], dtype=float32)
    """

    block: Block
    need_check_feed: bool
    type: str
    made_at: Where | None
    initialised: bool
    """In a startup program: an op gives it its first value."""

    def __init__(
        self,
        block: Block,
        name: str,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        *,
        persistable: bool = False,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        lod_level: int = 0,
        type: str = "dense_tensor",
        where: Where | None = None,
    ) -> None:
        # Past `__setattr__`: nobody needs a note of what a new variable was before.
        self.__dict__.update(
            block=block,
            name=name,
            _shape=None if shape is None else check_shape(shape, "create_var", name),
            _dtype=None if dtype is None else dtype_of(dtype),
            _persistable=persistable,
            _stop_gradient=stop_gradient,
            _stop_origin="set" if stop_gradient else "",
            is_data=is_data,
            need_check_feed=need_check_feed,
            lod_level=lod_level,
            type=type,
            made_at=where,
            initialised=False,
        )

    def _touch(self) -> None:
        self.block.program._touch()

    def __repr__(self) -> str:
        kind = "Parameter" if isinstance(self, Parameter) else "Var"
        marks = [m for m, on in (("feed", self.is_data), ("persistable", self.persistable)) if on]
        tail = f" ({', '.join(marks)})" if marks and not isinstance(self, Parameter) else ""
        place = f" @ {show(self.made_at)}" if self.made_at else ""
        return f"{kind} {self.name}: {self.dtype.name}{list(self.shape)}{tail}{place}"

    @no_effect(throw_on_error=PRINTS)
    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """Returns one readable line: name, dtype, shape, marks; with ``with_details`` also the marks at their defaults."""
        return text_of(self, with_details)


class Parameter(Variable):
    """A persistable variable that optimizers update; its arguments are attributes, too.

    ``gradient_clip_attr`` is how ``fluid.clip.set_gradient_clip`` clips its gradient.

    Args:
        block, name, shape, dtype: As of :class:`Variable`; all sizes are known.
        trainable: Whether ``minimize`` updates it.
        optimize_attr: ``{"learning_rate": multiplier}``; 1.0 if ``None``.
        regularizer: Overrides the optimizer's weight decay.
        do_model_average, is_distributed: ``False`` keeps it out of averages of parameters; stored for Paddle scripts.
        need_clip: Whether gradient clipping takes it in.
        initializer: How its start value is made.
        **kwargs: Further arguments of :class:`Variable`.

    Example:
        >>> y = static.nn.fc(static.data("x", [None, 3]), 2)
        >>> w, b = static.default_main_program().all_parameters()
        >>> w.name, w.shape, w.trainable, isinstance(w, static.Parameter)
        ('fc_0.w_0', (3, 2), True, True)
    """

    trainable: bool
    optimize_attr: dict[str, Any]
    regularizer: Any
    do_model_average: bool | None
    need_clip: bool
    is_distributed: bool
    initializer: Any
    gradient_clip_attr: Any

    def __init__(
        self,
        block: Block,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        *,
        trainable: bool = True,
        optimize_attr: dict[str, float] | None = None,
        regularizer: Any = None,
        do_model_average: bool | None = None,
        need_clip: bool = True,
        is_distributed: bool = False,
        initializer: Any = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("stop_gradient", not trainable)
        super().__init__(block, name, shape, dtype, persistable=True, **kwargs)
        self.__dict__.update(
            trainable=trainable,
            optimize_attr={"learning_rate": 1.0} if optimize_attr is None else optimize_attr,
            regularizer=regularizer,
            do_model_average=do_model_average,
            need_clip=need_clip,
            is_distributed=is_distributed,
            initializer=initializer,
            gradient_clip_attr=None,
        )


class Operator(OperatorBase):
    """One op of a block: type, slots of variable names, attributes, role and the user's line; its arguments are attributes.

    Args:
        block: The Block it belongs to; the constructor does not enter it there.
        type: Op type, such as ``"relu"``.
        inputs, outputs: Slot -> names of variables.
        attrs: Attribute -> value.
        role, role_var: Bits of ``OpRole``; and, for an op of the optimizer, names of the parameter and its gradient.
        where: File and line of the user's statement.
        position: The op's number among all that were ever built in the block; random ops draw by it.
        namescope, device, updates: The ``name_scope``, the ``device_guard`` and the ``minimize`` calls around it.

    Example:
        >>> y = paddle.scale(static.data("x", [2]), 3.0)
        >>> op = static.default_main_program().global_block().ops[0]
        >>> op.type, op.input("X"), op.attr("scale")
        ('scale', ['x'], 3.0)
    """

    __slots__ = ()
    block: Block

    def _touch(self) -> None:
        self.block.program._touch()

    @property
    def idx(self) -> int:
        """Position in the block's list of ops."""
        for i, op in enumerate(self.block.ops):
            if op is self:
                return i
        raise ProgramError(
            f"operator '{self.type}' is not part of its block any more",
            expected="an op of the block",
            received="an op that was removed",
            fix="take ops from block.ops again after editing the block",
        )

    @no_effect(throw_on_error=PRINTS)
    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """Returns the op in the text form of ``print(program)``; with ``with_details`` every automatic attribute, too."""
        return text_of(self, with_details)

    __str__ = to_string


@notes_signatures()
class Block(NotedAttributes):
    """A list of ops and the variables they use; block 0 is the global one, others belong to control flow.

    Args:
        program: The Program it belongs to.
        idx: Its number among the program's blocks.
        parent_idx: Number of the block around it; -1 for none.
        forward_idx: For a block of gradients the number of the block they belong to; -1 for none.

    Example:
        >>> block = static.default_main_program().global_block()
        >>> x = static.data("x", [2])
        >>> y = paddle.tanh(x)
        >>> [op.type for op in block.ops], block.var("x") is x
        (['tanh'], True)
    """

    def __init__(self, program: Program, idx: int, parent_idx: int = -1, forward_idx: int = -1) -> None:
        self.program = program
        self.idx = idx
        self.parent_idx = parent_idx
        self.forward_block_idx = forward_idx
        self.vars: NotedDict[Variable] = NotedDict()
        self.ops: list[Operator] = NotedList()
        self.excludes: tuple[Operator, ...] = ()  # ops of other branches, which do not run where this block does
        # In a block of gradients: what stands before the names of its gradients.
        self.grad_prefix = ""
        # Counts every op ever built here, so that removing or inserting one moves no random op's position.
        self.built = 0

    def _append(self, op: Operator) -> None:
        """Adds an op at the end and counts it."""
        journal, own = HERE.journal, self.__dict__
        if journal is not None:
            journal.append((take_off, self, len(self.ops), own["built"]))
        own["built"] += 1
        list.append(self.ops, op)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "ops":
            value = NotedList(value)
        elif name == "vars":
            value = NotedDict(value)
        super().__setattr__(name, value)

    @property
    def parent(self) -> Block | None:
        return None if self.parent_idx < 0 else self.program.blocks[self.parent_idx]

    def var(self, name: str) -> Variable:
        """Returns the variable of that name in this block.

        Raises:
            ProgramTypeError: If ``name`` is not a str.
            NotFoundError: If there is none.
        """
        if not isinstance(name, str):
            raise ProgramTypeError(
                "a variable is looked up by its name",
                expected="a str",
                received=shown(name),
                fix="pass the variable's name",
            )
        found = self.vars.get(name)
        if found is None:
            raise NotFoundError(
                f"var {name} not in this block",
                expected=f"one of the {len(self.vars)} variables of block {self.idx}",
                received=repr(name),
                fix=near(name, self.vars) or "list them with block.vars",
                var=name,
            )
        return found

    def has_var(self, name: str) -> bool:
        return name in self.vars

    def has_var_recursive(self, name: str) -> bool:
        return self._find_var_recursive(name) is not None

    def _find_var_recursive(self, name: str) -> Variable | None:
        block: Block | None = self
        while block is not None:
            found = block.vars.get(name)
            if found is not None:
                return found
            block = block.parent
        return None

    def _var_recursive(self, name: str) -> Variable:
        found = self._find_var_recursive(name)
        if found is None:
            raise NotFoundError(
                f"Var {name} is not found recursively",
                expected="a variable of this block or of one around it",
                received=repr(name),
                fix=near(name, self.vars) or "list them with program.list_vars()",
                var=name,
            )
        return found

    def create_var(self, *, name: str | None = None, **kwargs: Any) -> Variable:
        """Adds a variable, or returns the one of that name; an ``initializer`` appends the op that fills it to this block.

        Raises a ProgramTypeError or ShapeError for a shape that is none, and a ShapeError, DTypeError or ProgramError if the one of
        that name has another shape, dtype, lod_level or persistable.
        """
        name = names.generate("_generated_var") if name is None else name
        initializer, kind = kwargs.pop("initializer", None), kwargs.pop("type", None)
        if (var := self.vars.get(name)) is not None:
            var._check_same(**kwargs)
        else:
            kind = (kind if isinstance(kind, str | None) else getattr(kind, "name", "").lower()) or "dense_tensor"
            var = self.vars[name] = Variable(self, name, type=kind, where=user_line(), **kwargs)
            self.program._touch()
        if initializer is not None:
            initializer(var, self)
        return var

    @no_effect(type="parameters are dense tensors")
    def create_parameter(self, shape: Any = None, dtype: Any = None, type: Any = None, **kwargs: Any) -> Parameter:
        """Adds a parameter to the global block (see :class:`Parameter`); all sizes of its ``shape`` must be known.

        An ``initializer`` appends the op that fills it to this block, unless an op of the global block writes it already.

        Raises:
            ShapeError, ProgramError: If the shape is missing, not positive, or differs from an earlier parameter's.
        """
        kwargs.update({key: value for key, value in (("shape", shape), ("dtype", dtype)) if value is not None})
        parameter = hooks.create_parameter(self.program, **kwargs)
        written = (name for op in self.program.global_block().ops for name in op.output_arg_names)
        if parameter.initializer is not None and parameter.name not in written:  # one that layers share has its op
            parameter.initializer(parameter, self)
        return parameter  # type: ignore[no-any-return]

    def append_op(
        self,
        type: str,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Operator:
        """Checks and appends an op; slots of ``inputs`` and ``outputs`` hold variables, names, or lists of them.

        ``type`` is its op type, ``attrs`` its attributes; those left out have their defaults.
        """
        return hooks.append_op(self, type, inputs or {}, outputs or {}, attrs, **kwargs)  # type: ignore[no-any-return]

    def _insert_op(self, index: int, **kwargs: Any) -> Operator:
        op = self.append_op(**kwargs)
        self.ops.pop()  # `append_op` checks and counts it, at the end
        self.ops.insert(index, op)
        return op

    def _prepend_op(self, **kwargs: Any) -> Operator:
        return self._insert_op(0, **kwargs)

    def _remove_op(self, index: int, sync: bool = True) -> None:
        del self.ops[index]
        self.program._touch()

    def _remove_var(self, name: str, sync: bool = True) -> None:
        self.vars.pop(name, None)
        self.program._touch()

    def _rename_var(self, old: str, new: str) -> Variable:
        if new in self.vars:
            raise ProgramError(
                f"cannot rename '{old}' to '{new}': the name is taken",
                expected="a new name", received=repr(new), fix=f"choose a free name, such as '{new}_1'", var=old,
            )  # fmt: skip
        var = self.var(old)
        self.vars = NotedDict((new if n == old else n, v) for n, v in self.vars.items())
        var.name = new
        for other in self.vars.values():  # their offsets are variables, too
            other.lod = tuple(new if n == old else n for n in other.lod)
        for op in self.ops:
            op._rename_input(old, new)
            op._rename_output(old, new)
        self.program._touch()
        return var

    def all_parameters(self) -> list[Parameter]:
        return list(self.iter_parameters())

    def iter_parameters(self) -> Iterator[Parameter]:
        return (v for v in self.vars.values() if isinstance(v, Parameter))

    @no_effect(throw_on_error=PRINTS)
    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """Returns the block in the text form of ``print(program)``; with ``with_details`` all marks and attributes, too."""
        return text_of(self, with_details)

    def __repr__(self) -> str:
        return f"Block {self.idx} of {self.program!r}: {counted(len(self.ops), 'op')}, {counted(len(self.vars), 'variable')}"

    __str__ = to_string


@notes_signatures()
class Program(ProgramMethods, ProgramForms, NotedAttributes):
    """What to compute: blocks of ops over named variables.

    Programs compare by identity. ``version`` changes with every edit, so that compiled plans are never stale.

    Example:
        >>> main = static.Program()
        >>> with static.program_guard(main):
        ...     y = paddle.tanh(static.data("x", [2]))
        >>> len(main.global_block().ops), len(static.default_main_program().global_block().ops)
        (1, 0)
    """

    _first_seed: ClassVar[int] = 0  # of programs made from now on
    fetches_convert: bool = False
    """Whether fetched arrays convert to numbers: ``fluid`` built it; under ``as_paddle`` all programs, by the class."""

    def __init__(self) -> None:
        self.uid = next(_ids)  # with the version a part of the keys of plans
        self.version = 0
        self._last_version = 0  # the largest until now: a refused call brings back an older version
        self.blocks: list[Block] = [Block(self, 0)]
        self.current_block_idx = 0
        self._seed = Program._first_seed
        self._role = OpRole.Forward
        self._role_var: tuple[str, ...] = ()
        self._updates: tuple[int, ...] = ()
        # Facts that later stages attach; copied by clone. Rates by variable: a scheduler, a SetRate, or None after loading.
        self.learning_rates: dict[str, Any] = {}
        self.loss_name: str | None = None
        self.mixed_precision: tuple[Any, ...] = ()
        self.readers: list[Any] = []  # loaders that give a run what its feed lacks
        # How processes run it together: settings of fleet, or True for those of a plain program.
        self.distributed: Any = None
        self.collectives = False  # whether ops of its own exchange values between processes
        self._is_test = False
        self.error_clips: dict[str, dict[str, float]] = {}  # variable -> limits of its gradient, see `_set_error_clip`
        self._appending_grad_times = 0  # how often gradients were appended; names of higher orders begin with ``grad/``
        self._from_file = False
        self.feed_names: tuple[str, ...] = ()  # inputs of an inference program, in order
        self.fetch_names: tuple[str, ...] = ()  # and its results

    def _touch(self) -> None:
        # Past `__setattr__`, which takes longer: every edit comes here. A refused call brings the old version back with the old
        # program; the next edit has a number that no program had before.
        own = self.__dict__
        journal = HERE.journal
        if journal is not None:
            journal.append((put_back, own, "version", own["version"]))
        own["version"] = own["_last_version"] = own["_last_version"] + 1

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, NotedList(value) if name in ("blocks", "readers") else value)

    @property
    def random_seed(self) -> int:
        """Seed of the program's random ops; 0 uses ``paddle.seed`` or, without it, entropy drawn once a process."""
        return self._seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ProgramTypeError(
                f"Program.random_seed's input seed must be an integer, but received {type(seed).__name__}",
                expected="an int",
                received=repr(seed),
                fix="set an int; 0 means not fixed",
            )
        self._seed = seed
        self._touch()

    def global_seed(self, seed: int = 0) -> None:
        """Sets the seed of this program and of all programs made later."""
        self.random_seed = seed
        Program._first_seed = seed

    @property
    def num_blocks(self) -> int:
        return len(self.blocks)

    def global_block(self) -> Block:
        return self.blocks[0]

    def block(self, index: int) -> Block:
        """Returns block ``index``.

        Raises:
            IndexRangeError: If there is no such block.
        """
        if not 0 <= index < len(self.blocks):
            raise IndexRangeError(
                f"there is no block {index}",
                expected=f"a number from 0 to {len(self.blocks) - 1}", received=index, fix="see program.num_blocks",
            )  # fmt: skip
        return self.blocks[index]

    def current_block(self) -> Block:
        return self.blocks[self.current_block_idx]

    def _create_block(self, parent_idx: int | None = None) -> Block:
        parent = self.current_block_idx if parent_idx is None else parent_idx
        block = Block(self, len(self.blocks), parent)
        self.blocks.append(block)
        self.current_block_idx = block.idx
        self._touch()
        return block

    def _rollback(self) -> None:
        self.current_block_idx = self.current_block().parent_idx

    @contextlib.contextmanager
    def _role_guard(self, role: int, role_var: tuple[str, ...] = ()) -> Iterator[None]:
        # Past `__setattr__`: what is put back here needs no note.
        own = self.__dict__
        old = self._role, self._role_var
        try:
            own["_role"], own["_role_var"] = role, role_var
            yield
        finally:
            own["_role"], own["_role_var"] = old

    def _optimized_guard(self, param_and_grads: Sequence[Any]) -> Any:
        names = tuple(v.name if isinstance(v, Variable) else str(v) for v in param_and_grads)
        return self._role_guard(OpRole.Optimize, names)

    def _lr_schedule_guard(self, is_with_opt: bool = False) -> Any:
        return self._role_guard(OpRole.LRSched | (OpRole.Optimize if is_with_opt else 0))

    def _backward_role_guard(self) -> Any:
        return self._role_guard(OpRole.Backward)

    def all_parameters(self) -> list[Parameter]:
        return [p for block in self.blocks for p in block.iter_parameters()]

    def list_vars(self) -> Iterator[Variable]:
        for block in self.blocks:
            yield from block.vars.values()

    def clone(self, for_test: bool = False) -> Program:
        """Returns a deep copy with the same variable names, so that parameters are shared by scope.

        Args:
            for_test: Leave out backward, optimizer and learning-rate ops, and set ``is_test`` on dropout and batch norm.
        """
        return hooks.clone(self, for_test)  # type: ignore[no-any-return]

    def _prune(self, targets: Any) -> Program:
        return hooks.prune(self, [], targets)  # type: ignore[no-any-return]

    def _prune_with_input(self, feeded_var_names: Sequence[str], targets: Any) -> Program:
        return hooks.prune(self, list(feeded_var_names), targets)  # type: ignore[no-any-return]

    def _version(self) -> int:
        return self.version

    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """Returns the program in readable code form, ``with_details`` with defaults; :meth:`parse_from_text` reads it back.

        ``throw_on_error`` does nothing; both must be bools.
        """
        return text_of(self, with_details, throw_on_error)

    @staticmethod
    def parse_from_text(source: str) -> Program:
        """Reads back what ``print(program)`` wrote (see :func:`tstatic.formats.parse.parse`)."""
        return hooks.parse(source)  # type: ignore[no-any-return]

    @staticmethod
    def parse_from_string(binary_str: bytes) -> Program:
        """Reads back what ``program.desc.serialize_to_string()`` gave (see :func:`tstatic.formats.serial.decode`)."""
        return hooks.decode(binary_str)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        return f"<Program {self.uid}: {counted(len(self.blocks), 'block')}, {counted(sum(len(b.ops) for b in self.blocks), 'op')}>"

    def __deepcopy__(self, memo: Any) -> Program:
        return self.clone()

    __copy__ = clone


__all__ = ["Block", "OpRole", "Operator", "Parameter", "Program", "ProgramView", "Variable", "hooks"]
