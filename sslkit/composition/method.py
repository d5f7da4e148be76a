"""`byol+dsa`: an objective and its regularisers as one module, images in, named loss terms out."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sslkit import backbones
from sslkit.backbones.published import IMAGENET
from sslkit.backbones.words import AUTO
from sslkit.composition import balance, step_checks
from sslkit.composition.anchors import Anchors
from sslkit.composition.slow import SlowNetwork
from sslkit.data.views.augmentation import Views, augment, view_generator
from sslkit.data.views.crops import Crops, finish
from sslkit.data.views.recipe import ViewRecipe, for_item
from sslkit.embeddings import Embeddings, outputs_of
from sslkit.errors import UserError, format_value
from sslkit.objectives.base import Objective
from sslkit.options.members import check_parts, key, parse
from sslkit.options.settings import Limits, as_plain, fits
from sslkit.regularizers.base import Regularizer
from sslkit.runtime import distributed
from sslkit.runtime.context import Computing
from sslkit.runtime.device import use_seed
from sslkit.terminal import say

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images

Terms = Mapping[str, Tensor]


class Method(nn.Module):
    """One forward is one step's loss: make the views, embed them, sum the terms. Build it with `sslkit.method`.

        terms = method(images, index)  # (N, C, H, W) uint8, (N,) int64 rows -> {"align": ..., "loss": ...}
        terms["loss"].backward()
        optimizer.step()
        method.after_step(progress)  # the finished share of the run, 0 to 1

    name: as in `sslkit.method`. objective, plugins: the built members, plug-ins by name. slow: for prior=self.
    recipe: of the views. image_size: side in pixels. normalize: mean and std per channel.
    compiled_views: set it to let a GPU make large views by compiled kernels (data/views/fused.py).
    seed: of the views, which also depend on `epoch` and the number of the batch in it.
    Of `help(Method)` only the members "defined here" are sslkit's; the thousand lines after them are torch's nn.Module.
    """

    def __init__(
        self,
        name: str,
        objective: Objective,
        plugins: Mapping[str, Regularizer],
        *,
        recipe: ViewRecipe,
        image_size: int,
        normalize: tuple[tuple[float, ...], tuple[float, ...]],
        seed: int,
    ) -> None:
        super().__init__()
        self.name = name
        self.objective = objective
        self.regularizers = nn.ModuleDict(plugins)
        for plugin in plugins.values():
            plugin.beside(compares_views=objective.compares_views)
        self.shares = balance.Shares(plugins)
        self.slow = SlowNetwork(self.backbone) if any(plugin.needs_slow for plugin in plugins.values()) else None
        self.anchors = Anchors([objective, *plugins.values()], self.backbone, normalize, seed)
        self.recipe = recipe
        self.image_size = image_size
        self.normalize = normalize
        self.seed = seed
        self.epoch = self.batch = 0
        self.progress = 0.0
        self.compiled_views = False
        self.terms_of: dict[str, list[str]] = {}  # names of the last step's terms, by regulariser
        ones = [1] * (len(self.backbone.input_shape()) - 1)
        mean, std = (torch.tensor(x).view(1, -1, *ones) for x in normalize)
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)

    @property
    def backbone(self) -> backbones.Backbone:
        """The network that is trained, images (N, C, H, W) to features (N, D); with a teacher, the student's."""
        return self.objective.backbone

    @property
    def needs_images(self) -> bool:
        """Return whether a regulariser reads the whole images of each batch, besides the views."""
        return any(plugin.needs_images for plugin in self.regularizers.values())

    def check(self, dataset: "Images") -> None:
        """Let the parts refuse the clean training images before anything is computed. Raises UserError."""
        for member in (self.objective, *self.regularizers.values()):
            member.check(dataset)

    def prepare(self, dataset: "Images", *, cache: Path | None = None, steps: int = 0) -> None:
        """Let the parts read the clean training images once, for priors' components and data-set neighbours.

        dataset: the training images; for videos the center clips, `videos.with_sampling("center")`.
        cache: folder of what priors compute, for later runs; None: nothing is kept. steps: of the run; 0 if unknown.
        Optional in a training loop of your own: without it the regularisers see only the batch.
        """
        self.objective.prepare(dataset, cache=cache, normalize=self.normalize_pixels)
        for plugin in self.regularizers.values():
            plugin.prepare(dataset, cache=cache, steps=steps)

    def forward(
        self, images: Tensor | Crops, index: Tensor, *, aspect: Tensor | None = None, labels: Tensor | None = None
    ) -> dict[str, Tensor]:
        """images: (N, C, H, W) uint8, or float in [0, 1]; for a backbone of clips (N, R, C, T, H, W), R clips of each
        of N videos; or the `Crops` of N images, from a loader of `sslkit.data.views.cropped.CroppedImages`.
        index: (N,) rows of the data set.

        aspect: (N,) width / height of the originals if they were squashed to a square.
        labels: (N,) int64, -1 where unknown; only for an objective that learns from labels.
        Returns named scalars; "loss" is their sum, over the images of all ranks.
        """
        return self.step(images, index, aspect=aspect, labels=labels)[0]

    def step(
        self, images: Tensor | Crops, index: Tensor, *, aspect: Tensor | None = None, labels: Tensor | None = None
    ) -> tuple[dict[str, Tensor], Embeddings]:
        """Like `forward`, with its arguments, and also return the embeddings of all ranks."""
        step_checks.check_step(self, images, index, labels)
        self.objective.epoch, self.objective.progress = self.epoch, self.progress
        self.objective.mixed = torch.is_autocast_enabled(images.device.type)
        self.shares.progress = self.progress
        with outputs_of(self.backbone) as outputs:
            e = self.embed(images, index, aspect)
        e.labels = labels if self.objective.needs_labels else None
        e = e.gather()
        with torch.autocast(images.device.type, enabled=False):
            terms = {"align": self.objective.align(e), "constrain": self.objective.constrain(e)}
            terms = {k: v for k, v in terms.items() if v is not None}
            clean = images.whole if isinstance(images, Crops) else images
            plugins = {name: plugin.terms(e, clean) for name, plugin in self.regularizers.items()}
        self.terms_of = {name: list(its_terms) for name, its_terms in plugins.items()}
        self._measure(terms, plugins, outputs)
        for name, its_terms in plugins.items():
            if its_terms.keys() & terms.keys():
                raise ValueError(
                    f"{name} returns the terms {sorted(its_terms)}, and some exist already: {sorted(terms)}"
                )
            factor = self.shares.factor(name)
            terms |= {key: factor * term for key, term in its_terms.items()}
        if self.training:
            with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
                self.objective.observe(e)
        return {**terms, "loss": total(terms)}, e

    def _measure(self, terms: Terms, plugins: Mapping[str, Terms], outputs: list[Tensor]) -> None:
        """Measure the regularisers' shares, in every so many training steps in which the backbone is not held."""
        if not self.training or not torch.is_grad_enabled() or self.backbone.is_held:
            return
        self.shares.check()
        self.shares.watched = {}
        if self.shares.due:
            losses = {name: total(its_terms) for name, its_terms in plugins.items() if its_terms}
            self.shares.measure(total(terms), losses, self.backbone, outputs)
        self.shares.steps += 1

    def embed(self, images: Tensor | Crops, index: Tensor, aspect: Tensor | None = None) -> Embeddings:
        """Embed this rank's views; arguments as in `forward`. All random numbers come from one generator."""
        generator = view_generator(self.seed, self.epoch, self.batch)
        self.batch += 1
        views = self.make_views(images, aspect, generator)
        normal = Views(map(self.normalize_pixels, views), views.boxes)
        e = self.objective.embed(normal, index, generator)
        e.slow = None if self.slow is None else self.slow(normal[0])
        e.whole = self.anchors(self.backbone, views[0], normal[0], self.epoch, generator)
        places = range(len(e.z)) if e.of_views is None else e.of_views
        e.views = [views[i % len(views)] for i in places]  # MAE embeds two parts of one view
        return e

    def make_views(
        self, images: Tensor | Crops, aspect: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Views:
        """The views of the next step: V tensors (N, C, S, S) in [0, 1], independent of the number of ranks.

        For clips (N, C, T, S, S), at least as many as each video has clips. images, aspect: as in `forward`.
        generator: of the random numbers; None: that of the next step, by seed, epoch and number of the batch.
        """
        generator = generator or view_generator(self.seed, self.epoch, self.batch)
        how = {"rank": distributed.rank(), "world_size": distributed.world_size(), "compiled": self.compiled_views}
        with torch.autocast(images.device.type, enabled=False):
            if isinstance(images, Crops):
                return finish(images, self.recipe, generator, **how)
            return augment(images, self.recipe, self.image_size, generator, aspect=aspect, **how)

    def normalize_pixels(self, pixels: Tensor) -> Tensor:
        """Pixels in [0, 1], normalised and laid out for the backbone, once for all passes over them."""
        return (self.backbone.laid_out(pixels) - self.mean) / self.std

    def before_step(self) -> None:
        """Call between `backward` and the optimiser's step, where several processes train by DDP.

        It drops the gradients of zero of what the objective does not train yet.
        """
        for p in self.objective.frozen():
            p.grad = None

    def after_step(self, progress: float) -> None:
        """Call once after every optimiser step. progress: finished share of the run, 0 to 1."""
        self.progress = progress
        self.objective.after_step(progress)
        if self.slow is not None:
            self.slow.follow(self.backbone, progress)

    def watched(self) -> dict[str, Tensor]:
        """Tensors of the objective and the regularisers to log beside the loss terms."""
        parts = (self.objective, *self.regularizers.values(), self.shares)
        return {k: v for member in parts for k, v in member.watched.items()}

    def weights(self) -> dict[str, float]:
        """The factor that a term of the loss contains now, by the term's name; 1 for those left out."""
        factors = {}
        for name, plugin in self.regularizers.items():
            factor = float(self.shares.factor(name))
            terms = dict.fromkeys(self.terms_of.get(name, ()), 1.0) | dict(plugin.weights())
            factors |= {term: weight * factor for term, weight in terms.items()}
        return factors

    def describe(self) -> dict[str, str]:
        """One line for the start of a run from each part that has a description or made a choice."""
        lines = {parse(self.name)[0]: self.objective.describe()}
        for name, plugin in self.regularizers.items():
            lines[name] = "; ".join(filter(None, (plugin.describe(), plugin.choice)))
        return {key(name): line for name, line in lines.items() if line}

    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.epoch, self.batch, self.progress, *self.shares.state()], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        epoch, batch, self.progress, *shares = state.tolist()
        self.epoch, self.batch = int(epoch), int(batch)
        self.shares.restore(shares)


