"""Boxes of objects in images: priors, overlaps, coding, suppression, pooling of regions, and the loss of YOLO."""
