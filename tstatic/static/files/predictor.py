"""``paddle.inference``: predictors over saved models, with handles that arrays are copied to and from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tstatic.errors import CheckpointError, FeedError, FeedTypeError, NotFoundError, ProgramError, near, shown
from tstatic.formats import files
from tstatic.ir.checks import check_type
from tstatic.ir.export import export
from tstatic.ir.types import DType, dtype_of
from tstatic.locks import lock
from tstatic.places import CPUPlace, CUDAPlace
from tstatic.regular import names_there
from tstatic.runtime.scope import LoDTensor, Scope, scope_guard
from tstatic.static.files import variable_files
from tstatic.static.files.inference import load_inference_model
from tstatic.static.files.predictor_config import Config, DataType
from tstatic.static.run.executor import Executor

Array = np.ndarray[Any, Any]


@export("inference.Tensor")
class Tensor:
    """A handle of one input or result of a predictor; ``Predictor.get_input_handle`` makes it.

    Args:
        predictor: Whose input or result it is.
        name: Of the variable.
        dtype: The variable's dtype.
        is_input: Whether it is an input.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> static.save_inference_model("model", [x], [x * 3], static.Executor())
        >>> config = paddle.inference.Config("model.pdmodel", "model.pdiparams")
        >>> predictor = paddle.inference.create_predictor(config)
        >>> handle = predictor.get_input_handle("x")
        >>> handle.copy_from_cpu(np.ones([1, 2], "float32"))
        >>> handle.name(), handle.shape()
        ('x', [1, 2])
    """

    def __init__(self, predictor: Predictor, name: str, dtype: DType, is_input: bool) -> None:
        self._predictor = predictor
        self._name = name
        self._dtype = dtype
        self._is_input = is_input
        self._shape: list[int] = [0]
        self._lod: list[list[int]] = []

    def name(self) -> str:
        """Returns the name of the variable."""
        return self._name

    def reshape(self, shape: Sequence[int]) -> None:
        """Announces the shape of the next input; the array that is copied decides.

        Args:
            shape: The sizes.
        """
        self._shape = [int(size) for size in shape]

    def copy_from_cpu(self, data: Any) -> None:
        """Copies an array to an input.

        Args:
            data: An array of the input's dtype and shape.

        Raises:
            FeedTypeError: If it is not an array.
            FeedError: If this is a result.
        """
        if not self._is_input:
            raise FeedError(
                f"'{self._name}' is a result", expected="one of the inputs", received="copy_from_cpu", fix="use copy_to_cpu",
                var=self._name, op="inference",
            )  # fmt: skip
        if not isinstance(data, np.ndarray):
            raise FeedTypeError(
                "In copy_from_cpu, we only support numpy ndarray and list[str] data type.",
                expected="a numpy array",
                received=shown(data),
                fix="pass np.array(data, dtype)",
                var=self._name,
                op="inference",
            )
        self._shape = list(data.shape)
        # A copy: callers reuse their arrays before the run.
        self._predictor._given[self._name] = np.array(data, order="C")

    def share_external_data(self, data: Any) -> None:
        """Takes an array as an input, as :meth:`copy_from_cpu`."""
        self.copy_from_cpu(data)

    def copy_to_cpu(self) -> Array:
        """Returns a copy of the value that was given, or that the last run gave.

        Raises:
            FeedError: If there is none yet.
        """
        return self._value().copy()

    def _value(self) -> Array:
        held = self._predictor._given if self._is_input else self._predictor._results
        if self._name not in held:
            raise FeedError(
                f"'{self._name}' has no value yet",
                expected="a value",
                received="none",
                fix="call copy_from_cpu first" if self._is_input else "call predictor.run() first",
                var=self._name,
                op="inference",
            )
        return held[self._name]

    def shape(self) -> list[int]:
        """Returns the sizes of the value, or those that were announced."""
        held = self._predictor._given if self._is_input else self._predictor._results
        return list(held[self._name].shape) if self._name in held and not self._is_input else list(self._shape)

    def type(self) -> DataType:
        """Returns the element type."""
        return DataType[self._dtype.name.upper()]

    def lod(self) -> list[list[int]]:
        """Returns the offsets of sequences that were set."""
        return [list(level) for level in self._lod]

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Sets the offsets of the sequences in an input.

        Args:
            lod: For each level the rows at which sequences begin, and the end of the last.
        """
        self._lod = [list(level) for level in lod]


