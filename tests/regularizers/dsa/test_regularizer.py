"""DSA as a whole: its two terms from the functions of the paper, its options, and what it keeps out of the model."""

from dataclasses import replace

import contract
import numpy as np
import pytest
import torch
from dsa_steps import N, build, step
from torch import Tensor, nn

from sslkit import regularizers
from sslkit.data.items import IMAGE
from sslkit.errors import UserError
from sslkit.regularizers.dsa import DSA, arrange_loss, connectivity_score, consistency_loss, prior_matrix


def test_is_found_by_its_name() -> None:
    assert regularizers.find("dsa") is DSA


@pytest.mark.parametrize("views", [1, 2, 3])
def test_terms_are_eq_17_for_any_number_of_views(views: int, fashion) -> None:
    e, images = step(fashion, views)
    dsa = build(neighbours="batch", nu=0.3, upsilon=7.0, alpha="relative:2", gamma=0.4)
    features = dsa.prior(images)
    z = nn.functional.normalize(e.z.flatten(0, 1), dim=1)
    m = dsa.arrange(z)
    score = connectivity_score(features, eta=5, backend="torch").repeat(views)
    terms = dsa.terms(e, images)
    want = 0.3 * arrange_loss(z, m, score, alpha=2 / len(z), gamma=0.4)
    torch.testing.assert_close(terms["dsa/arrange"], want)
    torch.testing.assert_close(
        terms["dsa/consistency"], 7 * consistency_loss(m, prior_matrix(features.repeat(views, 1)))
    )


def test_prepared_equals_features_of_the_batch_but_for_the_neighbours(fashion, tmp_path) -> None:
    e, images = step(fashion, rows=range(100, 100 + N))
    plain, prepared = build(neighbours="batch"), build(neighbours="auto")
    small = Subset(fashion, 200)
    prepared.prepare(small, cache=tmp_path)
    ours, theirs = prepared.terms(e, torch.zeros_like(images)), plain.terms(e, images)
    torch.testing.assert_close(ours["dsa/consistency"], theirs["dsa/consistency"])
    assert ours["dsa/arrange"] != theirs["dsa/arrange"]
    whole = connectivity_score(prepared.prior(small[:]), eta=5)[100 : 100 + N]
    z = nn.functional.normalize(e.z.flatten(0, 1), dim=1)
    want = 0.1 * arrange_loss(z, prepared.arrange(z), whole.repeat(2))
    torch.testing.assert_close(ours["dsa/arrange"], want)


class Subset:
    """The first rows of a data set."""

    item = IMAGE

    def __init__(self, data, count: int) -> None:
        self.data, self.count, self.name = data, count, "subset"
        self.digest = f"{data.digest} {count}"

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice) -> Tensor:
        return self.data.__getitems__(list(range(self.count))[rows])["images"]

    def __getitems__(self, rows: list[int]) -> dict:
        return self.data.__getitems__(rows)


def test_view_mode_uses_the_augmented_views(fashion) -> None:
    e, images = step(fashion)
    dsa = build(mode="view", neighbours="none", prior=lambda x: x.flatten(1) - 0.1)
    z = nn.functional.normalize(e.z.flatten(0, 1), dim=1)
    features = torch.cat([view.flatten(1) - 0.1 for view in e.views])
    want = 100 * consistency_loss(dsa.arrange(z), prior_matrix(features))
    torch.testing.assert_close(dsa.terms(e, images)["dsa/consistency"], want)
    e.views = None
    with pytest.raises(UserError, match="mode=cached"):
        dsa.terms(e, images)


def test_features_file_by_index(fashion, tmp_path) -> None:
    table = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    np.save(tmp_path / "f.npy", table)
    e, images = step(fashion, rows=range(30, 30 + N))
    dsa = build(prior=f"features:{tmp_path / 'f.npy'}", nu=0.0)
    z = nn.functional.normalize(e.z.flatten(0, 1), dim=1)
    want = 100 * consistency_loss(dsa.arrange(z), prior_matrix(torch.from_numpy(table[30 : 30 + N]).repeat(2, 1)))
    torch.testing.assert_close(dsa.terms(e, images)["dsa/consistency"], want)


