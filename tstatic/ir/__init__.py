"""What a program is.

* ``types``, ``attrs``, ``slots``, ``domain``  data types and metadata, attributes, slots, where tests sample
* ``opdef``, ``export``, ``ref``, ``evaluate``  what an op is, its public names, its reference, and running one
* ``expr``, ``expr_numpy``, ``pointwise``, ``rows``, ``rng``  expressions, what follows from them, and random keys
* ``program``, ``variable``, ``operator``, ``mappings``, ``methods``  the graph that users build
* ``build``, ``checks``, ``declare``, ``names``, ``where``  how it is built
* ``edit``  clone, prune
* ``frozen``, ``verify``  the single-assignment copy that passes work on, and what must be true of it
* ``text``, ``parse``, ``tokens``  print and parse
* ``serial``, ``desc``, ``restore``, ``process``, ``arrays``  the saved form
* ``picture``, ``layout``, ``svg``  drawings
"""