@export("inference.Predictor")
class Predictor:
    """Runs a saved model; :func:`create_predictor` makes it.

    One predictor belongs to one thread at a time: each thread takes a :meth:`clone`, which shares the values and nothing else.

    Args:
        config: What to load.

    Raises:
        CheckpointError: If a file is missing or damaged, or holds operators that tstatic lacks (a ``RuntimeError``).

    Example:
        >>> x = static.data("x", [None, 2])
        >>> static.save_inference_model("model", [x], [x * 3], static.Executor())
        >>> config = paddle.inference.Config("model.pdmodel", "model.pdiparams")
        >>> predictor = paddle.inference.create_predictor(config)
        >>> predictor.get_input_names()
        ['x']
    """

    def __init__(self, config: Config) -> None:
        self._place = CPUPlace() if config._gpu is None else CUDAPlace(config._gpu)
        self._shared = Scope()
        self._loaded, feeds, fetches = loaded(config, self._shared, Executor(self._place))
        self._feeds: list[str] = feeds
        self._fetches = {var.name: var for var in fetches}
        self._start()

    def _start(self) -> None:
        """Makes what a clone has of its own."""
        # Values are found in the shared scope behind it.
        self._scope = self._shared.new_scope()
        # With plans of its own: a clone runs in another thread.
        self._executor = Executor(self._place)
        self._given: dict[str, Array] = {}
        self._results: dict[str, Array] = {}
        self._handles: dict[tuple[str, bool], Tensor] = {}
        self._running = lock()

    def clone(self) -> Predictor:
        """Returns a predictor with the same values and handles of its own, for another thread."""
        # Past `__init__`, which would load the model again.
        made = object.__new__(Predictor)
        made._place, made._shared, made._loaded = self._place, self._shared, self._loaded
        made._feeds, made._fetches = self._feeds, self._fetches
        made._start()
        return made

    def get_input_names(self) -> list[str]:
        """Returns the names of the inputs."""
        return list(self._feeds)

    def get_output_names(self) -> list[str]:
        """Returns the names of the results."""
        return list(self._fetches)

    def get_input_handle(self, name: str) -> Tensor:
        """Returns the handle of an input.

        Raises:
            NotFoundError: If there is none of that name (a ``RuntimeError``).
        """
        return self._handle(name, self._feeds, True)

    def get_output_handle(self, name: str) -> Tensor:
        """Returns the handle of a result.

        Raises:
            NotFoundError: If there is none of that name (a ``RuntimeError``).
        """
        return self._handle(name, list(self._fetches), False)

    def _handle(self, name: str, known: Sequence[str], is_input: bool) -> Tensor:
        if name not in known:
            raise NotFoundError(
                f"The variable named {name} is not found among the model's {'inputs' if is_input else 'results'}.",
                expected=f"one of {', '.join(known)}",
                received=shown(name),
                fix=near(str(name), known) or "use one of these",
                op="inference",
            )
        if (name, is_input) not in self._handles:
            dtype = self._loaded.global_block().var(name).dtype
            self._handles[name, is_input] = Tensor(self, name, dtype, is_input)
        return self._handles[name, is_input]

    def run(self, inputs: Sequence[Any] | None = None) -> Any:
        """Runs the model on what the handles of the inputs hold, or on a list.

        Args:
            inputs: Arrays in the order of :meth:`get_input_names`.

        Returns:
            ``True``; or, for a list, the results as a list of arrays.

        Raises:
            FeedError: If an input is missing, or does not fit.
            ProgramError: If another thread runs this predictor.
        """
        if inputs is not None and len(inputs) != len(self._feeds):
            raise FeedError(
                f"the model has {len(self._feeds)} inputs, but {len(inputs)} were given",
                expected=f"arrays for {', '.join(self._feeds)}",
                received=f"a list of {len(inputs)}",
                fix="pass one array for each input",
                op="inference",
            )
        # Put back if an input is refused, so that nothing has changed.
        given, handles = dict(self._given), dict(self._handles)
        try:
            for name, value in zip(self._feeds, inputs or (), strict=inputs is not None):
                self.get_input_handle(name).copy_from_cpu(np.asarray(value))
            feed = {name: self._fed(name) for name in self._feeds}
        except BaseException:
            self._given, self._handles = given, handles
            raise
        # No waiting: the results would be those of whichever thread ran last.
        if not self._running.acquire(blocking=False):
            raise ProgramError(
                "another thread runs this predictor",
                expected="a predictor for each thread",
                received="two runs at once",
                fix="give each thread predictor.clone()",
                op="inference",
            )
        try:
            found = self._executor.run(
                self._loaded, feed=feed, fetch_list=list(self._fetches.values()), scope=self._scope
            )  # fmt: skip
        finally:
            self._running.release()
        # Not `asarray`: results that convert to numbers from any rank are a subclass.
        self._results = dict(zip(self._fetches, map(np.asanyarray, found), strict=True))
        # As in Paddle, where handles hold the results.
        return True if inputs is None else list(self._results.values())

    def _fed(self, name: str) -> Any:
        handle = self._handles.get((name, True)) or Tensor(
            self, name, self._loaded.global_block().var(name).dtype, True
        )
        array = handle._value()
        if dtype_of(array.dtype) is not handle._dtype:
            raise FeedTypeError(
                f"the input '{name}' is of another dtype",
                expected=handle._dtype.name,
                received=str(array.dtype),
                fix=f"pass array.astype('{handle._dtype.name}')",
                var=name,
                op="inference",
            )
        if not handle._lod:
            return array
        tensor = LoDTensor()
        tensor.set(array)
        tensor.set_lod(handle._lod)
        return tensor

    def clear_intermediate_tensor(self) -> None:
        """Does nothing: values inside the program take no memory between runs that others could use."""

    def try_shrink_memory(self) -> int:
        """Drops the plans of earlier runs, with their memory; the next run makes one anew."""
        held = self._shared.held_bytes()
        self._executor = Executor(self._place)
        return held


