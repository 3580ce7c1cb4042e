"""Running plans.

* ``session``, ``binding``, ``commit``, ``failures``  runs a plan, binds it to memory, writes state, says whose work failed
* ``ahead``, ``in_flight``  steps that are queued before it is known what became of those before them, and who must wait for them
* ``sub_block``, ``generated``, ``product_and_add``, ``scratch``  bodies of control flow, kernels, products with an addend between
  these, and what steps need only while they run
* ``sections``  steps whose sizes a run finds
* ``arenas``, ``kept``  memory that plans take turns in, and how much each plan keeps beside it
* ``storage``  the arrays of a plan's values, and blocks that a device's library allocates while steps run
* ``checks``, ``finite``  of positions and of NaN while a plan runs
* ``parted``  variables of which each place holds a part until somebody looks
* ``foreseen``  which sums a run leaves out, known on the host before the device knows it
* ``scope``, ``assign``, ``flatten``  where persistable variables live, how many are written at once, and how they become views of
  flat buffers
* ``dlpack``  tensors shared with other libraries
* ``feed``, ``fetch``, ``shards``  what the user feeds and fetches, and what each replica gets of it
* ``lod``, ``lod_levels``  row offsets, and their levels
* ``fetched``  arrays that convert to numbers, for programs of 1.x
* ``replica_threads``  one thread per replica
* ``random``, ``learning_rate``  seeds, and a scheduler's rate
* ``out_of_memory``  where a run got no memory, and what would fit
* ``interrupt``  signals wait while state is written
* ``recorded``  the calls of a session while a profiler records
* ``timeline``  where the time of a first step went
"""
