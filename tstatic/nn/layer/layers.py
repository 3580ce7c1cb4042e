"""``Layer``: parameters, buffers and layers inside layers, by attribute; calling it adds its ops to the program."""

from __future__ import annotations

import copy
import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, NoneType
from typing import Any, Self, TypeVar

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError, ShapeError, UnsupportedError, near, shown
from tstatic.ir import names
from tstatic.ir.checks import check_type
from tstatic.ir.declare import default_dtype
from tstatic.ir.opdef import export
from tstatic.ir.program import Parameter, Variable
from tstatic.ir.types import dtype_of
from tstatic.logs import get_logger
from tstatic.nn.initializer import Initializer
from tstatic.nn.param import LayerHelper

_log = get_logger("nn")
Hook = Callable[..., Any]
C = TypeVar("C")


def snake(name: str) -> str:
    """Returns the prefix of a layer's generated name: ``batch_norm2d`` for ``BatchNorm2D``."""
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)).lower()


class HookRemover:
    """A registered hook; ``handle.remove()`` takes it away again."""

    def __init__(self, hooks: list[Hook], hook: Hook) -> None:
        hooks.append(hook)
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


def check_entry(layer: Any, name: Any, value: Any, kind: type, function: str, table: Mapping[str, Any] | None) -> None:
    """Refuses what cannot be registered; without ``table`` the name may hold dots or hide an attribute.

    Raises:
        ProgramTypeError: For a name that is not a str, or a value of another kind.
        ProgramError: For a name that is an attribute already.
    """
    owner = type(layer).__name__
    if not isinstance(name, str) or not name or ("." in name and table is not None):
        raise ProgramTypeError(
            f"{function}() of {owner}: the name must be a text without dots",
            expected="a non-empty str without '.'",
            received=shown(name),
            fix=f"call {function}('name', value)",
            op=owner,
        )
    check_type(value, (kind, NoneType), name, f"{owner}.{function}")
    if table is not None and name not in table and hasattr(layer, name):
        raise ProgramError(
            f"{function}() of {owner}: the name '{name}' is an attribute already",
            expected="a name that is free",
            received=repr(name),
            fix=f"choose a name that the layer does not have, such as '{name}_1'",
            op=owner,
            var=name,
        )


