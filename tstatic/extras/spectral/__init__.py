"""Fourier transforms and signals: `paddle.fft`, `paddle.signal`.

* ``fft``: Discrete Fourier transforms along axes: complex to complex, real to complex and complex to real.
* ``fft_functions``: Fourier transforms as functions: their sizes, axes and sides of the factor, frequencies and shifts.
* ``frames``: Frames of a signal, which may overlap, and their sum.
* ``stft``: Short-time Fourier transforms.
"""
