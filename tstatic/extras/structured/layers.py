"""Losses and decoders of label sequences as layers."""

from __future__ import annotations

from tstatic.extras.structured.viterbi_decode import viterbi_decode
from tstatic.extras.structured.warpctc import ctc_loss
from tstatic.ir.checks import check_choice
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.nn.layer.layers import Layer
from tstatic.ops.base.labels import REDUCTIONS


@export("nn.CTCLoss")
class CTCLoss(Layer):
    """Calls :func:`nn.functional.ctc_loss`.

    Args:
        blank: The class that means "no label".
        reduction: ``"mean"`` of the losses, each divided by the length of its labels, ``"sum"`` or ``"none"``.

    Example:
        >>> scores = paddle.to_tensor(np.zeros([2, 1, 3], "float32"))
        >>> two, one = paddle.to_tensor([2]), paddle.to_tensor([1])
        >>> loss = paddle.nn.CTCLoss()(scores, paddle.to_tensor([[1]]), two, one)
        >>> static.Executor().run(fetch_list=[loss])[0]
        array(1.0986, dtype=float32)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean") -> None:
        super().__init__()
        self.blank = blank
        self.reduction = check_choice(reduction, REDUCTIONS, "reduction", "CTCLoss")

    def forward(
        self,
        log_probs: Variable,
        labels: Variable,
        input_lengths: Variable,
        label_lengths: Variable,
        norm_by_times: bool = False,
    ) -> Variable:
        """Returns the loss; the arguments are those of :func:`nn.functional.ctc_loss`."""
        return ctc_loss(log_probs, labels, input_lengths, label_lengths, self.blank, self.reduction, norm_by_times)

    def extra_repr(self) -> str:
        """Returns the settings."""
        return f"blank={self.blank}, reduction={self.reduction}"


@export("text.ViterbiDecoder")
class ViterbiDecoder(Layer):
    """Calls :func:`text.viterbi_decode` with its own transitions.

    Args:
        transitions: ``[tags, tags]``: the score of going from a tag (row) to another (column).
        include_bos_eos_tag: The last row holds the scores of beginning with each tag, the last but one those of ending with it.
        name: Name of the layer.

    Example:
        >>> moves = paddle.to_tensor([[0.0, 0.0], [0.0, 2.0]])
        >>> decoder = paddle.text.ViterbiDecoder(moves, include_bos_eos_tag=False)
        >>> score, path = decoder(paddle.to_tensor([[[0.0, 1.0], [0.5, 0.0]]]), paddle.to_tensor([2]))
        >>> static.Executor().run(fetch_list=[score, path])
        [array([3.], dtype=float32), array([[1, 1]])]
    """

    def __init__(self, transitions: Variable, include_bos_eos_tag: bool = True, name: str | None = None) -> None:
        super().__init__()
        self.transitions = transitions
        self.include_bos_eos_tag = include_bos_eos_tag
        self.name = name

    def forward(self, potentials: Variable, lengths: Variable) -> tuple[Variable, Variable]:
        """Returns the scores and the tags; the arguments are those of :func:`text.viterbi_decode`."""
        return viterbi_decode(potentials, self.transitions, lengths, self.include_bos_eos_tag, self.name)