def paths(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yields every path to every layer inside, as a prefix of names; references back to an outer layer are not followed."""
    stack: list[tuple[str, Any, tuple[Any, ...]]] = [("", layer, ())]
    while stack:
        path, found, above = stack.pop()
        yield path, found
        above = (*above, found)
        inner = [(n, child) for n, child in found.__dict__["_sub_layers"].items() if child is not None]
        stack.extend((f"{path}{n}.", child, above) for n, child in reversed(inner) if child not in above)


def write_state(owner: str, wanted: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Writes arrays to the variables ``wanted`` by name, in the global scope; all or nothing.

    Returns:
        Names that ``state`` lacks, and names that ``wanted`` lacks; a warning says how many.

    Raises:
        ProgramTypeError: If ``state`` is not a mapping.
        ShapeError, NotFoundError: If a shape differs, or a variable is not in the scope.
    """
    check_type(
        state,
        Mapping,
        "state_dict",
        "set_state_dict",
        expected="a dict of name -> array",
        fix="pass what layer.state_dict() or paddle.load(path) returned",
    )
    pairs = [(key, wanted[key], np.asarray(value)) for key, value in state.items() if key in wanted]
    for key, var, array in pairs:
        if array.shape != var.shape:
            raise ShapeError(
                f"the value given for '{key}' has another shape than the layer's",
                expected=list(var.shape),
                received=list(array.shape),
                fix="load values that were saved from a layer of the same sizes",
                op="set_state_dict",
                var=var.name,
            )
    # Variables read and write the scope through methods that an upper stage gives them.
    for _, var, _ in pairs:
        var.get_value()
    for _, var, array in pairs:
        var.set_value(array.astype(var.dtype.np, copy=False))
    missing = [key for key in wanted if key not in state]
    unexpected = [key for key in state if key not in wanted]
    if missing or unexpected:
        _log.warning(
            "set_state_dict of %s: %d of its values are not given (%s), %d given ones have no place in it (%s)",
            owner, len(missing), ", ".join(missing[:4]), len(unexpected), ", ".join(unexpected[:4]),
        )  # fmt: skip
    return missing, unexpected


def own_constructor(**defaults: Any) -> Callable[[type[C]], type[C]]:
    """Gives a class the constructor that it inherits under its own name, with defaults of its own; a class decorator.

    Messages and signatures then show the class that users know, and not its base.
    """

    def give(cls: type[C]) -> type[C]:
        base = inspect.unwrap(cls.__init__)
        assert isinstance(base, FunctionType)
        given = (
            defaults.get(n, p.default)
            for n, p in inspect.signature(base).parameters.items()
            if p.default is not p.empty
        )
        made = FunctionType(base.__code__, base.__globals__, base.__name__, tuple(given), base.__closure__)
        vars(made).update(vars(base))
        made.__annotations__ = base.__annotations__ | {n: type(default).__name__ for n, default in defaults.items()}
        made.__doc__, made.__qualname__ = base.__doc__, f"{cls.__qualname__}.__init__"
        cls.__init__ = made  # type: ignore[method-assign]
        return cls

    return give


@export("nn.Layer", "fluid.Layer", "fluid.dygraph.Layer")
class Layer:
    """Base class of layers: assign parameters and layers to attributes in ``__init__``, write ``forward``, call the object.

    A call adds the ops of ``forward`` to the default main program; parameters are made once, when the layer is made, in the
    main and startup programs that are the default then.

    Args:
        name_scope: What the generated name begins with; the class name in snake case by default.
        dtype: Float type of its parameters; ``"float32"`` means the default dtype.

    Attributes:
        training: ``False`` after :meth:`eval`; layers such as Dropout look at it in each call.

    Example:
        >>> class Double(paddle.nn.Layer):
        ...     def forward(self, x):
        ...         return x * 2
        >>> y = Double()(paddle.to_tensor([1.0, 2.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([2., 4.], dtype=float32)
    """

    training: bool

    def __init__(self, name_scope: str | None = None, dtype: Any = "float32") -> None:
        own = self.__dict__
        own["training"] = True
        own["_full_name"] = names.generate(snake(type(self).__name__) if name_scope is None else name_scope)
        own["_dtype"] = default_dtype() if dtype in (None, "float32") else dtype_of(dtype)
        own["_parameters"] = OrderedDict()
        own["_sub_layers"] = OrderedDict()
        own["_buffers"] = OrderedDict()
        own["_non_persistable_buffer_names_set"] = set()
        own["_forward_pre_hooks"] = []
        own["_forward_post_hooks"] = []
        own["_state_dict_hooks"] = []
        own["_helper"] = LayerHelper("layer", name=self._full_name)

    # ------------------------------------------------------------------------------------------------------ attributes
    def _tables(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        own = self.__dict__
        if "_parameters" not in own:
            raise ProgramError(
                f"super().__init__() of {type(self).__name__} has to be called before parameters and layers are assigned",
                expected="super().__init__() as the first statement of __init__",
                received="an assignment before it",
                fix="add super().__init__()",
                op=type(self).__name__,
            )
        return own["_parameters"], own["_sub_layers"], own["_buffers"]

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter | Layer):
            tables = self._tables()
            own_table = tables[0 if isinstance(value, Parameter) else 1]
            own.pop(name, None)
            for other in tables:
                if other is not own_table:
                    other.pop(name, None)
            own_table[name] = value
            return
        for table, kind in (("_parameters", Parameter), ("_sub_layers", Layer), ("_buffers", Variable)):
            if name in own.get(table, ()):
                fix = f"delete it first with del layer.{name}, or use another name"
                check_type(value, (kind, NoneType), name, type(self).__name__, fix=fix)
                own[table][name] = value
                return
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for table in ("_parameters", "_sub_layers", "_buffers"):
            if name in own.get(table, ()):
                return own[table][name]
        hint = near(name, dir(self)) if not name.startswith("_") else ""
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'. {hint}".rstrip())

    def __delattr__(self, name: str) -> None:
        own = self.__dict__
        for table in ("_parameters", "_sub_layers", "_buffers"):
            if name in own.get(table, ()):
                del own[table][name]
                own["_non_persistable_buffer_names_set"].discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        own = self.__dict__
        inner = [n for t in ("_parameters", "_sub_layers", "_buffers") for n in own.get(t, ())]
        return sorted({*super().__dir__(), *inner})

    # ------------------------------------------------------------------------------------------------- making and adding
    def full_name(self) -> str:
        """Returns the generated name, such as ``linear_0``, which its parameters' names begin with."""
        return str(self.__dict__["_full_name"])

    def create_parameter(
        self,
        shape: Any,
        attr: Any = None,
        dtype: Any = None,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
    ) -> Any:
        """Makes a parameter ``<full name>.w_N`` (or ``.b_N``); assign it to an attribute to register it.

        Args:
            shape: Positive sizes.
            attr: ParamAttr, name or initializer; ``False`` makes none.
            dtype: Float type; the layer's by default.
            is_bias: Starts at 0 instead of Xavier uniform.
            default_initializer: Used if ``attr`` has none.

        Raises:
            ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
        """
        if attr is False:
            return None
        dtype = self._dtype if dtype is None else dtype
        helper: LayerHelper = self._helper
        return helper.create_parameter(attr, shape, dtype, is_bias, default_initializer)

    def add_parameter(self, name: str, parameter: Parameter | None) -> Parameter | None:
        """Registers a parameter under a name (``None`` reserves the name) and returns it.

        Raises:
            ProgramTypeError, ProgramError: For a bad or taken name, or anything but a parameter.
        """
        parameters = self._tables()[0]
        check_entry(self, name, parameter, Parameter, "add_parameter", parameters)
        parameters[name] = parameter
        return parameter

    def add_sublayer(self, name: str, sublayer: Layer | None) -> Layer | None:
        """Registers a layer under a name and returns it; an earlier one of that name is replaced.

        Raises:
            ProgramTypeError, ProgramError: For a bad name, or anything but a layer.
        """
        layers = self._tables()[1]
        check_entry(self, name, sublayer, Layer, "add_sublayer", None)
        layers[name] = sublayer
        return sublayer

    def register_buffer(self, name: str, tensor: Variable | None, persistable: bool = True) -> None:
        """Registers a variable that is not a parameter, such as a running statistic.

        Args:
            name: Attribute name.
            tensor: A persistable Variable, as ``static.create_global_var`` makes it, or ``None``.
            persistable: Whether :meth:`state_dict` holds it.

        Raises:
            ProgramTypeError, ProgramError: For a bad or taken name, or anything but a Variable.
        """
        buffers = self._tables()[2]
        check_entry(self, name, tensor, Variable, "register_buffer", buffers)
        hidden = self.__dict__["_non_persistable_buffer_names_set"]
        note = hidden.discard if persistable else hidden.add
        buffers[name] = tensor
        note(name)

    # --------------------------------------------------------------------------------------------------- walking the tree
    def named_children(self) -> Iterator[tuple[str, Layer]]:
        """Yields (name, layer) of the layers directly inside, each once."""
        seen: set[int] = set()
        for name, layer in self.__dict__["_sub_layers"].items():
            if layer is not None and id(layer) not in seen:
                seen.add(id(layer))
                yield name, layer

    def children(self) -> Iterator[Layer]:
        """Returns the layers directly inside."""
        return (layer for _, layer in self.named_children())

    def named_sublayers(
        self, prefix: str = "", include_self: bool = False, layers_set: set[Layer] | None = None
    ) -> Iterator[tuple[str, Layer]]:
        """Yields (dotted name, layer) of all layers inside, outer before inner, each once.

        Args:
            prefix: First part of the names.
            include_self: Yield this layer, too, under the name ``prefix``.
            layers_set: Layers to leave out, with what is inside them; those that are met are added.
        """
        seen = set() if layers_set is None else layers_set
        stack: list[tuple[str, Layer]] = [(prefix, self)]
        first = True
        while stack:
            name, layer = stack.pop()
            if layer in seen:
                continue
            seen.add(layer)
            if include_self or not first:
                yield name, layer
            first = False
            inner = [(f"{name}.{n}" if name else n, child) for n, child in layer.named_children()]
            stack.extend(reversed(inner))

    def sublayers(self, include_self: bool = False) -> list[Layer]:
        """Returns all layers inside, outer before inner."""
        return [layer for _, layer in self.named_sublayers(include_self=include_self)]

    def _named(self, table: str, prefix: str, include_sublayers: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        layers = self.named_sublayers(prefix, include_self=True) if include_sublayers else [(prefix, self)]
        for path, layer in layers:
            for name, value in layer.__dict__[table].items():
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield f"{path}.{name}" if path else name, value

    def named_parameters(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yields (dotted name, parameter) of all parameters, each once; names begin with ``prefix``.

        Without ``include_sublayers`` those of the layers inside are left out.
        """
        return self._named("_parameters", prefix, include_sublayers)

    def parameters(self, include_sublayers: bool = True) -> list[Parameter]:
        """Returns all parameters, each once."""
        return [p for _, p in self.named_parameters(include_sublayers=include_sublayers)]

    def named_buffers(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Variable]]:
        """Yields (dotted name, variable) of all buffers, each once; arguments as in :meth:`named_parameters`."""
        return self._named("_buffers", prefix, include_sublayers)

    def buffers(self, include_sublayers: bool = True) -> list[Variable]:
        """Returns all buffers, each once."""
        return [b for _, b in self.named_buffers(include_sublayers=include_sublayers)]

    def apply(self, fn: Callable[[Layer], Any]) -> Self:
        """Calls ``fn`` with each layer inside, inner before outer, then with this one; returns this one."""
        for layer in self.children():
            layer.apply(fn)
        fn(self)
        return self

    def train(self) -> None:
        """Makes later calls build the training form (dropout drops, batch norm takes the batch's statistics)."""
        for layer in self.sublayers(include_self=True):
            layer.training = True

    def eval(self) -> None:
        """Makes later calls build the inference form; ops that are in a program already stay as they are."""
        for layer in self.sublayers(include_self=True):
            layer.training = False

    # ---------------------------------------------------------------------------------------------------------- calling
    def register_forward_pre_hook(self, hook: Hook) -> HookRemover:
        """Calls ``hook(layer, inputs)`` before each ``forward``; what it returns, unless ``None``, replaces the inputs."""
        return HookRemover(self.__dict__["_forward_pre_hooks"], hook)

    def register_forward_post_hook(self, hook: Hook) -> HookRemover:
        """Calls ``hook(layer, inputs, output)`` after each ``forward``; what it returns, unless ``None``, replaces the output."""
        return HookRemover(self.__dict__["_forward_post_hooks"], hook)

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        self._tables()
        for hook in tuple(self.__dict__["_forward_pre_hooks"]):
            changed = hook(self, inputs)
            if changed is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
        output = self.forward(*inputs, **kwargs)
        for hook in tuple(self.__dict__["_forward_post_hooks"]):
            changed = hook(self, inputs, output)
            output = output if changed is None else changed
        return output

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Adds the layer's ops to the program; each class writes its own.

        Raises:
            UnsupportedError: If the class has none.
        """
        raise UnsupportedError(
            f"{type(self).__name__} has no forward()",
            expected="a method forward(self, ...) that builds the layer's output",
            received="a call of a layer without it",
            fix=f"define forward in class {type(self).__name__}",
            op=type(self).__name__,
        )

    # ----------------------------------------------------------------------------------------------------------- state
    def register_state_dict_hook(self, hook: Callable[[dict[str, Any]], Any]) -> HookRemover:
        """Calls ``hook(state)`` with what :meth:`state_dict` is about to return; what it returns, unless ``None``, replaces it."""
        return HookRemover(self.__dict__["_state_dict_hooks"], hook)

    def state_dict(
        self,
        destination: dict[str, Any] | None = None,
        include_sublayers: bool = True,
        structured_name_prefix: str = "",
        use_hook: bool = True,
    ) -> dict[str, Any]:
        """Returns dotted name -> Variable of all parameters and persistable buffers; ``variable.get_value()`` reads a value.

        A variable that two layers share is listed under each of its names.

        Args:
            destination: A dict to write to.
            include_sublayers: Whether inner layers are included.
            structured_name_prefix: Prepended to each name.
            use_hook: Whether hooks are called.
        """
        found: dict[str, Any] = OrderedDict() if destination is None else destination
        layers = paths(self) if include_sublayers else [("", self)]
        for path, layer in layers:
            own = layer.__dict__
            hidden = own["_non_persistable_buffer_names_set"]
            for name, value in (*own["_parameters"].items(), *own["_buffers"].items()):
                if value is not None and name not in hidden:
                    found[f"{structured_name_prefix}{path}{name}"] = value
        for hook in tuple(self.__dict__["_state_dict_hooks"]) if use_hook else ():
            changed = hook(found)
            found = found if changed is None else changed
        return found

    def set_state_dict(
        self, state_dict: Mapping[str, Any], use_structured_name: bool = True
    ) -> tuple[list[str], list[str]]:
        """Writes values to the global scope; the startup program has to have run.

        Args:
            state_dict: Dotted name (or variable name) -> array.
            use_structured_name: ``False``: keys are variable names such as ``linear_0.w_0``.

        Returns:
            The names that the layer has and ``state_dict`` lacks, and those that it lacks; a warning says how many.

        Raises:
            ShapeError, NotFoundError: If a shape differs or a variable is not in the scope; nothing is written then.
        """
        own = self.state_dict(use_hook=False)
        wanted = own if use_structured_name else {var.name: var for var in own.values()}
        return write_state(self.full_name(), wanted, state_dict)

    set_dict = set_state_dict
    load_dict = set_state_dict

    def clear_gradients(self) -> None:
        """Does nothing: gradients of a program are computed anew in each run and never add up over runs."""

    def backward(self, *inputs: Any) -> None:
        """Raises an error: a static program has no such call.

        Raises:
            UnsupportedError: Always, with what to use instead.
        """
        raise UnsupportedError(
            "Layer shouldn't implement backward: gradients are ops that the program gets from the loss",
            expected="optimizer.minimize(loss) or static.append_backward(loss)",
            received=f"{type(self).__name__}.backward()",
            fix="call optimizer.minimize(loss)",
            op=type(self).__name__,
        )

    # ------------------------------------------------------------------------------------------------------------- text
    def extra_repr(self) -> str:
        """Returns the text between the parentheses of ``repr``; each class writes its own."""
        return ""

    def __repr__(self) -> str:
        inner = []
        for name, layer in self.__dict__.get("_sub_layers", {}).items():
            lines = repr(layer).split("\n")
            inner.append("\n  ".join([f"({name}): {lines[0]}", *lines[1:]]))
        extra = self.extra_repr()
        if not inner:
            return f"{type(self).__name__}({extra})"
        return f"{type(self).__name__}({extra}\n  " + "\n  ".join(inner) + "\n)"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if self.parameters() or self.buffers():
            raise UnsupportedError(
                f"a {type(self).__name__} with parameters cannot be copied: the copy would share every parameter's name",
                expected="a layer that is made anew",
                received="copy.deepcopy(layer)",
                fix="call the constructor again; use the same object where the parameters are to be shared",
                op=type(self).__name__,
            )
        copied = type(self).__new__(type(self))
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied
