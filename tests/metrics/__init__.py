"""What Paddle 2.6.2 and 1.8.5 recorded for metrics that add up batches."""
