"""Layers that hold others: ``Sequential``, ``LayerList``, ``LayerDict``, ``ParameterList``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tstatic.errors import IndexRangeError, ProgramTypeError, shown
from tstatic.ir.checks import check_known, check_type
from tstatic.ir.opdef import export
from tstatic.ir.program import Parameter
from tstatic.nn.layer.layers import Layer


def _position(index: Any, count: int, owner: str) -> int:
    """Returns a position counted from the front.

    Raises:
        ProgramTypeError: If it is not an int.
        IndexRangeError: If there is none.
    """
    position = check_type(index, int, "index", owner, expected="an int or a slice")
    if not -count <= position < count:
        raise IndexRangeError(
            f"{owner} has no entry {position}",
            expected=f"a position from {-count} to {count - 1}" if count else "an entry: it is empty",
            received=position,
            fix="count from 0, or from -1 at the end; append() adds entries",
            op=owner,
        )
    return position % count


def _entry(value: Any, kind: type, owner: str) -> Any:
    """Returns ``value`` if it is of the kind that a container holds.

    Raises:
        ProgramTypeError: If it is not.
    """
    return check_type(value, kind, "entry", owner, fix="pass instances, such as nn.ReLU() rather than nn.ReLU")


# A function rather than a method: users subclass containers and choose names of attributes.
def _layers(container: Layer) -> dict[str, Layer]:
    found: dict[str, Layer] = container.__dict__["_sub_layers"]
    return found


class _Container(Layer):
    """What the containers of layers share."""

    def __len__(self) -> int:
        return len(_layers(self))


@export("nn.Sequential", "fluid.dygraph.Sequential")
class Sequential(_Container):
    """Calls its layers one after another: ``Sequential(nn.Linear(2, 3), nn.ReLU())``, or with names, ``("fc", layer)``.

    Example:
        >>> net = paddle.nn.Sequential(paddle.nn.Linear(2, 4), paddle.nn.ReLU(), paddle.nn.Linear(4, 1))
        >>> y = net(static.data("x", [None, 2]))
        >>> y.shape, len(net), len(net.parameters())
        ((-1, 1), 3, 4)
    """

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        if len(layers) == 1 and isinstance(layers[0], list):
            layers = tuple(layers[0])
        for i, item in enumerate(layers):
            name, layer = item if isinstance(item, list | tuple) and len(item) == 2 else (str(i), item)
            self.add_sublayer(str(name), _entry(layer, Layer, "Sequential"))

    def __getitem__(self, name: Any) -> Any:
        layers = _layers(self)
        if isinstance(name, slice):
            return Sequential(*list(layers.items())[name])
        if isinstance(name, str):
            return layers[check_known(name, layers, "Sequential has no layer named", op="Sequential")]
        return list(layers.values())[_position(name, len(layers), "Sequential")]

    def __setitem__(self, name: Any, layer: Layer) -> None:
        self.add_sublayer(str(name), _entry(layer, Layer, "Sequential"))

    def __delitem__(self, name: Any) -> None:
        del _layers(self)[str(name)]

    def __iter__(self) -> Iterator[Layer]:
        return iter(list(_layers(self).values()))

    def forward(self, input: Any) -> Any:
        """Returns the last layer's output."""
        for layer in self:
            input = layer(input)
        return input


@export("nn.LayerList", "fluid.dygraph.LayerList")
class LayerList(_Container):
    """A list of layers whose parameters count as the owner's.

    Example:
        >>> layers = paddle.nn.LayerList([paddle.nn.Linear(2, 2) for _ in range(3)])
        >>> x = static.data("x", [None, 2])
        >>> for layer in layers:
        ...     x = layer(x)
        >>> len(layers), len(layers.parameters())
        (3, 6)
    """

    def __init__(self, sublayers: Iterable[Layer] | None = None) -> None:
        super().__init__()
        self._store(list(sublayers or ()))

    def _store(self, layers: list[Any]) -> None:
        table = {str(i): _entry(layer, Layer, "LayerList") for i, layer in enumerate(layers)}
        _layers(self).clear()
        _layers(self).update(table)

    def _list(self) -> list[Layer]:
        return list(_layers(self).values())

    def __getitem__(self, index: Any) -> Any:
        layers = self._list()
        if isinstance(index, slice):
            return LayerList(layers[index])
        return layers[_position(index, len(layers), "LayerList")]

    def __setitem__(self, index: int, layer: Layer) -> None:
        layers = self._list()
        layers[_position(index, len(layers), "LayerList")] = layer
        self._store(layers)

    def __delitem__(self, index: Any) -> None:
        layers = self._list()
        if not isinstance(index, slice):
            index = _position(index, len(layers), "LayerList")
        del layers[index]
        self._store(layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._list())

    def append(self, sublayer: Layer) -> LayerList:
        """Adds a layer at the end."""
        self._store([*self._list(), sublayer])
        return self

    def insert(self, index: int, sublayer: Layer) -> None:
        """Puts ``sublayer`` before position ``index``, which may be the length; negative ones count from the end."""
        layers = self._list()
        if index != len(layers):
            index = _position(index, len(layers), "LayerList")
        layers.insert(index, sublayer)
        self._store(layers)

    def extend(self, sublayers: Iterable[Layer]) -> LayerList:
        """Adds layers at the end."""
        self._store([*self._list(), *sublayers])
        return self


