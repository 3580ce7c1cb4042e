"""The op definition (what an op is) and the one registry of op definitions and of the public names they go by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import numpy as np

from tstatic.errors import NotFoundError, ProgramError, near
from tstatic.ir.attrs import EMPTY, EXPECT, GRAD, LOD, NO_ATTRS, REQUIRED, Attr, OpSpec, Slot, parse_slots
from tstatic.ir.channels import Channels
from tstatic.ir.drawn import Drawn
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.export import PUBLIC_API, Export, export, namespace
from tstatic.ir.formula import UpdateFormula
from tstatic.ir.indices import Index
from tstatic.ir.pointwise import PointwiseRef, Prepare, Rows, derive_gradient, same_as_first, torch_lowering
from tstatic.ir.ref import NO_REF, ExpressionRef, Ref, as_ref, keywords, pick
from tstatic.ir.registry import Registry
from tstatic.ir.split import PARTIAL_SUM, WHOLE, Tile
from tstatic.ir.traits import HostOnly, Reason, Slots, Trait
from tstatic.ir.types import Meta
from tstatic.locks import cached_property

if TYPE_CHECKING:
    from tstatic.ir.paddle_form import PaddleForm

__all__ = [
    "DERIVE", "EMPTY", "GRAD", "LOD", "NO_ATTRS", "OPS",
    "PARTIAL_SUM", "PUBLIC_API", "REQUIRED", "WHOLE",
    "Attr",
    "Behaviour",
    "Case",
    "Cost",
    "Domain",
    "Export",
    "GradContext",
    "GradOp",
    "Index",
    "OpDef",
    "OpSpec",
    "Slot",
    "Tile",
    "ValueRange",
    "export",
    "namespace",
    "op_def",
    "parse_slots",
    "register",
    "with_",
]  # fmt: skip


# ------------------------------------------------------------------------------------------------ where tests sample
@dataclass(frozen=True, slots=True)
class ValueRange:
    """Where the elements of one input may be sampled.

    Attributes:
        low, high: Bounds. A text such as ``"W.0"`` for ``high`` means the size of axis 0 of input ``W`` (for indices).
        avoid: Points (kinks, poles) that float samples keep a distance of 0.01 from; ``"int"`` avoids all integers.
        dtype: ``"float"`` follows the tested float type, ``"complex"`` is the complex type of it; otherwise a dtype's name.
        distinct: No two elements closer than 0.01 (ties of max, sort, top-k).
        rows: Each row along the last axis is positive and sums to 1 (soft labels, probabilities).
        ordered: Each row along the last axis ascends.
        offsets: ``"X.0"``: rising numbers from 0 to the size of axis 0 of input ``X`` (sequence offsets, some of them equal).
    """

    low: float = -2.0
    high: float | str = 2.0
    avoid: tuple[float, ...] | str = ()
    dtype: str = "float"
    distinct: bool = False
    rows: bool = False
    regular: bool = False
    offsets: str = ""
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Shapes (one per input slot: a shape, ``None`` for an absent input, a list of shapes for a ``*`` slot) and attributes."""

    shapes: tuple[Any, ...]
    attrs: Mapping[str, Any] = NO_ATTRS


Family = Literal["unary", "binary", "cases"]
Complex = Literal["", "linear", "holomorphic", "own"]
TorchRun = Literal["out", "alloc", "host"]
"""How an op runs on a device of torch: its form writes where it is told, or returns new tensors; or its reference runs."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Where tests may sample an op: plain data, so that the library needs no test tool.

    Attributes:
        family: ``"unary"`` (any shape), ``"binary"`` (any two shapes that broadcast) or ``"cases"`` (the listed ones only).
        cases: Explicit cases, tried besides the family's.
        attrs: Alternatives of attributes tried with the family's shapes.
        values: Slot name -> :class:`ValueRange`; slots not named get the default range.
        floats: Float types that the op takes.
        others: Further dtypes tried in the place of the float type (``"int64"``, ``"bool"``); no gradients there.
        ulps: Allowed distance of ``ref`` and ``lower`` in units in the last place. "Seen": the most of 40 samples.
        check_grad: ``False`` only with a reason (a text) why finite differences cannot apply.
    """

    family: Family = "cases"
    cases: tuple[Case, ...] = ()
    attrs: tuple[Mapping[str, Any], ...] = (NO_ATTRS,)
    values: Mapping[str, ValueRange] = field(default_factory=dict)
    floats: tuple[str, ...] = ("float32", "float64", "float16", "bfloat16")
    others: tuple[str, ...] = ()
    ulps: float = 8.0
    check_grad: bool | str = True


# --------------------------------------------------------------------------------------------------- op definition
@dataclass(frozen=True, slots=True)
class GradContext:
    """What a gradient rule that emits ordinary ops knows about its forward op.

    Attributes:
        inputs, outputs: Slot -> variable names of the forward op.
        attrs: The forward op's attributes.
        out_grads: Forward output name -> name of its gradient; a missing name means that no gradient arrives.
        in_grads: Forward input name -> name to write its gradient to; a missing name means that none is wanted. The name
            may be written by several ops (all are added), and must not be read.
        meta: Variable name -> :class:`Meta`.
        fresh: Returns a new temporary name.
        differentiate: For ops that own blocks: ``(block index, output names, input names) -> grad block index``; the new
            block reads ``name@GRAD`` of the outputs and writes ``name@GRAD`` of those inputs that a gradient reaches.
        asked: Variables whose gradients the user asks for by name, so that none of their contributions may be left out.
    """

    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]
    attrs: Mapping[str, Any]
    out_grads: Mapping[str, str]
    in_grads: Mapping[str, str]
    meta: Callable[[str], Meta]
    fresh: Callable[[str], str]
    differentiate: Callable[[int, Sequence[str], Sequence[str]], int] | None = None
    asked: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Cost:
    """Floating-point operations and bytes read and written."""

    flops: float
    bytes: float

    def times(self, count: int) -> Cost:
        """Returns the cost of as much work ``count`` times, as that of the gradients which are wanted."""
        return Cost(self.flops * count, self.bytes * count)


class _Derive:
    def __repr__(self) -> str:
        return "DERIVE"


DERIVE = _Derive()
"""As ``grad``: the backward op follows from the pointwise expression by differentiation."""


_Trait = TypeVar("_Trait", bound=Trait)


