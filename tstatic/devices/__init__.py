"""Backends: one file each.

* ``pool``  worker threads that share out the pieces of a step
* ``cpu``   runs every op definition's ``ref`` on numpy arrays
* ``lanes`` joins steps that are cut alike
* ``null``  runs nothing: plans and overhead
"""