@export("nn.LayerDict")
class LayerDict(_Container):
    """A dict of layers whose parameters count as the owner's.

    Example:
        >>> layers = paddle.nn.LayerDict({"hidden": paddle.nn.Linear(2, 4), "head": paddle.nn.Linear(4, 1)})
        >>> y = layers["head"](layers["hidden"](static.data("x", [None, 2])))
        >>> list(layers.keys()), y.shape
        (['hidden', 'head'], (-1, 1))
    """

    def __init__(self, sublayers: Any = None) -> None:
        super().__init__()
        if sublayers is not None:
            self.update(sublayers)

    def __getitem__(self, key: str) -> Layer:
        layers = _layers(self)
        return layers[check_known(key, layers, "LayerDict has no layer named", op="LayerDict")]

    def __setitem__(self, key: str, sublayer: Layer) -> None:
        self.add_sublayer(key, _entry(sublayer, Layer, "LayerDict"))

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, key: str) -> bool:
        return key in _layers(self)

    def clear(self) -> None:
        """Removes all layers."""
        _layers(self).clear()

    def pop(self, key: str) -> Layer:
        """Removes a layer and returns it."""
        layer = self[key]
        del _layers(self)[key]
        return layer

    def keys(self) -> list[str]:
        return list(_layers(self))

    def values(self) -> list[Layer]:
        return list(_layers(self).values())

    def items(self) -> list[tuple[str, Layer]]:
        return list(_layers(self).items())

    def update(self, sublayers: Any) -> None:
        """Adds the layers of a mapping, or of (name, layer) pairs.

        Raises:
            ProgramTypeError: For anything else.
        """
        if isinstance(sublayers, LayerDict | Mapping):
            pairs: list[Any] = list(sublayers.items())
        elif isinstance(sublayers, Iterable):
            pairs = list(sublayers)
        else:
            pairs = [sublayers]
        for pair in pairs:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise ProgramTypeError(
                    "LayerDict takes a mapping, or pairs of a name and a layer",
                    expected="{'name': layer} or [('name', layer)]",
                    received=shown(pair),
                    fix="pass a dict {'name': layer}, or a list [('name', layer)]",
                    op="LayerDict",
                )
            self[pair[0]] = pair[1]


@export("nn.ParameterList", "fluid.dygraph.ParameterList")
class ParameterList(Layer):
    """A list of parameters that count as the owner's.

    Example:
        >>> weights = [paddle.create_parameter([2], "float32") for _ in range(3)]
        >>> parameters = paddle.nn.ParameterList(weights)
        >>> len(parameters), parameters[1] is weights[1]
        (3, True)
    """

    def __init__(self, parameters: Iterable[Parameter] | None = None) -> None:
        super().__init__()
        for parameter in parameters or ():
            self.append(parameter)

    def _list(self) -> list[Parameter]:
        return list(self.__dict__["_parameters"].values())

    def __getitem__(self, index: int) -> Parameter:
        parameters = self._list()
        return parameters[_position(index, len(parameters), "ParameterList")]

    def __setitem__(self, index: int, parameter: Parameter) -> None:
        at = _position(index, len(self), "ParameterList")
        self.__dict__["_parameters"][str(at)] = _entry(parameter, Parameter, "ParameterList")

    def __len__(self) -> int:
        return len(self.__dict__["_parameters"])

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._list())

    def append(self, parameter: Parameter) -> ParameterList:
        """Adds a parameter at the end."""
        self.__dict__["_parameters"][str(len(self))] = _entry(parameter, Parameter, "ParameterList")
        return self
