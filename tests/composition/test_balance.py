"""The shares of regularisers: gradient norms of the whole loss's parts, taken apart, and the factors made of them."""

import copy
import math
import warnings

import pytest
import torch
from contract import batch, build, step
from torch import Tensor, nn

import sslkit
from sslkit.composition import balance
from sslkit.composition.balance import Shares
from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.regularizers.base import Regularizer
from sslkit.runtime.hardware import recompute

NAMES = ["simclr+koleo", "byol+guide", "mae+guide", "vicregl+koleo", "dino+koleo", "swav+guide"]
pytestmark = pytest.mark.filterwarnings("ignore:.*no data set.*", "ignore:.*dead.*", "ignore:.*eta.*")


class Plain(Regularizer):
    """A regulariser without a term."""


def shares(**balances: float | None) -> Shares:
    return Shares({name: Plain(balance=r) for name, r in balances.items()})


def gradient(m: sslkit.Method, objective: bool) -> dict[str, Tensor]:
    """The gradients of one part of a step's loss, by an ordinary backward pass on a copy."""
    m = copy.deepcopy(m)
    m.shares.steps = 3  # a step without measurement
    outputs = []

    def keep(module: nn.Module, given: tuple[Tensor], out: Tensor) -> None:
        out.retain_grad()
        outputs.append(out)

    m.backbone.register_forward_hook(keep)
    terms = step(m, *batch(8))
    parts = [v for k, v in terms.items() if k != "loss" and (k in ("align", "constrain")) == objective]
    torch.stack(parts).sum().backward()
    found = {k: p.grad for k, p in m.backbone.named_parameters() if p.grad is not None}
    return found | {"outputs": torch.cat([out.grad for out in outputs]) if outputs else None}


