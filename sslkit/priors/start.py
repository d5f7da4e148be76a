"""The network in training as it was before the first step: the weights of init=, kept frozen."""

from sslkit.priors._of_run import RunPrior


class StartPrior(RunPrior):
    """A resumed run reads its weights from init= again. Without init= they are the random ones that the run began with.

    A `sslkit.method` has the weights of its network at its making.
    """

    specified = False
