"""Why some ops run on the host on every device: the trait :class:`HostOnly` with the reasons that several ops share."""

from tstatic.ir.traits import HostOnly

READS_LENGTHS = HostOnly("it reads on the host where its sequences begin and end")
READS_BOXES = HostOnly("it reads on the host which image each box belongs to, and walks over the boxes")
READS_CHOICE = HostOnly("it reads on the host which value is chosen")
READS_PATHS = HostOnly("it reads on the host which nodes of the tree each sample passes")
READS_LABELS = HostOnly("it reads the labels on the host")
NO_GRADIENT_CALL = HostOnly(
    "torch has no call for its gradient, which its form differentiates: that takes memory that no plan knows"
)