@pytest.mark.parametrize("name", NAMES)
def test_shares_are_the_ratios_of_two_backward_passes(name: str) -> None:
    plugin = name.partition("+")[2]
    m = build(name, **{plugin: {"balance": None}}).double()
    own, others = gradient(m, True), gradient(m, False)
    layer = [k for k, p in m.backbone.named_parameters() if k in own and p.dim() > 1][-1]
    step(m, *batch(8))
    found = m.watched()
    assert found[f"{plugin}/share"].item() == pytest.approx((others[layer].norm() / own[layer].norm()).item(), rel=1e-5)
    if own["outputs"] is None:
        assert f"{plugin}/share_h" not in found and name in ("mae+guide", "vicregl+koleo")
    else:
        expected = others["outputs"].norm() / own["outputs"].norm()
        assert found[f"{plugin}/share_h"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_step_with_balance_has_the_asked_share() -> None:
    m, plain = (build("simclr+koleo", koleo={"balance": r}) for r in (0.3, None))
    terms, unscaled = (step(one, *batch(8)) for one in (m, plain))
    assert m.watched()["koleo/share"].item() == pytest.approx(0.3, rel=1e-5)
    expected = 0.3 / plain.watched()["koleo/share"].item()
    assert (terms["koleo"] / unscaled["koleo"]).item() == pytest.approx(expected, rel=1e-5)
    assert m.watched()["koleo/factor"].item() == pytest.approx(expected, rel=1e-5)
    assert m.weights()["koleo"] == pytest.approx(0.1 * expected, rel=1e-5)


def test_the_factor_follows_the_running_mean_of_the_logarithm() -> None:
    """Losses of a linear network with the gradient norms written on them."""
    net, mine = nn.Linear(3, 1, bias=False), shares(a=2.0, b=None)
    x = torch.tensor([[1.0, 2.0, 2.0]])
    logs, mean = [math.log(b / a) for a, b in ((4.0, 1.0), (2.0, 8.0), (5.0, 5.0))], None
    for log in logs:
        out = net(x).sum()
        mine.measure(out, {"a": math.exp(log) * out, "b": out}, net, [])
        mean = log if mean is None else 0.5 * mean + 0.5 * log
        assert mine.factor("a").item() == pytest.approx(2 * math.exp(-mean), rel=1e-6)
        assert mine.watched["a/share"].item() == pytest.approx(2 * math.exp(log - mean), rel=1e-6)
        assert mine.factor("b") == 1.0 and "b/factor" not in mine.watched


def test_after_balance_until_the_factor_is_kept_and_the_share_goes_where_it_goes() -> None:
    net = nn.Linear(3, 1)
    mine = Shares({"a": Plain(balance=2.0, balance_until=0.5)})
    for progress, norm, factor in ((0.0, 4.0, 0.5), (0.5, 4.0, 0.5), (0.51, 1.0, 0.5), (1.0, 0.1, 0.5)):
        mine.progress, out = progress, net(torch.ones(1, 3)).sum()
        mine.measure(out, {"a": norm * out}, net, [])
        assert mine.factor("a").item() == pytest.approx(factor)
        assert mine.watched["a/share"].item() == pytest.approx(factor * norm)
    late = Shares({"a": Plain(balance=2.0, balance_until=0.0)})
    late.progress = 0.3
    out = net(torch.ones(1, 3)).sum()
    late.measure(out, {"a": 8 * out}, net, [])
    assert late.factor("a").item() == pytest.approx(0.25)  # the first measurement counts, whenever it is


def test_a_kept_factor_is_lowered_before_the_objective_is_swamped(recwarn) -> None:
    net, mine = nn.Linear(3, 1), Shares({"a": Plain(balance=2.0, balance_until=0.1)})
    for norm in (4.0, 1e3, 1e4, 1e4, 1e4, 1e4):
        mine.progress, mine.steps, out = 0.5, 64, net(torch.ones(1, 3)).sum()
        mine.measure(out, {"a": norm * out}, net, [])
        assert float(mine.factor("a")) * mine.logs["a"].share.exp().item() <= balance.SWAMPED * 1.0001
    assert mine.factor("a").item() < 0.01 and not recwarn.list
    mine.measure(out, {"a": 1e-3 * out}, net, [])
    mine.measure(out, {"a": 1e-3 * out}, net, [])
    assert mine.factor("a").item() == pytest.approx(0.5)  # of the first measurement again


@pytest.mark.parametrize("zero", ["objective", "plugin", "nan"])
def test_a_norm_of_zero_or_nan_leaves_the_factor(zero: str) -> None:
    net, mine = nn.Linear(3, 1), shares(a=2.0)
    scale = {"objective": (0.0, 1.0), "plugin": (1.0, 0.0), "nan": (1.0, math.nan)}[zero]

    def measure(a: float, b: float) -> float:
        out = net(torch.ones(1, 3)).sum()
        mine.measure(a * out, {"a": b * out}, net, [])
        return float(mine.factor("a"))

    assert measure(*scale) == 1.0  # never measured
    assert measure(1.0, 4.0) == pytest.approx(0.5)
    assert measure(*scale) == pytest.approx(0.5)
    assert measure(1.0, 1.0) == pytest.approx(2 * math.exp(-math.log(4) / 2))


def test_a_frozen_backbone_and_a_constant_regulariser_are_left_alone() -> None:
    m = build("simclr+koleo", koleo={"balance": 1.0})
    m.backbone.requires_grad_(False)
    step(m, *batch(8))["loss"].backward()
    assert m.shares.factor("koleo") == 1 and not any("share" in key for key in m.watched())
    m = build("simclr+koleo", koleo={"balance": 1.0, "weight": 0.0})
    terms = step(m, *batch(8))
    assert terms["koleo"].item() == 0 and m.shares.factor("koleo") == 1 and m.watched()["koleo/share"].item() == 0


@pytest.mark.parametrize("frozen", [False, True])
def test_a_balance_without_a_gradient_is_said_in_one_line(frozen: bool, recwarn) -> None:
    m = build("simclr+koleo", koleo={"balance": 1.0, "weight": 0.1 if frozen else 0.0})
    step(m, *batch(8))
    m.backbone.requires_grad_(not frozen)  # also if it was trained before
    m.shares.logs = build("simclr+koleo").shares.logs
    for m.shares.steps in (16, 64):
        step(m, *batch(8))
    said = [str(one.message) for one in recwarn if "balance" in str(one.message)]
    assert said == [
        "method.koleo.balance=1 has no effect: koleo or the objective has no gradient at the last layers of the "
        "backbone, so that there is no ratio to keep"
    ]


def test_a_last_layer_without_gradient_at_first_is_passed_over() -> None:
    """timm's ResNets begin with a last batch norm of zero."""
    m = sslkit.method("simclr+guide", backbone="resnet18", image_size=32)
    step(m, *batch(8))
    assert m.watched()["guide/share"].item() == pytest.approx(3, rel=1e-4)
    assert all(value.isfinite() for value in m.watched().values())


def test_a_regulariser_may_have_no_terms_in_a_step() -> None:
    m = build(f"byol+{__name__}:Rare")
    for m.shares.steps in (2, 4):
        at = m.shares.steps
        terms = step(m, *batch(8))
        assert ("rare" in terms) == (at == 4) == ("Rare/share" in m.watched())
    assert m.weights() == {"rare": pytest.approx(m.shares.factor("Rare").item())}


class Rare(Regularizer):
    """A regulariser with a term in the second of two steps."""

    def __init__(self, dim: int) -> None:
        super().__init__(balance=2.0)
        self.calls = 0

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        self.calls += 1
        return {"rare": e.z.square().mean()} if self.calls == 2 else {}


def test_card_of_accuracyten_at_first_and_then_rarely() -> None:
    mine = shares(a=None)
    found = []
    for mine.steps in range(300):
        found += [mine.steps] if mine.due else []
    assert found == [0, 2, 4, 8, 16, 32, 64, 128, 192, 256]
    assert not Shares({}).due


def test_only_training_steps_count_and_leave_no_trace_in_the_network() -> None:
    m = build("simclr+koleo")
    m.eval()
    step(m, *batch(8))
    assert m.shares.steps == 0 and not m.shares.watched
    m.train()
    with torch.no_grad():
        step(m, *batch(8))
    assert m.shares.steps == 0
    measured, plain = build("simclr+koleo"), build("simclr+koleo")
    plain.shares.steps = 3
    for one in (measured, plain):
        step(one, *batch(8))["loss"].backward()
    assert measured.shares.watched and not plain.shares.watched
    for (k, p), q in zip(measured.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad) if p.grad is not None else q.grad is None, k
    assert all(torch.equal(v, plain.backbone.state_dict()[k]) for k, v in measured.backbone.state_dict().items())


def test_recomputed_activations_give_the_same_shares_and_statistics() -> None:
    plain, again = build("simclr+koleo"), build("simclr+koleo")
    recompute(again.backbone.net, again.backbone.recipe.name)
    for m in (plain, again):
        step(m, *batch(8))
    assert again.watched()["koleo/share"].item() == pytest.approx(plain.watched()["koleo/share"].item(), rel=1e-4)
    for k, v in plain.backbone.state_dict().items():
        torch.testing.assert_close(again.backbone.state_dict()[k], v, msg=lambda s, k=k: f"{k}: {s}")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_measures_about_the_same(dtype: torch.dtype) -> None:
    """The median of five draws: of eight images the nearest may be another one, which changes a share much."""
    ratios = []
    for seed in range(5):
        plain, half = build("simclr+koleo"), build("simclr+koleo")
        plain.seed = half.seed = seed
        step(plain, *batch(8))
        with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", dtype):
            step(half, *batch(8))
        ratios.append([half.watched()[k].item() / plain.watched()[k].item() for k in ("koleo/share", "koleo/share_h")])
    assert torch.tensor(ratios).median(0).values.tolist() == pytest.approx([1, 1], abs=0.3)


def test_what_swamps_the_objective_is_said_once() -> None:
    net, mine = nn.Linear(3, 1), shares(big=None, small=None, tamed=1.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for mine.steps in (0, 64, 128):
            out = net(torch.ones(1, 3)).sum()
            mine.measure(out, {"big": 250 * out, "small": 20 * out, "tamed": 1e4 * out}, net, [])
            assert len(said) == (0 if mine.steps == 0 else 1)
    assert str(said[0].message) == (
        "the gradient of big is 250 times the objective's: the network learns almost only from big; "
        "method.big.balance=1 keeps it near the objective's"
    )


@pytest.mark.parametrize(
    ("plugin", "advised"), [("dsa", "dsa.balance=auto"), ("adc", "adc.balance=1"), ("koleo", "koleo.balance=1")]
)
def test_the_advice_is_a_balance_that_is_not_in_force(plugin: str, advised: str) -> None:
    m = build(f"byol+{plugin}", **{plugin: {"balance": None}})
    net = nn.Linear(3, 1)
    m.shares.steps = balance.CHECKED_FROM
    out = net(torch.ones(1, 3)).sum()
    with pytest.warns(UserWarning, match=f"method.{advised} keeps it near"):
        m.shares.measure(out, {plugin: 1e4 * out}, net, [])


def test_the_state_of_an_older_run_is_read() -> None:
    m, older = build("byol+koleo"), build("byol+koleo")
    step(m, *batch(8))
    older.set_extra_state(m.get_extra_state()[:3])
    assert older.batch == m.batch == 1 and older.shares.steps == 0 and m.shares.steps == 1
    older.set_extra_state(m.get_extra_state())
    assert older.shares.state() == m.shares.state()


@pytest.mark.parametrize("bad", [0, 0.0, -1, math.inf, math.nan])
@pytest.mark.parametrize("name", sslkit.regularizers())
def test_a_balance_out_of_range_is_refused(name: str, bad: float) -> None:
    with pytest.raises(UserError, match=f"{name} option balance must be .*a number, above 0"):
        build(f"byol+{name}", **{name: {"balance": bad}})
    with pytest.raises(UserError, match=r"balance must be .*a number above 0"):
        sslkit.regularizers.find(name)(8, balance=bad)
    with pytest.raises(UserError, match="balance_until must be from 0 to 1"):
        sslkit.regularizers.find(name)(8, balance_until=bad - 2)


class Old(Regularizer):
    """A regulariser of one's own from before there was a balance."""

    def __init__(self, dim: int) -> None:
        super().__init__()

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        return {"old": e.z.square().mean()}


def test_a_regulariser_without_the_option_still_runs() -> None:
    m = build(f"byol+{__name__}:Old")
    assert {"align", "old", "loss"} == step(m, *batch(8)).keys() and m.watched()["Old/share"] > 0
    assert balance.Shares is type(m.shares)
