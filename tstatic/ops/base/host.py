"""Why some ops run on the host on every device: reasons that several op definitions state as ``host``."""

READS_LENGTHS = "it reads on the host where its sequences begin and end"
READS_BOXES = "it reads on the host which image each box belongs to, and walks over the boxes"
READS_CHOICE = "it reads on the host which value is chosen"
READS_PATHS = "it reads on the host which nodes of the tree each sample passes"
READS_LABELS = "it reads the labels on the host"
NO_GRADIENT_CALL = (
    "torch has no call for its gradient, which its form differentiates: that takes memory that no plan knows"
)
