"""DSA(variant="paper") is its pieces; what it leaves at their defaults is asked of the pieces themselves."""

import pytest
import torch
from dsa_steps import D, build, step
from torch import Tensor, nn

from sslkit.embeddings import Embeddings
from sslkit.regularizers.dsa import ArrangingMLP, arrange_loss, connectivity_score, consistency_loss, prior_matrix


def pieces(
    e: Embeddings, features: Tensor, *, mlp: dict, arrange: dict, score: dict, prior: dict, consistency: dict
) -> tuple[dict[str, Tensor], ArrangingMLP]:
    """DSA's terms from the functions of the paper, each with its own arguments."""
    torch.manual_seed(0)
    f_s = ArrangingMLP(D, 16, **mlp)
    views, z = len(e.z), nn.functional.normalize(e.z.flatten(0, 1), dim=1)
    m = f_s(z)
    sc = connectivity_score(features, **{"eta": 5, "backend": "torch", **score}).repeat(views)
    mpre = prior_matrix(features.repeat(views, 1), neighbours=5, **prior)
    loss = arrange_loss(z, m, sc, **arrange)
    return {"dsa/arrange": 0.1 * loss, "dsa/consistency": 100 * consistency_loss(m, mpre, **consistency)}, f_s


PIECES = {"mlp": {}, "arrange": {}, "score": {}, "prior": {}, "consistency": {}}
WRITTEN_OUT = {
    "mlp": {"phi": "relu", "normalise": "row", "inputs": "concat"},
    "arrange": {
        "alpha": 1.0,
        "gamma": 0.5,
        "squared": False,
        "reduction": "sum",
        "score_mode": "outside",
        "include_self": False,
    },
    "score": {"mu": 1, "rule": "threshold", "include_direct": False},
    "prior": {"tau": 0.5, "squared": True, "center": None, "normalise": "row"},
    "consistency": {"frobenius": "squared"},
}


@pytest.mark.parametrize("arguments", [PIECES, WRITTEN_OUT], ids=["defaults", "written out"])
def test_the_papers_variant_is_to_the_bit_the_pieces_with_these_arguments(arguments: dict, fashion) -> None:
    e, images = step(fashion)
    dsa = build(neighbours="batch", variant="paper")
    want, f_s = pieces(e, dsa.prior(images), **arguments)
    for got in (dsa.terms(e, images), build(neighbours="batch").terms(e, images)):
        assert all(torch.equal(got[name], want[name]) for name in want)
    gradients = [
        torch.autograd.grad(sum(terms.values()), [e.z, *module.parameters()])
        for terms, module in ((dsa.terms(e, images), dsa.arrange), (want, f_s))
    ]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


ARGUMENTS = [
    {"mlp": {"phi": "softplus"}},
    {"mlp": {"phi": "exp"}},
    {"mlp": {"normalise": "none"}, "prior": {"normalise": "none"}},
    {"mlp": {"inputs": "diff"}},
    {"arrange": {"squared": True}},
    {"arrange": {"reduction": "mean"}},
    {"arrange": {"score_mode": "inside"}},
    {"arrange": {"include_self": True}},
    {"prior": {"squared": False}},
    {"prior": {"center": "mean"}},
    {"consistency": {"frobenius": "norm"}},
    {"score": {"rule": "fraction"}},
    {"score": {"rule": "mutual"}},
    {"score": {"include_direct": True}},
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_every_argument_of_the_pieces_changes_the_loss(arguments: dict, fashion) -> None:
    e, images = step(fashion)
    features = build().prior(images)
    if "center" in arguments.get("prior", {}):
        arguments = {"prior": {"center": features.mean(0)}}
    terms, f_s = pieces(e, features, **PIECES | arguments)
    loss = sum(terms.values())
    loss.backward()
    assert loss.isfinite() and e.z.grad.isfinite().all() and e.z.grad.any()
    shifted = "last.bias" if arguments.get("mlp", {}).get("phi") == "exp" else ""  # a softmax does not see it
    dead = [k for k, p in f_s.named_parameters() if not (p.grad.isfinite().all() and p.grad.any()) and k != shifted]
    assert not dead
    assert abs(loss - sum(pieces(e, features, **PIECES)[0].values())) > 1e-4


def reached(term: Tensor, z: Tensor, arrange: nn.Module) -> tuple[bool, bool]:
    """Whether the term trains z and the arranging MLP."""
    grads = torch.autograd.grad(term, [z, *arrange.parameters()], allow_unused=True, retain_graph=True)
    found = [g is not None and bool(g.any()) for g in grads]
    return found[0], any(found[1:])


def test_gradient_paths(fashion) -> None:
    """Of DSA; and with M cut off from L_AM, or z from M, between the pieces."""
    e, images = step(fashion)
    dsa = build()
    for name in ("dsa/arrange", "dsa/consistency"):
        assert reached(dsa.terms(e, images)[name], e.z, dsa.arrange) == (True, True)
    z = nn.functional.normalize(e.z.flatten(0, 1), dim=1)
    features = dsa.prior(images)
    score, prior = connectivity_score(features, eta=5).repeat(2), prior_matrix(features.repeat(2, 1))
    for cut_m, cut_z, arrange, consistency in (
        (True, False, (True, False), (True, True)),
        (False, True, (True, True), (False, True)),
        (True, True, (True, False), (False, True)),
    ):
        m = dsa.arrange(z.detach() if cut_z else z)
        found = consistency_loss(m, prior), arrange_loss(z, m.detach() if cut_m else m, score)
        assert [reached(term, e.z, dsa.arrange) for term in found] == [consistency, arrange]
