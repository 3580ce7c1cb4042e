"""Backends: one file each.

* ``pool``  worker threads that share out the tiles of a step
* ``cpu``   runs every op definition's ``ref`` on numpy arrays
* ``tile_chain`` joins steps that are cut alike
* ``null``  runs nothing: plans and overhead
"""
