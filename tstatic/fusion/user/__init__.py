"""What users require of fusions.

* ``register``, ``registration``  ``register_kernel``, and a registration as text
* ``user_kernel``  a registered kernel as a fusion
* ``explicit_groups``  the groups of ``static.fuse_together``
"""
