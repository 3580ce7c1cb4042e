"""Update rules and averages of parameters, step by step against what Paddle 2.6.2 and 1.8.5 recorded."""
