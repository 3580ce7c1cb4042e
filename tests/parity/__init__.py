"""Results, shapes, gradients and errors compared with those of Paddle 2.6.2."""
