"""Ranking models and classifiers of very many classes: sampled and hierarchical losses, and statistics of clicks.

* ``nce``, ``sample_logits``: Losses over the true class and a few that are drawn.
* ``hierarchical_sigmoid``: A loss along the path to a class in a tree; ``hsigmoid_layers``: the layers that hold its weights.
* ``center_loss``: Pulls features towards the centre of their class.
* ``class_center_sample``: The classes of a batch, filled up with others that are drawn.
* ``teacher_student``: The sigmoid loss of clicks and a teacher's scores.
* ``cvm``, ``data_norm``: Columns of shows and clicks; normalisation by running sums of a batch's columns.
* ``ctr_metric``: Sums of which the accuracy of click rates is made.
* ``hash``: Ids into several tables of a given size.
* ``static_layers``: The layers ``static.nn.nce`` and ``fluid.layers.center_loss``.
"""
