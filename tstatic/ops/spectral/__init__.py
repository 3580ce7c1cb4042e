"""Fourier transforms and signals: `paddle.fft`, `paddle.signal`.

* ``fft``: Discrete Fourier transforms of one, two and more axes, their frequencies and shifts.
* ``frames``: Frames of a signal, which may overlap, and their sum.
* ``stft``: Short-time Fourier transforms.
"""
