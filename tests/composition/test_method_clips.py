"""v-SimCLR, v-BYOL, v-MoCo and v-SwAV: the objectives as they stand, on clips."""

import os
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from contract import SMALL
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import sslkit
from sslkit import objectives
from sslkit.data.items import item_of
from sslkit.data.views import recipe
from sslkit.errors import UserError
from sslkit.options.members import signature
from sslkit.runtime import distributed

pytestmark = pytest.mark.filterwarnings("ignore:.*no data set.*", "ignore:.*eta.*", "ignore:.*dead.*")
VIDEO = ("simclr", "byol", "moco", "swav")
FRAMES, SIZE = 4, 16


def moving(videos: int, clips: int, frames: int = FRAMES, size: int = SIZE) -> Tensor:
    """(N, R, 3, T, S, S) uint8: a piece of clip-art that moves across, further along in each later clip."""
    pictures = sslkit.open_images("clipart").__getitems__(list(range(videos)))["images"].float()
    pictures = F.interpolate(pictures, (size, size), mode="area").byte()
    step = torch.arange(clips)[:, None] * 2 + torch.arange(frames)
    shown = [[torch.stack([p.roll(t.item(), -1) for t in row], 1) for row in step] for p in pictures]
    return torch.stack([torch.stack(film) for film in shown])


def build(name: str, **options) -> sslkit.Method:
    known = signature(name.partition("+")[0])["objective"]
    small = {k: v for k, v in SMALL.items() if k in known}
    given = {"objective": small, "image_size": SIZE, "frames": FRAMES, **options}
    return sslkit.method(name, backbone="narrow_slow", **given)


def train(method: sslkit.Method, clips: Tensor, steps: int) -> list[float]:
    """Losses of steps on one batch with one set of views."""
    trained = [p for p in method.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.05)
    losses, index = [], torch.arange(len(clips))
    for step in range(steps):
        method.epoch, method.batch = 1, 0
        optimizer.zero_grad()
        labels = {"labels": index % 2} if method.objective.needs_labels else {}
        terms = method(clips, index, **labels)
        terms["loss"].backward()
        assert all(v.isfinite() for v in terms.values()), terms
        assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)
        optimizer.step()
        method.after_step((step + 1) / (steps + 1))
        losses.append(terms["loss"].item())
    return losses


@pytest.mark.filterwarnings("ignore:.*no data set.*")
@pytest.mark.parametrize("plugin", ["", "+dsa", "+guide"])
@pytest.mark.parametrize("name", VIDEO)
def test_two_steps_lower_the_loss(name: str, plugin: str) -> None:
    method = build(name + plugin, **({"dsa": {"eta": 2, "upsilon": 1.0, "balance": None}} if plugin == "+dsa" else {}))
    if name == "moco":  # its queue would hold the keys of this very batch from the second step on
        method.objective.observe = lambda e: None
    first, *_, last = train(method, moving(6, 2), 3)
    assert last < first
    assert [f"+{one}" for one in method.regularizers] == [plugin] * bool(plugin)


def test_clips_are_the_views_and_are_normalised_by_channel() -> None:
    method = build("byol", normalize=((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)))
    clips = moving(3, 2)
    views = method.make_views(clips)
    assert [v.shape for v in views] == [(3, 3, FRAMES, SIZE, SIZE)] * 2
    x = method.normalize_pixels(views[0])
    torch.testing.assert_close(x[:, 2], (views[0][:, 2] - 0.3) / 0.6)
    e = method.embed(clips, torch.arange(3))
    assert e.z.shape == (2, 3, 8) and [v.shape for v in e.views] == [v.shape for v in views]


IMAGES_ONLY = {"data2vec", "densecl", "dinov2", "ibot", "ijepa", "mae", "msn", "u_mae", "vicregl"}