def total(terms: Terms) -> Tensor:
    """The sum of the terms of a loss."""
    return torch.stack(list(terms.values())).sum()


def method(
    name: str,
    *,
    backbone: str | nn.Module = AUTO,
    image_size: int = 224,
    in_chans: int = 3,
    frames: int | None = None,
    objective: Mapping[str, Any] | None = None,
    views: Mapping[str, Any] | None = None,
    normalize: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    seed: int = Computing.seed,
    **plugins: Mapping[str, Any],
) -> Method:
    """Build `objective+regulariser+...`: `method("byol+dsa", backbone="resnet18", image_size=32, dsa={"nu": 0.1})`.

        method = sslkit.method("byol+dsa", backbone="resnet18", image_size=32, dsa={"nu": 0.1})
        terms = method(images, index)  # (N, 3, 32, 32) uint8, (N,) int64 rows of the data set
        terms["loss"].backward()

    name: member names, or `package.module:Class` from outside.
    backbone: a timm name, `package.module:function` or an nn.Module; initialised at random from the seed. "auto": a
        small network of the family that the objective was published with (`backbones.default`).
    image_size, in_chans: side in pixels of the square views, and their channels.
    frames: of a clip, for a backbone of clips (`sslkit.backbones.clips`); None is 16 there. The views of clips are
        those of `data.recipe.VIDEO` (Feichtenhofer et al. 2021, arXiv 2104.14558) for all objectives, as many as the
        objective's full-size ones, local crops only if views.n_local asks for them; a view without colour changes
        (ReSSL's weak view) keeps that.
    objective, and in plugins one mapping per regulariser under its name: their options.
    views: arguments of `ViewRecipe.replace`, to change the recipe of the objective or of clips; None keeps a value.
    normalize: mean and std per channel; None is ImageNet's for three channels, otherwise 0.5 and 0.25.
    Raises UserError for unknown names and options, with the nearest known one.
    """
    image_size, in_chans, seed = as_plain((image_size, in_chans, seed))
    for option, value in {"image_size": image_size, "in_chans": in_chans}.items():
        if not fits(value, int, Limits(least=1)):
            raise UserError(f"{option} must be a whole number, at least 1, got {format_value(value)}")
    kinds, options = check_parts(name, objective or {}, plugins)
    if backbone == AUTO:
        backbone = backbones.default(kinds["objective"].families[0], image_size, frames)
    # The weights depend only on the seed, and the caller's random state is unchanged.
    with use_seed(seed):
        body = backbones.build(backbone, image_size=image_size, in_chans=in_chans, frames=frames)
        if body.doubt:
            say.warn(f"backbone {body.recipe.name}: {body.doubt}", stacklevel=2)
        head = kinds["objective"](body, **options["objective"])
        if len(kinds) > 1:
            head.expect_regularizers()
        widths = {"z": head.dim, "h": body.width, "map": body.width}
        plugged = {name: chosen for name, chosen in options.items() if name != "objective"}
        parts = {
            name: kinds[name](widths[chosen.get("reads", kinds[name].reads)], **chosen)
            for name, chosen in plugged.items()
        }
        published = kinds["objective"].views
        recipe = _fit_recipe(for_item(published, body.item), image_size, body.patch, views or {})
        step_checks.check_crops(body, recipe, image_size)
        return Method(
            name,
            head,
            parts,
            recipe=recipe,
            image_size=image_size,
            normalize=normalize or (IMAGENET if in_chans == 3 else ((0.5,) * in_chans, (0.25,) * in_chans)),
            seed=seed,
        )


def _fit_recipe(recipe: ViewRecipe, image_size: int, patch: int, changes: Mapping[str, Any]) -> ViewRecipe:
    """The published recipe adapted to the image size, with the user's changes."""
    if not isinstance(changes, Mapping):
        raise UserError(f"views must be a mapping of options, got {format_value(changes)}")
    changed = {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items() if v is not None}
    return recipe.at(image_size, patch=patch).replace(**changed)
