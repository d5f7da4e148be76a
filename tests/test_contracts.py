"""What every objective and every regulariser must do, whichever files there are: found by listing the folders."""

import io
from dataclasses import fields, replace

import pytest
import torch
import torch.nn.functional as F
from contract import EMBEDDED, MEMBERS, PLUGINS, batch, build, enough, own_tests, step

import sslkit
from sslkit import objectives, regularizers
from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.zoo import heads

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*no data set.*", "ignore:.*eta.*", "ignore:.*dead.*", "ignore:TF32 acceleration"
)
MINUTES = pytest.mark.nightly
# The quantiles of a few images spread less than a normal distribution, and the standard deviation has no gradient in
# its shape: embeddings of 8 images shrink, and the scale loses more than the shape wins.
IMAGES = {"visreg": 32}
# Every objective without plug-ins and with all of them; with each alone only where minutes are no matter.
PAIRS = [
    pytest.param(f"{name}{plugin and '+' + plugin}", marks=MINUTES if plugin in PLUGINS[:-1] else [])
    for name in objectives.names()
    for plugin in ("", *PLUGINS)
]
# Batch size, channels and dtype. Of six and seven images one dtype each is quick.
BATCHES = [
    (2, 3, torch.float32),
    (2, 3, torch.bfloat16),  # in fp16 left to a GradScaler: batch norm over two rows has gradients beyond 65504
    (6, 1, torch.float16),
    (7, 3, torch.float32),
    *(pytest.param(6, 1, dtype, marks=MINUTES) for dtype in (torch.float32, torch.bfloat16)),
    *(pytest.param(7, 3, dtype, marks=MINUTES) for dtype in (torch.bfloat16, torch.float16)),
]