@pytest.mark.parametrize("name", sorted(set(objectives.names()) - IMAGES_ONLY))
def test_every_other_objective_learns_from_clips_too(name: str) -> None:
    method = build(name)
    assert len(train(method, moving(max(4, method.objective.least_images), 2), 1)) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mae", "take images only, and backbone narrow_slow takes clips"),
        ("u_mae", "take images only, and backbone narrow_slow takes clips"),
        ("vicregl", "gives no feature map: an objective on maps takes images, not clips"),
    ],
)
def test_objectives_of_images_alone_say_so_in_one_line(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        build(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["ressl", "moco_v3", "corinfomax"])
def test_objectives_of_two_views_refuse_more_clips(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} compares 2 clips of a video, not 4: set data.clips=2"):
        build(name)(moving(4, 4), torch.arange(4))


@pytest.mark.parametrize("shape", [(4, 3, SIZE, SIZE), (4, 2, 1, FRAMES, SIZE, SIZE), (4, 2, 3, 5, SIZE, SIZE)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"clips must be \(N, R, 3, 4, H, W\), R of each video, for frames=4, got"):
        build("byol")(torch.zeros(shape, dtype=torch.uint8), torch.arange(4))


def test_v_swav_has_no_local_crops_unless_asked_for() -> None:
    assert build("swav").recipe.n_local == build("swav", views=signature("swav")["views"]).recipe.n_local == 0
    assert sslkit.method("swav", image_size=32).recipe.n_local == 6
    method = build("swav", views={"n_local": 2})
    views = method.make_views(moving(2, 2))
    assert [v.shape[-1] for v in views] == [SIZE, SIZE, 7, 7] and views[2].shape[2] == FRAMES
    assert len(train(method, moving(4, 2), 1)) == 1


@pytest.mark.parametrize("name", VIDEO)
def test_clips_start_from_the_video_recipe_whatever_the_objective(name: str) -> None:
    large = build(name, image_size=112).recipe
    assert large.views == recipe.VIDEO.views and large.n_local == 0
    first, second = large.views
    assert first == second and (first.scale, first.brightness, first.hue) == ((0.2, 0.766), 0.6, 0.15)
    assert (first.jitter, first.grayscale, first.blur, first.solarize) == (0.8, 0.2, 0.5, 0.0)
    assert build(name).recipe == recipe.for_item(objectives.find(name).views, item_of(16)).at(SIZE)
    assert sslkit.method(name, image_size=32).recipe.views == objectives.find(name).views.at(32).views


def test_the_video_recipe_leaves_what_is_the_objectives_own() -> None:
    assert build("ressl", image_size=112).recipe.views == (recipe.VIDEO.views[0], recipe.WEAK)
    changed = build("byol", image_size=112, views={"scale": (0.5, 1.0), "solarize": 0.2, "hue": None}).recipe
    assert {(v.scale, v.solarize, v.hue) for v in changed.views} == {((0.5, 1.0), 0.2, 0.15)}
    local = build("swav", image_size=224, views={"n_local": 2}).recipe.each()[2:]
    assert [(v.scale, v.size, v.brightness) for v in local] == [((0.05, 0.14), 96, 0.6)] * 2


class TestFourClips:
    """rho = 4, each against plain loops over the clips."""

    def embedded(self, name: str, **options):
        method = build(name, **options)
        method.epoch = method.objective.epoch = 1
        e = method.embed(moving(5, 4), torch.arange(5))
        return method.objective.double(), type(e)(**{k: _double(v) for k, v in vars(e).items()})

    def test_v_byol_predicts_every_other_clip(self) -> None:
        objective, e = self.embedded("byol")
        p, t = F.normalize(e.prediction, dim=-1), F.normalize(e.target, dim=-1)
        pairs = [[(p[i] - t[j]).square().sum(-1).mean() for j in range(4) if j != i] for i in range(4)]
        expected = sum(sum(row) / 3 for row in pairs)
        torch.testing.assert_close(objective.align(e), expected)

    def test_v_simclr_has_every_other_clip_as_a_positive(self) -> None:
        objective, e = self.embedded("simclr")
        z = F.normalize(e.z.flatten(0, 1), dim=-1)
        cosine = (z @ z.T / objective.temperature).fill_diagonal_(-torch.inf)
        log_share = cosine - cosine.logsumexp(1, keepdim=True)
        positives = [log_share[a, b] for a in range(20) for b in range(20) if a != b and a % 5 == b % 5]
        torch.testing.assert_close(objective.align(e) + objective.constrain(e), -sum(positives) / len(positives))

    def test_v_moco_finds_each_key_among_the_queue(self) -> None:
        objective, e = self.embedded("moco")
        assert e.z.shape == (1, 5, 8) and e.target.shape == (3, 5, 8)
        query, losses = F.normalize(e.z[0], dim=-1), []
        for key in F.normalize(e.target, dim=-1):
            logits = torch.cat([(query * key).sum(-1, keepdim=True), query @ objective.queue.rows.T], 1)
            losses.append(F.cross_entropy(logits / objective.temperature, torch.zeros(5, dtype=torch.long)))
        torch.testing.assert_close(objective.align(e) + objective.constrain(e), sum(losses) / 3)
        objective.observe(e)
        assert objective.queue.filled == 5
        torch.testing.assert_close(objective.queue.rows[:5], F.normalize(e.target[0], dim=-1))

    def test_v_swav_has_codes_of_two_clips_and_predictions_of_all(self) -> None:
        objective, e = self.embedded("swav")
        assert e.z.shape == (2, 5, 8) and e.local.shape == (2, 5, 8)
        crops = e.directions()
        codes = objective.codes(crops[:2])
        log_p = (crops @ objective.prototypes.weight.T / objective.temperature).log_softmax(-1)
        pairs = [-(codes[c] * log_p[v]).sum(-1).mean() for c in range(2) for v in range(4) if v != c]
        torch.testing.assert_close(objective.align(e), sum(pairs) / 6)


def _double(value):
    return value.detach().double() if isinstance(value, Tensor) and value.is_floating_point() else value


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=2)
    try:
        method = _for_ranks()
        distributed.synchronize_batch_norm(method, "cpu")
        clips, index = moving(4, 2)[rank::2], torch.arange(4)[rank::2]
        ddp = DistributedDataParallel(method, broadcast_buffers=False)
        torch.save(_gradients(method, ddp, clips, index), folder / f"{rank}.pt")
    except Exception:
        (folder / f"{rank}.txt").write_text(traceback.format_exc())
    finally:
        dist.destroy_process_group()


def _for_ranks() -> sslkit.Method:
    return build("byol+dsa", dsa={"eta": 2, "prior": "hog"}, seed=1).double()


def _gradients(method: sslkit.Method, call, clips: Tensor, index: Tensor) -> dict[str, Tensor]:
    terms = call(clips, index)
    terms["loss"].backward()
    grads = {k: p.grad.clone() for k, p in method.named_parameters() if p.grad is not None}
    return grads | {"loss": terms["loss"].detach()}


@pytest.mark.nightly
def test_two_processes_equal_one(tmp_path) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    mp.spawn(work, args=(tmp_path,), nprocs=2)
    assert not list(tmp_path.glob("*.txt")), next(tmp_path.glob("*.txt")).read_text()
    one = _for_ranks()
    expected = _gradients(one, one, moving(4, 2), torch.arange(4))
    for rank in range(2):
        got = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert got.keys() == expected.keys()
        for key, value in expected.items():  # the features of DSA's prior are fp32
            torch.testing.assert_close(got[key], value, rtol=1e-4, atol=1e-5, msg=lambda m, key=key: f"{key}: {m}")