OPTIONS = [
    {"variant": "code"},
    {"arranger": "cosine"},
    {"alpha": "relative:2"},
    {"alpha": 0.5},
    {"gamma": 1.0},
    {"tau": "auto"},
    {"tau": 0.1},
    {"eta": 3},
    {"mu": 2},
    {"neighbours": "none"},
    {"mode": "view", "prior": "pca", "neighbours": "batch"},
    {"nu": 1.0},
    {"upsilon": 1.0},
]


@pytest.mark.filterwarnings("ignore:prior pca")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_changes_the_loss(options: dict, fashion) -> None:
    e, images = step(fashion)
    changed = build(**{"neighbours": "batch", **options})
    loss = sum(changed.terms(e, images).values())
    loss.backward()
    assert loss.isfinite() and e.z.grad.isfinite().all() and e.z.grad.any()
    dead = [k for k, p in changed.named_parameters() if not (p.grad.isfinite().all() and p.grad.any())]
    assert not dead
    assert abs(loss - sum(build(neighbours="batch").terms(e, images).values())) > 1e-4


@pytest.mark.parametrize(("place", "other"), ["zh", "hz"])
def test_the_backbones_features_are_arranged_where_it_is_asked_for(place: str, other: str, fashion) -> None:
    e, images = step(fashion)
    own = {"hidden": 16, "prior": "hog", "prior_size": 16, "eta": 5, "neighbours": "batch", "reads": place}
    losses = []
    for given in (e, replace(e, **{other: torch.full((2, N, 3), torch.nan)}), replace(e, z=e.h, h=e.z)):
        torch.manual_seed(0)
        dsa = DSA(getattr(given, place).shape[2], **own)
        losses.append(sum(dsa.terms(given, images).values()))
    assert losses[0] == losses[1] and abs(losses[0] - losses[2]) > 1e-4 and losses[0].isfinite()
    with pytest.raises(UserError, match=f"dsa was made for 3 dimensions, and {place} has"):
        DSA(3, **own).terms(e, images)


def test_what_is_chosen_for_an_objective_is_said() -> None:
    for name, balance, words in (("byol", 3.0, "compare views"), ("mae", 0.03, "do not compare views")):
        method = contract.build(f"{name}+dsa")
        assert method.regularizers["dsa"].balance == balance
        assert f"balance {balance:g}" in method.describe()["dsa"]
        assert method.describe()["dsa"].endswith(f", chosen for objectives that {words}")


def test_a_weight_of_zero_skips_what_nothing_else_needs(fashion) -> None:
    def refuse(images: Tensor) -> Tensor:
        raise AssertionError("the prior is not needed")

    e, images = step(fashion)
    alone = build(prior=refuse, upsilon=0.0, neighbours="none").terms(e, images)
    assert alone["dsa/consistency"] == 0 and alone["dsa/arrange"] > 0
    taught = build(nu=0.0).terms(e, images)
    assert taught["dsa/arrange"] == 0 and taught["dsa/consistency"] > 0
    nothing = build(prior=refuse, nu=0.0, upsilon=0.0).terms(e, images)
    assert nothing == {"dsa/arrange": 0, "dsa/consistency": 0}


def test_nu_is_read_in_every_call_so_a_loop_may_raise_it(fashion) -> None:
    e, images = step(fashion)
    dsa, full = build(), build().terms(e, images)["dsa/arrange"]
    shares = []
    for call in range(6):
        dsa.nu = 0.1 * min(1, call / 4)
        shares.append((dsa.terms(e, images)["dsa/arrange"] / full).item())
    assert shares == pytest.approx([0, 0.25, 0.5, 0.75, 1, 1])


