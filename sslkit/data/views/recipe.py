"""The augmented views of an objective: the distribution of each, and the published recipes.

Sources: Chen et al. 2020, arXiv 2002.05709, appendix A; Grill et al. 2020, arXiv 2006.07733, appendix B; multi-crop:
Caron et al. 2020, arXiv 2006.09882.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from sslkit.data.items import Item
from sslkit.data.resizing import SMALL
from sslkit.errors import UserError
from sslkit.options.members import nearest
from sslkit.options.settings import Limits, fits

SMALL_SCALE = (0.2, 1.0)  # 8 % of 28 x 28 pixels, the papers' smallest crop at 224, would be 8 x 8 of them
CROPS, PIXELS = Limits(least=0, most=64), Limits(least=1, most=4096)
PUBLISHED = 224  # pixels: image size of the published recipes
_SHARES = ("flip", "jitter", "grayscale", "blur", "solarize", "brightness", "contrast", "saturation", "threshold")


@dataclass(frozen=True)
class View:
    """The distribution of one augmented view. The defaults are SimCLR's at 224 pixels.

    scale: share of the image's area in the crop.
    ratio: width / height of the crop.
    flip: probability of mirroring.
    jitter: probability of the four colour changes.
    brightness, contrast, saturation: strength s of the colour change, a factor from 1 - s to 1 + s.
    hue: strength s of the colour change, a turn from -s to s.
    grayscale: probability of a gray view.
    blur: probability of a Gaussian blur.
    sigma: of the blur, in output pixels.
    solarize: probability of inverting values above the threshold.
    threshold: brightness from which solarize inverts.
    size: side in pixels; None is the image size of the run.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: float = 0.8
    brightness: float = 0.8
    contrast: float = 0.8
    saturation: float = 0.8
    hue: float = 0.2
    grayscale: float = 0.2
    blur: float = 0.5
    sigma: tuple[float, float] = (0.1, 2.0)
    solarize: float = 0.0
    threshold: float = 0.5
    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and not fits(self.size, int, PIXELS):
            raise UserError(f"view option size={self.size!r}: give pixels, {PIXELS}, or null for the run's size")
        for name, most in {**dict.fromkeys(_SHARES, 1), "hue": 0.5}.items():
            value = getattr(self, name)
            if not fits(value, float, Limits(least=0, most=most)):
                raise UserError(f"view option {name}={value!r}: give a number from 0 to {most}")
        for name, most in (("scale", 1), ("ratio", None), ("sigma", None)):
            value = getattr(self, name)
            pair = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
            if not fits(pair, Sequence[float], Limits(above=0, most=most)) or len(pair) != 2 or pair[0] > pair[1]:
                end = f" <= {most}" if most else ""
                raise UserError(f"view option {name}={value!r}: give two numbers, 0 < low <= high{end}")
            object.__setattr__(self, name, pair)


