"""Functions made of the functions of several families; they define no op.

* ``operators``, ``kinds``, ``getitem``, ``placing``  Python's operators, questions about values, access by index
* ``einsum``, ``linear``, ``products``, ``fsp``  products of matrices and of more axes
* ``rearranging``, ``nan_to_num``, ``gated``, ``noisy_activation``, ``multigammaln``  on elements and shapes
* ``attention``, ``affine_channel``, ``lrn``  attention and normalisations
* ``pool_functions``, ``pool_first_generation``, ``interpolate_functions``, ``interpolate_when_run``  windows and sizes of images
* ``margin_loss``, ``embedding_loss``, ``likelihood_loss``  losses
* ``static_rnn``, ``dynamic_rnn``, ``if_else``, ``gru_unit``, ``lstm_unit``  recurrences and branches of Paddle 1.x
* ``composed``, ``first_generation``  op types of Paddle that are several ordinary ops here
"""