def loaded(config: Config, scope: Scope, executor: Executor) -> list[Any]:
    """Loads a model into a scope; returns program, names of inputs, Variables of results."""
    with scope_guard(scope):
        if config._buffers is not None:
            model, values = config._buffers
            # A model without variables has no bytes of values.
            return load_inference_model(None, executor, model_filename=model, params_filename=values or None)
        if config.model_dir():
            return variable_files.load_inference_model(config.model_dir(), executor)
        path, values_path = Path(config.prog_file()), Path(config.params_file())
        if not config.prog_file() or not files.exists(path):
            raise CheckpointError(
                f"Cannot open file {config.prog_file() or '(none given)'}",
                expected="the file of a saved program",
                received="no such file",
                fix="pass the paths of both files: Config('model.pdmodel', 'model.pdiparams')"
                + (f"; {names_there(path)}" if config.prog_file() else ""),
                op="inference",
            )
        # Both paths count from here, wherever they lie.
        names = {"model_filename": str(path.absolute()), "params_filename": str(values_path.absolute())}
        return load_inference_model("/", executor, **names)


@export("inference.create_predictor")
def create_predictor(config: Config) -> Predictor:
    """Loads a model, saved here or in Paddle, into a predictor with values of its own.

    Args:
        config: Which one.

    Raises:
        ProgramTypeError: If ``config`` is not a Config.
        CheckpointError: If a file is missing or damaged (a ``RuntimeError``).

    Example:
        >>> x = static.data("x", [None, 2])
        >>> static.save_inference_model("model", [x], [x * 3], static.Executor())
        >>> predictor = paddle.inference.create_predictor(paddle.inference.Config("model"))
        >>> predictor.run([np.array([[1, 2]], "float32")])
        [array([[3., 6.]], dtype=float32)]
    """
    check_type(
        config, Config, "config", "create_predictor", expected="an inference.Config", fix="pass Config(prog, params)"
    )
    return Predictor(config)


@export("inference.PredictorPool")
class PredictorPool:
    """Several predictors of one model, which share its values: one for each thread.

    Args:
        config: Which model.
        size: How many.

    Raises:
        ProgramError: If there shall be none.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> static.save_inference_model("model", [x], [x * 3], static.Executor())
        >>> pool = paddle.inference.PredictorPool(paddle.inference.Config("model"), 2)
        >>> pool.retrieve(1).get_input_names()
        ['x']
    """

    def __init__(self, config: Config, size: int = 1) -> None:
        if type(size) is not int or size < 1:
            raise ProgramError(
                "a pool has at least one predictor", expected="size >= 1", received=shown(size), fix="pass the number of threads",
                op="inference",
            )  # fmt: skip
        self._size = size
        # It loads the model; the others share its values.
        self._predictors = {0: create_predictor(config)}
        self._lock = lock()

    def retrieve(self, idx: int) -> Predictor:
        """Returns a predictor by its number.

        Raises:
            ProgramError: If there is none of that number.
        """
        if type(idx) is not int or not 0 <= idx < self._size:
            raise ProgramError(
                "the pool has no such predictor", expected=f"0 to {self._size - 1}", received=shown(idx),
                fix=f"retrieve one of 0 to {self._size - 1}, or make PredictorPool(config, {self._size + 1})", op="inference",
            )  # fmt: skip
        with self._lock:
            if idx not in self._predictors:  # each is made when a thread first asks for it
                self._predictors[idx] = self._predictors[0].clone()
            return self._predictors[idx]

    retrive = retrieve
    """The spelling of Paddle 2.6."""
