"""``paddle.inference``: which model a predictor runs and where, and the enumerations of its API."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Any

from tstatic.ir.export import export
from tstatic.ir.types import dtype_of
from tstatic.no_effect import LIBRARY, no_effect
from tstatic.version import __version__


@export("inference.DataType")
class DataType(IntEnum):
    """Element types of inputs and results, with Paddle's numbers.

    Example:
        >>> kind = paddle.inference.DataType.INT64
        >>> int(kind), kind.name
        (1, 'INT64')
        >>> paddle.inference.DataType(0).name
        'FLOAT32'
    """

    FLOAT32 = 0
    INT64 = 1
    INT32 = 2
    UINT8 = 3
    INT8 = 4
    FLOAT16 = 5
    BOOL = 6
    FLOAT64 = 7
    BFLOAT16 = 8
    INT16 = 9


@export("inference.PlaceType")
class PlaceType(IntEnum):
    """Kinds of places.

    Example:
        >>> kind = paddle.inference.PlaceType.CPU
        >>> int(kind), kind.name
        (0, 'CPU')
        >>> paddle.inference.PlaceType(-1).name
        'UNK'
    """

    UNK = -1
    CPU = 0
    GPU = 1
    XPU = 2
    # 3 was the NPU of earlier releases of Paddle.
    CUSTOM = 4


@export("inference.PrecisionType")
class PrecisionType(IntEnum):
    """Precisions that scripts ask for; a program runs in the types that it was saved with.

    Example:
        >>> kind = paddle.inference.PrecisionType.Float32
        >>> int(kind), kind.name
        (0, 'Float32')
        >>> paddle.inference.PrecisionType(1).name
        'Int8'
    """

    Float32 = 0
    Int8 = 1
    Half = 2
    Bfloat16 = 3


@export("inference.get_version")
def get_version() -> str:
    """Returns the version as lines of text."""
    return f"version: {__version__}\n"


@export("inference.get_trt_compile_version", "inference.get_trt_runtime_version")
def get_trt_compile_version() -> tuple[int, int, int]:
    """Returns three zeros, as Paddle does without TensorRT.

    Example:
        >>> paddle.inference.get_trt_compile_version()
        (0, 0, 0)
    """
    return 0, 0, 0


@export("inference.get_num_bytes_of_data_type")
def get_num_bytes_of_data_type(dtype: DataType) -> int:
    """Returns the bytes of one element.

    Example:
        >>> paddle.inference.get_num_bytes_of_data_type(paddle.inference.DataType.INT64)
        8
    """
    # Takes Paddle's number as well as the member.
    size: int = dtype_of(DataType(dtype).name.lower()).itemsize
    return size


@export("inference.Config")
class Config:
    """Says which model a predictor runs, and where.

    Args:
        prog_file: The program's file; alone: a folder with ``__model__`` and a file for each variable, or the path of a model
            without the suffixes ``.pdmodel`` and ``.pdiparams``.
        params_file: The file of the values.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> static.save_inference_model("model", [x], [x * 3], static.Executor())
        >>> config = paddle.inference.Config("model.pdmodel", "model.pdiparams")
        >>> predictor = paddle.inference.create_predictor(config)
        >>> handle = predictor.get_input_handle(predictor.get_input_names()[0])
        >>> handle.copy_from_cpu(np.array([[1, 2]], "float32"))
        >>> predictor.run()
        True
        >>> predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
        array([[3., 6.]], dtype=float32)
    """

    def __init__(self, prog_file: str | None = None, params_file: str | None = None) -> None:
        self._model = self._values = self._folder = ""
        self._buffers: tuple[bytes, bytes] | None = None
        self._gpu: int | None = None
        # Stored for the getters and `summary`: nothing that runs reads them.
        self._options: dict[str, Any] = {
            "ir_optim": True,
            "memory_optim": True,
            "threads": 1,
            "glog": True,
            "mkldnn": False,
        }
        if prog_file is not None:
            self.set_model(prog_file, params_file)

    def set_model(self, prog_file: str, params_file: str | None = None) -> None:
        """Sets the files.

        Args:
            prog_file: As of the class.
            params_file: As of the class.
        """
        if params_file is None and not Path(prog_file).is_dir():
            # The path of the two files of a model, without their suffixes.
            prog_file, params_file = f"{prog_file}.pdmodel", f"{prog_file}.pdiparams"
        if params_file is None:
            self._folder = str(prog_file)
        else:
            self._model, self._values = str(prog_file), str(params_file)

    def set_prog_file(self, path: str) -> None:
        """Sets the program's file."""
        self._model = str(path)

    def set_params_file(self, path: str) -> None:
        """Sets the file of the values."""
        self._values = str(path)

    def set_model_buffer(self, prog_buffer: bytes, prog_size: int, params_buffer: bytes, params_size: int) -> None:
        """Sets the contents of the two files.

        Args:
            prog_buffer: The program's bytes, of which ``prog_size`` count.
            prog_size: Their number.
            params_buffer: The values' bytes, of which ``params_size`` count.
            params_size: Their number.
        """
        # Copied, as the caller may reuse the buffers; they may be longer than what is in them.
        self._buffers = bytes(prog_buffer)[:prog_size], bytes(params_buffer)[:params_size]

    def model_from_memory(self) -> bool:
        """Returns whether the model was given as bytes."""
        return self._buffers is not None

    def prog_file(self) -> str:
        """Returns the program's file."""
        return self._model

    def params_file(self) -> str:
        """Returns the file of the values."""
        return self._values

    def model_dir(self) -> str:
        """Returns the folder of a model with a file for each variable."""
        return self._folder

    def disable_gpu(self) -> None:
        """Runs on the CPU, which is the default."""
        self._gpu = None

    @no_effect(
        memory_pool_init_size_mb="the plan says how much memory is needed",
        precision_mode="programs run in their own types",
    )
    def enable_use_gpu(
        self,
        memory_pool_init_size_mb: int = 100,
        device_id: int = 0,
        precision_mode: PrecisionType = PrecisionType.Float32,
    ) -> None:
        """Runs on a GPU.

        Args:
            device_id: Its number.
        """
        self._gpu = int(device_id)

    def use_gpu(self) -> bool:
        """Returns whether a GPU is used."""
        return self._gpu is not None

    def gpu_device_id(self) -> int:
        """Returns the number of the GPU; 0 if none is used."""
        return self._gpu or 0

    def switch_ir_optim(self, x: bool = True) -> None:
        """Stores whether Paddle would optimize the program; here it always is."""
        self._options["ir_optim"] = bool(x)

    def ir_optim(self) -> bool:
        """Returns what :meth:`switch_ir_optim` stored."""
        return bool(self._options["ir_optim"])

    def enable_memory_optim(self, x: bool = True) -> None:
        """Stores whether Paddle would plan the memory; here it always is planned."""
        self._options["memory_optim"] = bool(x)

    def set_cpu_math_library_num_threads(self, cpu_math_library_num_threads: int) -> None:
        """Stores the number of threads; the machine decides."""
        self._options["threads"] = int(cpu_math_library_num_threads)

    def cpu_math_library_num_threads(self) -> int:
        """Returns what :meth:`set_cpu_math_library_num_threads` stored."""
        return int(self._options["threads"])

    def disable_glog_info(self) -> None:
        """Stores that nothing shall be printed; nothing is."""
        self._options["glog"] = False

    def glog_info_disabled(self) -> bool:
        """Returns whether :meth:`disable_glog_info` was called."""
        return not self._options["glog"]

    @no_effect(x="inputs and results have handles, and run() takes a list, too")
    def switch_use_feed_fetch_ops(self, x: bool = True) -> None:
        """Does nothing."""

    @no_effect(x="inputs have names")
    def switch_specify_input_names(self, x: bool = True) -> None:
        """Does nothing."""

    def enable_mkldnn(self) -> None:
        """Stores that Paddle would use oneDNN."""
        self._options["mkldnn"] = True

    def disable_mkldnn(self) -> None:
        """Stores that Paddle would not use oneDNN."""
        self._options["mkldnn"] = False

    def mkldnn_enabled(self) -> bool:
        """Returns what :meth:`enable_mkldnn` stored."""
        return bool(self._options["mkldnn"])

    @no_effect(capacity=LIBRARY)
    def set_mkldnn_cache_capacity(self, capacity: int = 0) -> None:
        """Does nothing."""

    def enable_profile(self) -> None:
        """Does nothing; ``TSTATIC_LOGS=steps`` prints times."""

    def tensorrt_engine_enabled(self) -> bool:
        """Returns ``False``: there is no TensorRT."""
        return False

    def summary(self) -> str:
        """Returns the settings as lines of text."""
        rows = {
            "model_dir": self._folder, "model_file": self._model, "params_file": self._values, "use_gpu": self.use_gpu(),
            **self._options,
        }  # fmt: skip
        return "".join(f"{name}: {value}\n" for name, value in rows.items())