def test_nu_may_be_raised_after_the_data_set_was_prepared_without_it(fashion) -> None:
    e, images = step(fashion)
    early, late = build(neighbours="dataset"), build(neighbours="dataset", nu=0.0)
    for dsa in (early, late):
        dsa.prepare(Subset(fashion, 64))
    assert late._scores is None  # a run without the term does not search for neighbours
    late.nu = early.nu
    assert late.terms(e, images)["dsa/arrange"] == early.terms(e, images)["dsa/arrange"]


def test_the_prior_is_no_part_of_the_model(fashion) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 3), nn.BatchNorm1d(3))
    dsa = build(prior=net)
    assert set(dsa.state_dict()) == {f"arrange.{k}" for k in dsa.arrange.state_dict()}
    assert {id(p) for p in dsa.parameters()}.isdisjoint({id(p) for p in net.parameters()})
    dsa.train()
    assert not net.training and not any(p.requires_grad for p in net.parameters())
    before = [b.clone() for b in net.buffers()]
    e, images = step(fashion)
    sum(dsa.terms(e, images).values()).backward()
    assert all(torch.equal(x, y) for x, y in zip(before, net.buffers(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_autocast_and_other_precisions(dtype: torch.dtype, fashion) -> None:
    e, images = step(fashion)
    e.z = e.z.detach().to(dtype).requires_grad_()
    dsa = build(neighbours="batch")
    with torch.autocast("cpu", torch.bfloat16):
        terms = dsa.terms(e, images)
    e.z = e.z.detach().float().requires_grad_()
    for name, want in dsa.terms(e, images).items():
        assert terms[name].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(terms[name], want, check_dtype=False, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:eta")
@pytest.mark.parametrize("count", [1, 2])
def test_smallest_batches(count: int, fashion) -> None:
    e, images = step(fashion, rows=range(count))
    sum(build().terms(e, images).values()).backward()
    assert e.z.grad.isfinite().all()


def test_what_is_watched(fashion) -> None:
    e, images = step(fashion)
    dsa = build(alpha="relative:2")
    dsa.terms(e, images)
    m = dsa.arrange(nn.functional.normalize(e.z.flatten(0, 1), dim=1))
    score = connectivity_score(dsa.prior(images), eta=5)
    want = {
        "dsa/attracted": (2 * m > 2 / (2 * N)).float().mean(),
        "dsa/highest": m.max(),
        "dsa/dead_rows": torch.zeros(()),
        "dsa/score_sd": score.std(correction=0),
    }
    for name, value in want.items():
        torch.testing.assert_close(dsa.watched[name], value)
    assert 0 < dsa.watched["dsa/attracted"] < 1
    assert not any(value.requires_grad for value in dsa.watched.values())
    mean = dsa.watched["dsa/arrange_mean"]
    z = nn.functional.normalize(e.z.flatten(0, 1), dim=1)
    want = arrange_loss(z, m, score.repeat(2), alpha=2 / (2 * N), reduction="mean")
    torch.testing.assert_close(mean, want.detach())


def test_dead_rows_are_said_once(fashion, recwarn) -> None:
    e, images = step(fashion)
    dsa = build()
    nn.init.constant_(dsa.arrange.last.bias, -100.0)
    with pytest.warns(UserWarning, match="100% of the rows"):
        dsa.terms(e, images)
    recwarn.clear()
    dsa._seen = 0
    dsa.terms(e, images)
    assert not recwarn.list


def test_pure_repulsion_is_said_once(fashion, monkeypatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("sslkit.terminal.say.line", said.append)
    e, images = step(fashion)
    dsa = build()
    for _ in range(2):
        dsa._seen = 0
        dsa.terms(e, images)
    build(alpha="relative:1").terms(e, images)
    assert sum("pushes all pairs apart" in text for text in said) == 1


def test_describe_names_the_prior_and_how_to_have_clip() -> None:
    assert "pca" in DSA(4).describe() and "dsa.prior=clip" in DSA(4).describe()
    assert "hog" in build().describe()
