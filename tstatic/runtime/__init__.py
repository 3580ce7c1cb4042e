"""Running plans.

* ``scope``    where persistable variables live between runs
* ``flat``     parameters and moments as views of flat buffers of the scope
* ``feed``     checks and converts what the user feeds
* ``session``  a plan bound to arrays and a scope, and one step of it
* ``block``    runs the bodies of control flow
"""
