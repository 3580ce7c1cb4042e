"""How to compute a program: frozen, printable data.

* ``shapes``, ``known_values``  metadata of every value once the feeds' shapes are known; sizes that follow from those shapes as
  values, and from constants
* ``schedule``  the order of steps; what may write state, and when
* ``memory``    lifetimes, and offsets in one arena
* ``flat_buffers``  the order of parameters, their states and gradients in flat buffers
* ``alignment``  values that kernels are compiled for in another way, by where they begin
* ``blocks``    values that stay where the device's library allocates them, and why others are copied
* ``plan``      the plan itself, and its text
* ``report``, ``capacity``  how many bytes, of what, at which op; whether they fit in a memory
"""
