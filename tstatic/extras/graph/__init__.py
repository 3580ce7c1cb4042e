"""Values on the nodes and edges of graphs: `paddle.geometric`.

* ``neighbors``: Numbers that run through for the nodes of a part of a graph, and neighbours drawn at random.
* ``pooling``: Rows pooled by segment, or by the node that edges lead to.
* ``softmax_mask``: Softmax of masked scores, as Paddle's `incubate` has it.
"""
