"""Networks and transforms of images, against what Paddle 2.6.2 recorded."""
