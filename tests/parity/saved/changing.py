"""Calls whose results depend on the run, on training, or on a variable that an operator overwrites."""

OTHER_RESULTS = ("random", "rand", "normal", "uniform", "poisson", "bernoulli", "multinomial", "dropout", "Dropout", "exponential",
                 "batch_norm", "BatchNorm", "increment", "empty", "shuffle", "gumbel", "rrelu", "RReLU")  # fmt: skip