def backward(m: sslkit.Method, n: int, in_chans: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """One step under autocast: terms and gradients are checked for what every method owes its trainer.

    Half precision runs without oneDNN, whose weight gradients of convolutions on the smallest maps now and then read
    memory that nobody wrote (runtime.hardware.precision).
    """
    half = dtype is not torch.float32
    m.epoch = 1  # past what is frozen in the first epoch
    with torch.backends.mkldnn.flags(enabled=not half):
        with torch.autocast("cpu", dtype, enabled=half):
            terms = step(m, *batch(enough(m, n), in_chans))
        terms["loss"].backward()
    assert all(v.dtype is torch.float32 and v.dim() == 0 and v.isfinite() for v in terms.values()), terms
    without = [k for k, p in m.named_parameters() if p.requires_grad and p.grad is None]
    assert not without, f"no gradient in {without}"
    broken = [k for k, p in m.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    assert not broken, f"gradient not finite in {broken}"
    return terms


@pytest.mark.parametrize(("name", "family"), MEMBERS)
class TestEveryObjective:
    @pytest.mark.parametrize(("n", "in_chans", "dtype"), BATCHES)
    def test_gradient_reaches_every_trained_parameter(self, name, family, n: int, in_chans: int, dtype) -> None:
        backward(build(name, family, in_chans=in_chans), n, in_chans, dtype)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_large_embeddings_stay_finite(self, name, family, dtype) -> None:
        """Half precision embeds, the losses see values far beyond what it can hold the squares of."""
        m = build(name, family)
        images, index = batch(enough(m, 6))
        with torch.autocast("cpu", dtype):
            e = m.embed(images, index)
            e.labels = index % 5
        e = _leaves(replace(e, **{k: v * 1e4 for k, v in _floating(e).items()}))
        value = m.objective.align(e) + (m.objective.constrain(e) or 0)
        assert value.isfinite() and value.dtype is torch.float32
        assert all(grad.isfinite().all() for grad in _gradients(value, e).values())

    def test_value_and_gradient_are_the_oracles(self, name, family) -> None:
        m = build(name, family).double()
        images, index = batch(enough(m, 8))
        m.epoch = 1  # past what is frozen in the first epoch
        for _ in range(2):  # the second time with a queue and a centre that have seen a batch
            step(m, images, index)
        e = m.embed(images, index)
        e.labels = index % 5
        ours, theirs = (_leaves(e), _leaves(e))
        value = m.objective.align(ours) + (m.objective.constrain(ours) or 0)
        expected = own_tests(name).oracle(m.objective, theirs)
        torch.testing.assert_close(value, expected.to(value.dtype), rtol=1e-4, atol=1e-6)
        for key, grad in _gradients(value, ours).items():
            theirs_grad = _gradients(expected, theirs)[key]
            scale = theirs_grad.abs().max().item()
            torch.testing.assert_close(
                grad, theirs_grad, rtol=1e-3, atol=1e-4 * scale, msg=lambda s, k=key: f"{k}: {s}"
            )

    def test_losses_are_pure_in_their_argument(self, name, family) -> None:
        m = build(name, family)
        images, index = batch(enough(m, 6))
        e = m.embed(images, index)
        e.labels = index % 5
        before = {f.name: v.clone() for f in fields(e) if isinstance(v := getattr(e, f.name), torch.Tensor)}
        state = {k: v.clone() for k, v in m.state_dict().items()}
        first, second = ((m.objective.align(e), m.objective.constrain(e)) for _ in range(2))
        assert all(torch.equal(v, state[k]) for k, v in m.state_dict().items())
        assert first[0].item() == second[0].item() and (first[1] is None or first[1].item() == second[1].item())
        assert all(torch.equal(getattr(e, k), v) for k, v in before.items())

    def test_embeddings_are_what_regularisers_expect(self, name, family) -> None:
        m = build(name, family)
        images, index = batch(enough(m, 6))
        e = m.embed(images, index)
        v, n = e.z.shape[:2]
        assert (n, e.z.shape[2]) == (len(index), m.objective.dim) and e.z.requires_grad
        assert e.h.shape == (v, n, m.backbone.width) and e.h.dtype is e.z.dtype is torch.float32
        assert len(e.views) == v and all(view.shape == (n, 3, 16, 16) for view in e.views)
        assert e.target is None or not e.target.requires_grad

    def test_each_embedding_names_the_view_behind_it(self, name, family, monkeypatch) -> None:
        m = build(name, family).eval()  # running statistics: batch norm mixes no views
        make = m.make_views
        monkeypatch.setattr(m, "make_views", lambda *given: _with_gradient(make(*given)))
        e = m.embed(*batch(enough(m, 6)))
        weight = torch.randn(e.z.shape, generator=torch.Generator().manual_seed(0))
        for i, named in enumerate(e.views):
            (grad,) = torch.autograd.grad((weight[i] * e.z[i]).sum(), [named], retain_graph=True, allow_unused=True)
            assert grad is not None and grad.abs().sum() > 0, f"z[{i}] does not depend on e.views[{i}]"

    def test_its_source_head_is_kept_and_is_what_the_loss_reads(self, name, family, tmp_path, monkeypatch) -> None:
        """The loss of a target that is one class is minus the log-probability of this class."""
        m = build(name, family)
        step(m, *batch(enough(m, 6)))  # running statistics that are not those of the start
        objective, layers = m.eval().objective, m.objective.source_head()
        if layers is None:
            assert not objective.needs_labels and not hasattr(objective, "prototypes")
            return
        heads.write(tmp_path, heads.Head.from_layers("own", layers, {"data": "clipart"}), "digest")
        e = m.embed(*batch(enough(m, 6)))
        e.local, e.labels = None, torch.full_like(e.index, 3)
        monkeypatch.setattr(objective, "patch_weight", 0.0, raising=False)
        monkeypatch.setattr(
            objective, "codes", lambda x: F.one_hot(torch.full(x.shape[:-1], 3), 12).to(x), raising=False
        )
        expected = -heads.read_head(tmp_path, "own", "digest")(e.h).log_softmax(-1)[..., 3].mean()
        torch.testing.assert_close(objective.align(e), expected, rtol=1e-4, atol=1e-5)

    def test_a_run_stopped_and_loaded_continues_bit_for_bit(self, name, family) -> None:
        unbroken = Trainer(build(name, family))
        unbroken.run(range(3))
        second = Trainer(build(name, family, seed=0))
        second.load(unbroken.saved())
        for trainer in (unbroken, second):
            trainer.run(range(3, 5))
        before, after = unbroken.method.state_dict(), second.method.state_dict()
        assert before.keys() == after.keys()
        different = [k for k in before if not torch.equal(before[k], after[k])]
        assert not different, f"another state after a resume: {different}"

    def test_a_few_steps_lower_the_loss(self, name, family) -> None:
        m = build(name, family)
        trainer = Trainer(m, lr=3e-3)
        trainer.run(range(4))  # fills the queues
        m.training = False  # of the method alone: no queue, centre or teacher moves, the targets stand still
        images, index = batch(enough(m, IMAGES.get(name, 8)))
        losses = []
        for _ in range(12):
            m.batch = 0  # the same views each time
            losses.append(trainer.step(images, index))
        assert min(losses[-3:]) < losses[0]

    def test_exports_a_backbone_that_loads_strict_into_timm(self, name, family) -> None:
        m = build(name, family)
        trainer = Trainer(m)
        trainer.run(range(2))
        names: dict = {}
        exec("\n".join(m.backbone.recipe.lines), names)
        names["net"].load_state_dict(m.backbone.export(), strict=True)
        x = torch.rand(2, 3, 16, 16)
        ours = m.backbone.eval()(x)
        if family == "resnet":  # a 3x3 stem is exported as a 7x7 one
            torch.testing.assert_close(names["net"].eval()(x), ours, rtol=1e-4, atol=1e-5)
        else:
            torch.testing.assert_close(names["net"].eval()(x), ours)

    def test_too_small_a_batch_is_refused(self, name, family) -> None:
        m = build(name, family)
        images, index = batch(m.objective.least_images - 1)
        with pytest.raises(UserError, match="at least"):
            step(m, images, index)


@pytest.mark.parametrize("name", PAIRS)
class TestEveryPair:
    def test_gradient_reaches_every_trained_parameter(self, name: str) -> None:
        terms = backward(build(name), 6, 3, torch.bfloat16)
        assert terms["loss"].item() == pytest.approx(sum(v.item() for k, v in terms.items() if k != "loss"), rel=1e-6)

    def test_uint8_and_float_batches_agree(self, name: str) -> None:
        m, other = build(name, seed=1), build(name, seed=1)  # seed 0 leaves w_mse+guide almost singular
        images, index = batch(enough(m, 6))
        torch.testing.assert_close(
            step(other, images.float() / 255, index)["loss"], step(m, images, index)["loss"], rtol=2e-4, atol=1e-5
        )

    def test_the_seed_fixes_weights_and_views(self, name: str) -> None:
        torch.manual_seed(1)
        m = build(name, seed=5)
        given = batch(enough(m, 6))
        first = step(m, *given)["loss"]
        torch.manual_seed(2)
        again = step(build(name, seed=5), *given)["loss"]
        other = step(build(name, seed=6), *given)["loss"]
        assert first.item() == again.item() != other.item()


@pytest.mark.parametrize("name", regularizers.names())
def test_a_balanced_regulariser_stopped_and_loaded_continues_bit_for_bit(name: str) -> None:
    balanced = {name: {"balance": 0.5}}
    unbroken = Trainer(build(f"byol+{name}", **balanced))
    unbroken.run(range(3))
    second = Trainer(build(f"byol+{name}", seed=0, **balanced))
    second.load(unbroken.saved())
    for trainer in (unbroken, second):
        trainer.run(range(3, 6))  # the shares are measured after 4 steps
        assert trainer.method.shares.factor(name) != 1
    before, after = unbroken.method.state_dict(), second.method.state_dict()
    different = [k for k in before if not torch.equal(before[k], after[k])]
    assert not different, f"another state after a resume: {different}"


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_regulariser_takes_any_number_of_views(name: str) -> None:
    images, index = batch(8)
    plugin = regularizers.find(name)(12)
    for v in (1, 2, 4):
        x = torch.randn(v, 8, 12, requires_grad=True)
        read = {"z": x.detach(), "h": x.detach(), plugin.reads: x}
        views = [images.float() / 255 * (1 - 0.1 * i) for i in range(v)]
        terms = plugin.terms(Embeddings(**read, target=None, index=index, views=views), images)
        sum(terms.values()).backward()
        assert x.grad.isfinite().all() and x.grad.abs().sum() > 0


class Trainer:
    """A loop of one's own: two batches an epoch, of sizes that divide no queue."""

    def __init__(self, method: sslkit.Method, lr: float = 1e-3) -> None:
        self.method = method
        self.optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], lr)

    def run(self, steps: range) -> None:
        for i in steps:
            self.method.epoch, self.method.batch = divmod(i, 2)
            self.step(*batch(enough(self.method, 7 - i % 2)))
            self.method.after_step((i + 1) / 20)

    def step(self, images: torch.Tensor, index: torch.Tensor) -> float:
        loss = step(self.method, images, index)["loss"]
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def saved(self) -> io.BytesIO:
        file = io.BytesIO()
        torch.save([self.method.state_dict(), self.optimizer.state_dict()], file)
        file.seek(0)
        return file

    def load(self, file: io.BytesIO) -> None:
        method, optimizer = torch.load(file, weights_only=True)
        self.method.load_state_dict(method)
        self.optimizer.load_state_dict(optimizer)


def _floating(e: Embeddings) -> dict[str, torch.Tensor]:
    found = {f.name: getattr(e, f.name) for f in fields(e)}
    return {k: v for k, v in found.items() if isinstance(v, torch.Tensor) and v.is_floating_point()}


def _with_gradient(views):
    for view in views:
        view.requires_grad_(True)
    return views


def _leaves(e: Embeddings) -> Embeddings:
    """A copy whose tensors are leaves: those that carried gradient ask for it."""
    return replace(e, **{k: v.detach().clone().requires_grad_(v.requires_grad) for k, v in _floating(e).items()})


def _gradients(value: torch.Tensor, e: Embeddings) -> dict[str, torch.Tensor]:
    leaves = {k: v for k, v in _floating(e).items() if v.requires_grad}
    grads = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, retain_graph=True)
    return {k: torch.zeros_like(v) if g is None else g for (k, v), g in zip(leaves.items(), grads, strict=True)}
