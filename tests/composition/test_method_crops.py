"""Every objective learns from crops of files as from whole images, whichever objectives there are."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contract import MEMBERS, SMALL, build, enough
from photographs import write_jpegs

from sslkit.data.sources.named import open_images
from sslkit.data.views.cropped import CroppedImages
from sslkit.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.*no data set.*", "ignore:.*eta.*", "ignore:.*dead.*")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    return write_jpegs(tmp_path_factory.mktemp("files"), count=6)


def crops_for(method, files: Path, count: int, *, whole: bool = False) -> tuple:
    rows = CroppedImages(open_images(files), method.recipe, method.image_size, whole=whole)
    batch = rows.__getitems__([number % len(rows) for number in range(count)])
    return batch["images"], batch["index"]


@pytest.mark.parametrize(("name", "family"), MEMBERS)
def test_every_objective_learns_from_crops(name: str, family: str, files: Path) -> None:
    method = build(name, family)
    crops, index = crops_for(method, files, enough(method, 6))
    labels = {"labels": index % SMALL["classes"]} if method.objective.needs_labels else {}
    views = method.make_views(crops)
    assert [view.shape[-1] for view in views] == [view.size or 16 for view in method.recipe.each()]
    terms = method(crops, index, **labels)
    terms["loss"].backward()
    assert all(term.isfinite() for term in terms.values())
    assert method.backbone.net is not None and any(p.grad is not None for p in method.backbone.parameters())


def test_a_regulariser_gets_the_whole_images(files: Path) -> None:
    method = build("simclr+dsa", dsa={"mode": "view", "prior": "hog", "eta": 2, "hidden": 8})
    crops, index = crops_for(method, files, 6, whole=True)
    assert method(crops, index)["loss"].isfinite()
    with pytest.raises(UserError, match="reads the whole images"):
        method(replace(crops, whole=None), index)


@pytest.mark.parametrize("options", [{}, {"neighbours": "batch"}, {"neighbours": "none"}])
def test_dsa_that_was_not_prepared_asks_for_whole_images(options: dict, files: Path) -> None:
    method = build("simclr+dsa", dsa={"prior": "hog", "eta": 2, "hidden": 8, **options})
    crops, index = crops_for(method, files, 6)
    with pytest.raises(UserError, match=r"call it before the loop, or give CroppedImages\(..., whole=True\)"):
        method(crops, index)
    whole, index = crops_for(method, files, 6, whole=True)
    assert method(whole, index)["loss"].isfinite()


def test_crops_of_another_size_or_channels_are_refused(files: Path) -> None:
    crops, index = crops_for(build("simclr", image_size=20), files, 6)
    with pytest.raises(UserError, match=r"crops of 3 channels and \[20, 20\] pixels; simclr takes 3 channels and"):
        build("simclr")(crops, index)
    with pytest.raises(UserError, match="takes 1 channels"):
        build("simclr", image_size=20, in_chans=1)(crops, index)


def test_the_views_are_the_same_for_the_same_batch(files: Path) -> None:
    method = build("byol")
    crops, _ = crops_for(method, files, 6)
    first, again = method.make_views(crops), method.make_views(crops)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    method.epoch = 1
    assert not torch.equal(first[0], method.make_views(crops)[0])
