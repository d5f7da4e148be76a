"""DSA, the Dynamic Semantic Adjuster: arrange pairs by a prior's similarities (Song et al. 2024, arXiv 2407.13541).

regularizer.py: the plug-in. arranging.py: the MLP and L_AM. scoring.py: the prior matrix, L_con and the connectivity
scores. official.py: `variant=code`. pairwise.py: the pairs of a rank, and the MLP on them. The priors are in
sslkit/priors.
"""

from sslkit.regularizers.dsa.arranging import ArrangingMLP, arrange_loss
from sslkit.regularizers.dsa.regularizer import DSA
from sslkit.regularizers.dsa.scoring import connectivity_score, consistency_loss, prior_matrix

__all__ = ["DSA", "ArrangingMLP", "arrange_loss", "connectivity_score", "consistency_loss", "prior_matrix"]
