"""Short-time Fourier transforms: of the frames of a signal, and the signal that frames with such transforms have."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ShapeError
from tstatic.extras.spectral.fft_functions import transform
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_choice, check_int, check_rank
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.arithmetic import divide, multiply
from tstatic.ops.elementwise.complex_numbers import COMPLEX, PARTS
from tstatic.ops.shape.creation import ones, ones_like
from tstatic.ops.shape.expanding import expand
from tstatic.ops.shape.pad import pad
from tstatic.ops.shape.reshape import squeeze, unsqueeze
from tstatic.ops.shape.slicing import slice_
from tstatic.ops.shape.transpose import swapaxes


def _window(function: str, window: Any, n_fft: int, win_length: Any, like: Variable) -> Variable:
    """Returns the window ``[n_fft]``: the given one, or ones, in the middle of zeros."""
    size = n_fft if win_length is None else check_int(win_length, "win_length", function, least=1, most=n_fft)
    kind = like.dtype.real
    if window is None:
        window = ones([size], kind)
    weights = check_variable(window, "window", function, (*PARTS, *COMPLEX))
    if len(weights.shape) != 1 or weights.shape[0] not in (size, UNKNOWN):
        raise ShapeError(
            f"the window of {function} has another size than win_length",
            expected=[size],
            received=list(weights.shape),
            fix="pass win_length=window.shape[0]",
            op=function,
            var=weights.name,
        )
    left = (n_fft - size) // 2
    if n_fft > size:
        weights = emit_one("pad", {"X": weights}, {"paddings": (left, n_fft - size - left)})
    return weights


def _hop(function: str, n_fft: Any, hop_length: Any) -> tuple[int, int]:
    size = check_int(n_fft, "n_fft", function, least=1)
    return size, max(size // 4, 1) if hop_length is None else check_int(hop_length, "hop_length", function, least=1)


@export("signal.stft", "Variable.stft", op="frame")
def stft(
    x: Variable,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Variable | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool = True,
    name: str | None = None,
) -> Variable:
    """Returns the Fourier transforms of the frames of signals.

    Args:
        x: Signals ``[time]`` or ``[batch, time]``, real or complex; the time must be known.
        n_fft: The length of a frame.
        hop_length: The distance of two frames; a quarter of ``n_fft`` by default.
        win_length: The length of the window, at most ``n_fft``, which is the default; zeros stand around it.
        window: What frames are multiplied by, ``[win_length]``; ones by default.
        center: Puts frame ``t`` around place ``t * hop_length``: the signal is padded by ``n_fft // 2`` at both ends.
        pad_mode: ``"reflect"`` or ``"constant"`` (zeros).
        normalized: Multiplies by ``1 / sqrt(n_fft)``.
        onesided: Leaves the frequencies out that those of real signals say.
        name: Name of the layer.

    Returns:
        ``[..., n_fft // 2 + 1, frames]``; ``n_fft`` frequencies if not onesided.

    Raises:
        ProgramError: For ``onesided`` of a complex signal or window.
        ShapeError: If a frame is longer than the signal.

    Example:
        >>> x = paddle.to_tensor(np.cos(np.arange(16) * np.pi / 2).astype("float32"))
        >>> y = paddle.signal.stft(x, n_fft=8, center=False)
        >>> y.shape
        (5, 5)
        >>> np.abs(static.Executor().run(fetch_list=[y])[0])[:, 0].round(3)
        array([0., 0., 4., 0., 0.], dtype=float32)
    """
    check_variable(x, "x", "stft", (*PARTS, *COMPLEX))
    check_rank(x, (1, 2), "x", layout="[time] or [batch, time]")
    n_fft, hop = _hop("stft", n_fft, hop_length)
    weights = _window("stft", window, n_fft, win_length, x)
    if onesided and (x.dtype.is_complex or weights.dtype.is_complex):
        raise ProgramError(
            "half a spectrum does not say the other half of complex signals",
            expected="onesided=False, or real values",
            received=f"{x.dtype.name} and a window of {weights.dtype.name}",
            fix="pass onesided=False",
            op="stft",
            var=x.name,
        )
    signal = x if len(x.shape) == 2 else unsqueeze(x, 0)
    if center:
        check_choice(pad_mode, ("constant", "reflect"), "pad_mode", "stft")
        half = n_fft // 2
        signal = squeeze(pad(unsqueeze(signal, 1), [half, half], mode=pad_mode, data_format="NCL"), 1)
    frames = emit_one("frame", {"X": signal}, {"frame_length": n_fft, "hop_length": hop})
    weighted = multiply(swapaxes(frames, -1, -2), weights)
    norm = "ortho" if normalized else "backward"
    found = transform("stft", weighted, None, [-1], norm, forward=True, half="out" if onesided else "")
    found = swapaxes(found, -1, -2)
    return _named(found if len(x.shape) == 2 else found[0], name)


@export("signal.istft", "Variable.istft", op="overlap_add")
def istft(
    x: Variable,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Variable | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool = True,
    length: int | None = None,
    return_complex: bool = False,
    name: str | None = None,
) -> Variable:
    """Returns the signals whose frames have transforms next to ``x``: the inverse of :func:`stft`.

    Args:
        x: Transforms ``[n_fft // 2 + 1, frames]`` or ``[batch, n_fft // 2 + 1, frames]``, of ``n_fft`` frequencies if not
            onesided.
        n_fft, hop_length, win_length, window, center, normalized, onesided: As they were given to :func:`stft`.
        length: The length of the signals; longer ones are cut, shorter ones padded with zeros.
        return_complex: The signals are complex; then ``onesided`` must be False.
        name: Name of the layer.

    Returns:
        ``[time]`` or ``[batch, time]``.

    Raises:
        ProgramError: For ``return_complex`` of half a spectrum.
        ShapeError: If ``x`` has another number of frequencies.

    Example:
        >>> x = paddle.to_tensor(np.arange(16, dtype="float32"))
        >>> y = paddle.signal.istft(paddle.signal.stft(x, n_fft=8), n_fft=8, length=5)
        >>> static.Executor().run(fetch_list=[y])[0].round(3) + 0
        array([0., 1., 2., 3., 4.], dtype=float32)
    """
    check_variable(x, "x", "istft", COMPLEX)
    check_rank(x, (2, 3), "x", layout="[frequencies, frames] or [batch, frequencies, frames]")
    n_fft, hop = _hop("istft", n_fft, hop_length)
    weights = _window("istft", window, n_fft, win_length, x)
    if return_complex and onesided:
        raise ProgramError(
            "half a spectrum does not say complex signals",
            expected="onesided=False, or return_complex=False",
            received="both True",
            fix="pass onesided=False to stft and istft",
            op="istft",
            var=x.name,
        )
    frequencies = n_fft // 2 + 1 if onesided else n_fft
    if x.shape[-2] not in (frequencies, UNKNOWN):
        raise ShapeError(
            "these are not the transforms of frames of n_fft values",
            expected=f"{frequencies} frequencies",
            received=list(x.shape),
            fix="pass n_fft and onesided as they were given to stft",
            op="istft",
            var=x.name,
        )
    spectra = swapaxes(x if len(x.shape) == 3 else unsqueeze(x, 0), -1, -2)
    norm = "ortho" if normalized else "backward"
    if return_complex:
        frames = transform("istft", spectra, None, [-1], norm, forward=False)
    else:
        # Of a whole spectrum the first half is read, as in Paddle and torch.
        frames = transform("istft", spectra[:, :, : n_fft // 2 + 1], [n_fft], [-1], norm, forward=False, half="in")
    signal = _overlapped(multiply(frames, weights), hop)
    # Each place is divided by the squares of the windows over it.
    count = x.shape[-1]
    squares = expand(unsqueeze(multiply(weights, weights), 0), [1 if count == UNKNOWN else count, n_fft])
    if count == UNKNOWN:
        squares = multiply(ones_like(frames[0]), squares)
    total = _overlapped(squares, hop)
    half = n_fft // 2 if center else 0
    if length is not None:
        stop = half + check_int(length, "length", "istft", least=1)
    else:
        stop = -half if half else int(np.iinfo(np.int32).max)
    found = divide(slice_(signal, [-1], [half], [stop]), slice_(total, [-1], [half], [stop]))
    if length is not None and found.shape[-1] != UNKNOWN and found.shape[-1] < length:
        found = emit_one("pad", {"X": found}, {"paddings": (0, 0, 0, length - found.shape[-1])})
    return _named(found if len(x.shape) == 3 else found[0], name)


def _overlapped(frames: Variable, hop: int) -> Variable:
    return emit_one("overlap_add", {"X": swapaxes(frames, -1, -2)}, {"hop_length": hop})


def _named(x: Variable, name: str | None) -> Variable:
    return x if name is None else emit_one("assign", {"X": x}, name=name)