class _RefField:
    """The field ``ref``: given a reference, a bare function or nothing, it always holds a :class:`Ref`."""

    def __get__(self, definition: OpDef | None, owner: type) -> Ref:
        return NO_REF if definition is None else cast(Ref, definition.__dict__["ref"])

    def __set__(self, definition: OpDef, given: Ref | Callable[..., Any] | None) -> None:
        definition.__dict__["ref"] = as_ref(given)


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What forward and backward ops state alike.

    All functions take the input slots positionally (``None`` for an absent optional one, a list for a ``*`` slot) and,
    as keywords, those attributes that their signature names.

    Attributes:
        infer: ``(*input metas, **attrs) -> Meta`` or a tuple of one Meta per output slot (a list for a ``*`` slot,
            ``None`` for an absent one). Raises ShapeError or DTypeError. Unknown sizes are ``-1``.
        lower: The torch form: ``(torch, *input tensors, **attrs) -> tensor`` or a tuple of one per output slot, on the device of
            the inputs (which a form without inputs gets as ``device``). One that takes ``out``, the result's tensor or a tuple of
            one per output slot (``None`` where nobody reads it), writes there and makes no other tensor of that size; without
            ``out`` it returns new tensors, as any form does in tests. One that takes ``wanted`` returns new tensors, and ``None``
            where that has False. One that takes ``tables`` makes tensors of numbers of the host by it (``ir/torch_tables.py``).
        grad: :class:`GradOp`, a function that answers with ordinary ops, or ``None``.
        pointwise: Output slot -> expression over the slots' lower-case names; the op is fusable *because* it states one.
        prepare: For pointwise ops: maps ``(inputs, attrs)`` to inputs that broadcast by numpy's rule.
        split: ``(*input metas, *output metas, **attrs) -> list of tiles`` or ``None`` when the work is too small. Must not
            depend on anything but shapes and attributes.
        cost: ``(*input metas, *output metas, **attrs) -> Cost``.
        shape_only: Input slots of which only the shape is used.
        linear_in: Of a backward op: input slots in which the forward op is linear, so that only the gradients of the others
            read them.
        inplace: Pairs (input slot, output slot) that may share a buffer when the input dies here.
        effects: Prints, calls Python, or raises depending on values: never removed or merged.
        dynamic: Why the output's shape depends on values, not only on shapes; ``None`` where it does not.
        indices: The inputs that hold positions, and their limits: checked before the op runs, on every device.
        rows: ``(*input metas, **attrs) -> Rows`` for ops along rows, ``None`` where the axes are not the last ones.
        channels: ``(*input metas, **attrs) -> Channels`` for ops on channels, ``None`` where there are no elements.
        domain: Where tests may sample; ``None`` for ops that own blocks or call Python (tested through programs).
        traits: What few ops state, each a class of ``ir/traits.py``; :meth:`OpDef.trait` answers with one.
    """

    infer: Callable[..., Any] | None = None
    lower: Callable[..., Any] | None = None
    grad: GradRule | None = None
    pointwise: Mapping[str, str] | None = None
    prepare: Prepare | None = None
    split: Callable[..., list[Tile] | None] | None = None
    cost: Callable[..., Cost] | None = None
    shape_only: tuple[str, ...] = ()
    linear_in: tuple[str, ...] = ()
    inplace: tuple[tuple[str, str], ...] = ()
    effects: bool = False
    dynamic: Dynamic | None = None
    indices: tuple[Index, ...] = ()
    rows: Callable[..., Rows | None] | None = None
    channels: Callable[..., Channels | None] | None = None
    domain: Domain | None = None
    traits: tuple[Trait, ...] = ()

    def trait(self, kind: type[_Trait]) -> _Trait | None:
        """Returns the trait of a class, ``None`` if it is not stated."""
        return next((one for one in self.traits if isinstance(one, kind)), None)

    def has(self, kind: type[Trait]) -> bool:
        """Returns whether a trait is stated."""
        return self.trait(kind) is not None

    def needs(self, kind: type[_Trait]) -> _Trait:
        """Returns a trait that must be stated here."""
        found = self.trait(kind)
        assert found is not None, f"no {kind.__name__} is stated"
        return found

    def why(self, kind: type[Reason]) -> str:
        """Returns the reason of a trait, ``""`` if it is not stated."""
        found = self.trait(kind)
        return "" if found is None else found.why

    def slots_of(self, kind: type[Slots]) -> tuple[str, ...]:
        """Returns the slots of a trait, none if it is not stated."""
        found = self.trait(kind)
        return () if found is None else found.slots


@dataclass(frozen=True)
class GradOp(Behaviour):
    """The backward op ``<type>_grad``: its slots and its functions; attributes are the forward op's.

    ``infer`` may be left out: the gradient of a forward input that is among the inputs has that input's metadata, any
    other has that of the first incoming gradient.

    Attributes:
        slots: ``"X, Out, Out@GRAD -> X@GRAD"``.
        ref: As the forward op's.
        instead: For the error where somebody differentiates an op without ``grad`` again: how to build the same function so that
            it has second gradients.
        unstated: Forward inputs whose gradient a user's registration says nothing of: to need one is an error.
    """

    slots: str
    ref: Ref | Callable[..., Any] | None = None
    instead: str = ""
    unstated: tuple[str, ...] = ()


GradRule = GradOp | Callable[[GradContext], list[OpSpec]] | _Derive


@dataclass(frozen=True)
class OpDef(Behaviour):
    """What an op is: one frozen record, the only place that knows the op; :class:`Behaviour` has what its backward op states, too.

    Attributes:
        type: Paddle's op type.
        slots: ``"X, Y? -> Out, Mask~"``.
        attrs: Attribute name -> :class:`Attr` or a default value.
        ref: A :class:`~tstatic.ir.ref.Ref`, or a bare function ``(*input arrays, *output arrays, **attrs)``: numpy, writes every
            output that is not ``None`` and keeps none of its arguments; it takes any strides and works in float64. It *is* the
            op's definition and its CPU execution.
        view: ``(array, **attrs) -> array``: the first output is a view of the first input and needs no step; ``None`` where
            the strides of the array need a copy (then ``ref`` runs).
        state: Pairs (input slot, output slot) that name the same persistable variable (optimizer updates, running statistics).
        random: Draws from the counter-based generator (``rng``).
        drawn: ``(*input metas, **attrs) -> Drawn`` for random ops that kernels can be, ``None`` where one cannot: its numbers
            are those of ``ref`` in every bit.
        update: May run after the commit point: cannot fail on its values and allocates nothing.
        objects: Slots that hold a Python list (saved scopes of control flow) instead of an array.
        amp: The list of mixed precision that the op is on: ``"white"`` runs in 16 bits, ``"black"`` in float32, ``"gray"`` as
            its inputs, ``"float32"`` in float32 at level O2 as well, because 16 bits gain nothing there; ``""`` for none.
        float32_inputs: Input slots that mixed precision leaves in float32.
        api: Public spellings that are this op with its slots and attributes renamed at most.
        of: The forward op's type, for a backward op.
        kernel: A user's own kernel (``fusion/user/user_kernel.py``); ``ref`` says what it computes.
        formula: What an optimizer update computes; fusions of updates take those that state one.
        uses_blas: It or its backward op calls BLAS, which a session then holds to one thread.
        complex: What it does with complex values. ``""`` refuses them. ``"linear"`` is linear with real factors: its shape rule
            and its gradient are those of floats. ``"holomorphic"`` has a complex derivative, which its gradient multiplies by:
            what arrives and what leaves is conjugated. ``"own"`` has a shape rule and a gradient that know complex dtypes.
        collective: All replicas meet in it; ``ref`` gets this replica's place among them as ``group``.
        lod: The input slot whose row offsets those results share that have its rows, ``"*"`` for any (the default of pointwise
            ops), ``"X[:-1]"`` for all levels but the innermost. ``infer`` says which results have its rows. Those in ``Out``
            have the offsets that the op writes to ``Out@LOD`` behind them.
        paddle: How it stands in Paddle's files; ``None`` if as here.
        onnx: Its form in ONNX, ``(g, *inputs, **attrs)`` (:class:`~tstatic.ir.onnx_graph.Graph`), or a text: why it has none.
            ``None`` where that follows: pointwise expressions are translated, and :mod:`~tstatic.ir.onnx_form` finds reasons.
    """

    type: str
    slots: str
    attrs: Mapping[str, Any] = NO_ATTRS
    ref: _RefField = _RefField()
    view: Callable[..., np.ndarray[Any, Any] | None] | None = None
    state: tuple[tuple[str, str], ...] = ()
    random: bool = False
    drawn: Callable[..., Drawn | None] | None = None
    update: bool = False
    objects: tuple[str, ...] = ()
    amp: str = ""
    float32_inputs: tuple[str, ...] = ()
    of: str = ""
    formula: UpdateFormula | None = None
    uses_blas: bool = False
    complex: Complex = ""
    collective: bool = False
    lod: str | None = None
    kernel: Any = None
    paddle: PaddleForm | None = None
    onnx: Callable[..., Any] | str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "attrs", MappingProxyType({n: Attr.of(a) for n, a in self.attrs.items()}))

    @cached_property
    def inputs(self) -> tuple[Slot, ...]:
        return parse_slots(self.slots)[0]

    @cached_property
    def outputs(self) -> tuple[Slot, ...]:
        return parse_slots(self.slots)[1]

    @cached_property
    def input_slots(self) -> Mapping[str, Slot]:
        return {s.name: s for s in self.inputs}

    @cached_property
    def output_slots(self) -> Mapping[str, Slot]:
        return {s.name: s for s in self.outputs}

    @cached_property
    def expression(self) -> ExpressionRef | None:
        """The expressions that the op states; with ``pointwise`` these, whatever the reference is made of."""
        return self.ref.expression if self.pointwise is None else _pointwise_ref(self)

    def pick(self, function: Callable[..., Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns those attributes that a function names in its signature (all of them if it takes ``**attrs``)."""
        known = vars(self).setdefault("_picked", {})  # binding to a new size asks for each op; half take none
        if (names := known.get(function)) is None:
            names = known[function] = tuple(pick(function, self.attrs))
        return {n: attrs[n] for n in names if n in attrs} if names else {}

    def complete(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Checks given attributes and fills in defaults.

        Raises:
            ProgramError: For an unknown or a missing attribute, or a value that cannot be used.
        """
        done: dict[str, Any] = {}
        for name, spec in self.attrs.items():
            if name in attrs:
                done[name] = spec.clean(self.type, name, attrs[name])
            elif spec.default is REQUIRED:
                raise ProgramError(
                    f"attribute '{name}' of operator '{self.type}' is missing",
                    expected=EXPECT[spec.kind],
                    received="nothing",
                    fix=f"pass '{name}' in attrs",
                    op=self.type,
                )
            else:
                done[name] = spec.default
        return done

    @cached_property
    def host_reason(self) -> str:
        """Why the op runs as its reference, on the host, on devices of torch; empty where its torch form runs there."""
        if (stated := self.trait(HostOnly)) is not None and not stated.slot:
            return stated.why
        if self.random:
            return "its random numbers are the reference's"
        if self.effects and not self.indices:
            return "it prints, calls Python, or raises depending on values"
        if self.dynamic:
            return "the size of its result depends on values"
        if self.objects:
            return "it works on Python objects"
        if self.collective:
            return "the replicas meet in it"
        return "" if self.lower is not None else "it has no torch form"

    def host_reason_of(self, given: Callable[[str], bool]) -> str:
        """Returns :attr:`host_reason` of an op of which ``given`` says whether a slot holds a value."""
        if (stated := self.trait(HostOnly)) is not None and stated.slot and given(stated.slot):
            return stated.why
        if any(one.some and given(one.slot) for one in self.indices):
            return "values decide which of its positions are read"
        return self.host_reason

    @cached_property
    def torch_run(self) -> TorchRun:
        """How the op runs on devices of torch."""
        if self.host_reason:
            return "host"
        assert self.lower is not None
        # A keyword of its own: a backward op may have an input that its function calls `out`.
        return "out" if "out" in keywords(self.lower) else "alloc"

    @property
    def api(self) -> tuple[str, ...]:
        """The public names whose function stands in this op definition's file and carries this op definition's type."""
        return tuple(name for name, entry in PUBLIC_API.items() if entry.op == self.type)


# ------------------------------------------------------------------------------------------------------------- registry
class _Ops(Registry[OpDef]):
    def __init__(self) -> None:
        super().__init__()
        self._stating: dict[type[Trait], tuple[object, tuple[str, ...]]] = {}

    def loaded_with(self, kind: type[Trait]) -> tuple[str, ...]:
        """Returns the types of the loaded ops that state a trait, in the order in which they were loaded."""
        # Asked before the look: what another thread adds meanwhile makes the next one look again.
        version = self.version
        known = self._stating.get(kind)
        if known is None or known[0] is not version:
            known = version, tuple(type for type, definition in [*self.loaded.items()] if definition.has(kind))
            self._stating[kind] = known
        return known[1]

    def __getitem__(self, type: str) -> OpDef:
        # A backward op is registered with its forward op: if that one is there, no other module has to be searched.
        stem = type
        while self.find(stem) is None and isinstance(stem, str) and stem.endswith("_grad"):
            stem = stem[:-5]  # more than once for gradients of gradients
        return self.loaded[type] if stem in self.loaded else super().__getitem__(type)


OPS = _Ops()


def register(definition: OpDef, backward: GradOp | None = None) -> OpDef:
    """Adds an op definition, and the definition of its backward op if it states one; fills in what follows from ``pointwise``.

    Args:
        definition: The op definition.
        backward: The backward op of an op definition whose ``grad`` is a function that emits it, perhaps among other ops.
    """
    if definition.pointwise is not None:
        definition = _complete_pointwise(definition)
    OPS.add(definition.type, definition)
    rule = definition.grad if isinstance(definition.grad, GradOp) else backward
    if rule is not None:
        register(_backward_op_def(definition, rule))
    return definition


def _complete_pointwise(definition: OpDef) -> OpDef:
    assert definition.pointwise is not None
    changes: dict[str, Any] = {}
    if definition.ref is NO_REF:
        changes["ref"] = _pointwise_ref(definition)
    if definition.lower is None:
        params = [s.param for s in definition.inputs]
        changes["lower"] = torch_lowering(
            params, _texts(definition), len(definition.outputs), tuple(definition.attrs), definition.prepare
        )
    if definition.infer is None:
        changes["infer"] = same_as_first
    if definition.lod is None:
        changes["lod"] = "*"  # rows stay in their places
    if len(definition.inputs) > 1:
        # Inputs that are broadcast have gradients that are summed.
        changes["uses_blas"] = True
    if not definition.inplace and len(definition.outputs) == 1 and definition.prepare is None:
        changes["inplace"] = tuple((s.name, definition.outputs[0].name) for s in definition.inputs)
    return replace(definition, **changes)


def _texts(definition: OpDef) -> dict[int, str]:
    assert definition.pointwise is not None
    position = {s.name: i for i, s in enumerate(definition.outputs)}
    return {position[name]: text for name, text in definition.pointwise.items()}


def _pointwise_ref(definition: OpDef) -> PointwiseRef:
    params = [s.param for s in definition.inputs]
    return PointwiseRef(params, _texts(definition), tuple(definition.attrs), definition.prepare)


def _derive(base: OpDef) -> OpDef | None:
    """Derives the backward op of a pointwise op that states no gradient of its own (second order and beyond)."""
    if base.pointwise is None or base.grad is not DERIVE:
        return None
    outs = {s.param: base.pointwise[s.name] for s in base.outputs if s.name in base.pointwise}
    names = [s for s in base.inputs if s.name not in base.shape_only]
    gradients = derive_gradient([s.param for s in base.inputs], outs, [s.param for s in names])
    names = [s for s in names if gradients[s.param] != "0"]  # the result does not depend on the others
    slots = ",".join(f"{s.name}{'?' * s.optional}" for s in base.inputs)
    slots += "," + ",".join(f"{s.name}{GRAD}" for s in base.outputs) + "->" + ",".join(f"{s.name}{GRAD}" for s in names)
    rule = GradOp(slots, pointwise={f"{s.name}{GRAD}": gradients[s.param] for s in names}, grad=DERIVE)
    return register(_backward_op_def(base, rule))


def _backward_op_def(forward: OpDef, rule: GradOp) -> OpDef:
    inputs, outputs = parse_slots(rule.slots)
    if rule.infer is not None:
        infer = rule.infer
    else:
        names = [s.name for s in inputs]
        first = next(i for i, n in enumerate(names) if n.endswith(GRAD))
        sources = [names.index(o.name[: -len(GRAD)]) if o.name[: -len(GRAD)] in names else first for o in outputs]

        def infer(*metas: Any) -> Any:
            return tuple(metas[s] for s in sources)

    return OpDef(
        type=f"{forward.type}_grad",
        # Which gradients are wanted depends on the program, so every output of a backward op is optional.
        slots=",".join(s.name + "*" * s.many + "?" * s.optional for s in inputs)
        + "->"
        + ",".join(s.name + "*" * s.many + "?" for s in outputs),
        attrs=forward.attrs,
        infer=infer,
        ref=rule.ref,
        amp="gray" if forward.amp else "",
        uses_blas=forward.uses_blas,
        complex=forward.complex,
        of=forward.type,
        **{f.name: getattr(rule, f.name) for f in fields(Behaviour) if f.name != "infer"},
    )


def find_op_def(type: str) -> OpDef | None:
    """Returns the definition of an op type, derived if it is that of a backward op; ``None`` if there is none."""
    definition = OPS.find(type) or OPS.get(type)
    if definition is None and isinstance(type, str) and type.endswith("_grad"):
        stem = type
        while stem.endswith("_grad") and stem not in OPS.loaded:
            stem = stem[:-5]
        # Derive order by order: the definition of each order follows from the one before.
        definition = OPS.get(stem)
        while definition is not None and definition.type != type:
            definition = OPS.get(f"{definition.type}_grad") or _derive(definition)
    return definition


def op_def(type: str) -> OpDef:
    """Returns the definition of an op type.

    Raises:
        NotFoundError: If no op of that type exists; near names are suggested.
    """
    definition = find_op_def(type)
    if definition is None:
        raise NotFoundError(
            f'Operator "{type}" has not been registered.',
            expected="a registered op type",
            received=repr(type),
            fix=near(type, OPS) or "see docs/ops.md for the list of ops",
        )
    return definition


def with_(definition: OpDef, **changes: Any) -> OpDef:
    """Returns a changed copy of an op definition."""
    return replace(definition, **changes)
