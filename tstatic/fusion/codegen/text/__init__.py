"""Kernels as modules that can be read, and run alone.

* ``emit``  a group as the text of a module
* ``composite``  kernels of several parts in one module
* ``prelude``  device functions that modules carry with them
* ``script``, ``reference``  the part that runs alone, and the numpy that it compares with
* ``launched``  which function of a module runs where
"""