@dataclass(frozen=True)
class ViewRecipe:
    """The views of one image: full-size ones, a distribution each, and n_local smaller crops of one distribution.

    A recipe is stored as published, for images of 224 pixels; `at` adapts it to other sizes.

    Options of `replace` for the smaller crops:

    n_local: number of smaller crops.
    local_size: side of the smaller crops in pixels.
    local_scale: share of the image's area in a smaller crop.
    """

    views: tuple[View, ...]
    local: View | None = None
    n_local: int = 0

    def __post_init__(self) -> None:
        if not fits(self.n_local, int, CROPS):
            raise UserError(f"view option n_local={self.n_local!r}: give a number of local crops, {CROPS}")
        if self.n_local and self.local is None:
            raise UserError(f"view option n_local={self.n_local}: this objective has no local crops")

    def each(self) -> tuple[View, ...]:
        """Each view in order, the local crops last."""
        return self.views + (self.local,) * self.n_local

    def at(self, image_size: int, *, patch: int = 1) -> "ViewRecipe":
        """The recipe for this size: crops in proportion; up to 64 pixels no blur and half of the colour's strength.

        The latter is SimCLR's own practice on CIFAR-10 (appendix B.9) and that of other libraries' CIFAR recipes for
        BYOL.
        patch: the size of local crops becomes a multiple of patch, at least one.
        """

        def fit_view(view: View) -> View:
            if image_size <= SMALL:
                strengths = ("brightness", "contrast", "saturation", "hue")
                view = replace(view, blur=0.0, **{name: getattr(view, name) / 2 for name in strengths})
            size = view.size and max(round(view.size * image_size / PUBLISHED / patch), 1) * patch
            return replace(view, size=size)

        return replace(self, views=tuple(map(fit_view, self.views)), local=self.local and fit_view(self.local))

    def replace(self, **options: float | tuple[float, float]) -> "ViewRecipe":
        """The recipe with these options changed: `SIMCLR.replace(scale=(0.2, 1.0))`, `n_local=4`, `local_size=96`.

        `scale` applies to the full-size views, `local_size` and `local_scale` to the local crops; every other option of
        View applies to all views. Raises UserError for an unknown one.
        """
        for name in options:
            if name not in self.options():
                raise UserError(f"views has no option {name!r}: {nearest(name, self.options())}")
        full = {name: value for name, value in options.items() if name in _OPTIONS}
        shared = {name: value for name, value in full.items() if name != "scale"}
        local_options = {name: options[f"local_{name}"] for name in ("size", "scale") if f"local_{name}" in options}
        views = tuple(replace(view, **full) for view in self.views)
        try:
            local = self.local and replace(self.local, **shared, **local_options)
        except UserError as error:
            raise UserError(f"local crops: {error}") from error
        return ViewRecipe(views, local, options.get("n_local", self.n_local))

    def options(self) -> dict[str, None]:
        """The arguments of `replace`, all with the default None, which keeps the recipe's value."""
        local = ("n_local", "local_size", "local_scale") if self.local else ()
        return dict.fromkeys([*_OPTIONS, *local])

    def has_papers_scale(self) -> bool:
        """Return whether all full-size crops are the papers' usual ones, from 8 % of the area."""
        return all(view.scale == View.scale for view in self.views)

    def values(self) -> dict[str, str]:
        """The recipe's own value of each option in words, and that of `pretrain` for small images if it differs."""
        small = self.at(SMALL)
        small = small.replace(scale=SMALL_SCALE) if self.has_papers_scale() else small
        values = {name: self._value(name) for name in self.options()}
        for name, value in values.items():
            if name == "local_size":
                values[name] = f"{value} of {PUBLISHED} pixels, in proportion"
            elif (other := small._value(name)) != value:
                values[name] = f"{value}; up to {SMALL} pixels {other}"
        return values

    def _value(self, name: str) -> str:
        if name == "n_local":
            return str(self.n_local)
        local = name.removeprefix("local_")
        values = [getattr(view, name) for view in self.views] if local == name else [getattr(self.local, local)]
        return " and ".join(dict.fromkeys(_format_value(value) for value in values))


def _format_value(value: float | tuple[float, float]) -> str:
    return " to ".join(f"{number:.3g}" for number in value) if isinstance(value, tuple) else f"{value:.3g}"


_OPTIONS = [field.name for field in fields(View) if field.name != "size"]

SIMCLR = ViewRecipe((View(), View()))
# To find one by the other; unmirrored: a mirrored one is another image where left and right differ.
PAIR = ViewRecipe((View(flip=0.0),) * 2)
_BYOL = View(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
BYOL = ViewRecipe((replace(_BYOL, blur=1.0), replace(_BYOL, blur=0.1, solarize=0.2)))
_MOCO = View(scale=(0.2, 1.0), brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)
MOCO = ViewRecipe((_MOCO, _MOCO))  # version 2: Chen et al. 2020, arXiv 2003.04297
# For clips, for every objective: Feichtenhofer et al. 2021, arXiv 2104.14558. Numbers: facebookresearch/SlowFast,
# configs/contrastive_ssl/{BYOL,MoCo,SimCLR}_SlowR50_8x8.yaml and color_jitter_video_ssl in datasets/transform.py; its
# blur comes before the crop, here after it.
_VIDEO = View(scale=(0.2, 0.766), brightness=0.6, contrast=0.6, saturation=0.6, hue=0.15)
VIDEO = ViewRecipe((_VIDEO, _VIDEO))
WEAK = View(scale=(0.2, 1.0), jitter=0.0, grayscale=0.0, blur=0.0)  # only crop and flip


def for_item(recipe: ViewRecipe, item: Item) -> ViewRecipe:
    """An objective's recipe; on clips as many full-size views, those with colour changes as in VIDEO, no local crops.

    Views without colour changes are kept (ReSSL's weak one). Local crops, if enabled by `n_local`, keep their scale and
    size.
    """
    if not item.axes:
        return recipe
    views = tuple(_VIDEO if view.jitter else view for view in recipe.views)
    local = recipe.local and replace(_VIDEO, scale=recipe.local.scale, size=recipe.local.size)
    return ViewRecipe(views, local)
