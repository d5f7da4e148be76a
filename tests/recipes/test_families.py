"""The table of what goes on from which family: it is what the code does, and wrapped networks give timm's outputs."""

import sys
from functools import partial
from pathlib import Path

import pytest
import timm
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "benchmarks"))

from continuing.families import FAMILIES, PAGE, RUNS, Trial, members, page

from sslkit.layers import masked_vit
from sslkit.training.build import build_method
from sslkit.training.settled import with_values

QUICK = [  # DINOv3 has rotary positions and registers; those of a plain ViT were replaced once
    *((name, "DINOv3") for name in members()),
    *((name, "ViT") for name in ("mae", "u_mae", "ijepa", "data2vec", "moco_v3")),
    *(("byol", family) for family in FAMILIES if family != "DINOv3"),
]
close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("families"))


def cell(name: str, family: str) -> str:
    """What the page says of a member and a family."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    (row,) = (row for row in rows if row[0].split()[0] == f"`{name}`")
    return row[rows[0].index(family)]


@pytest.mark.parametrize(("name", "family"), QUICK)
def test_the_page_says_whether_a_run_is_refused(name: str, family: str, trial: Trial) -> None:
    assert (cell(name, family) == RUNS) == (trial.fault(name, family) == "")


@pytest.mark.slow
def test_the_page_is_what_its_command_writes(trial: Trial) -> None:
    assert page({name: trial.row(name) for name in members()}) == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("tune", ["all", "lora(rank=4)"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrapped_network_gives_timms_outputs(family: str, tune: str, trial: Trial) -> None:
    config, data = trial.settle("simclr", family)
    body = build_method(with_values(config, {"tune": tune}), data).backbone.eval()
    side = FAMILIES[family].side
    sized = {"img_size": side} if body.is_vit else {}
    plain = timm.create_model(FAMILIES[family].name, num_classes=0, **FAMILIES[family].arguments, **sized).eval()
    plain.load_state_dict(body.export(), strict=True)
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        tokens = plain.forward_features(x)
        places, pooled = body.feature_map(x)
        close(body(x), plain(x))
        close(pooled, plain(x))
        if not body.is_vit:
            return close(places, tokens)
        patches = plain.patch_embed.num_patches
        close(places.flatten(2).transpose(1, 2), tokens[:, plain.num_prefix_tokens :])
        close(masked_vit.encode(body.net, x, torch.arange(patches).expand(1, 2, -1)), tokens)
        close(masked_vit.encode_masked(body.net, x), tokens)
        close(masked_vit.encode_masked(body.net, x, torch.zeros(2, patches).bool(), torch.ones(body.width)), tokens)
        assert not torch.allclose(
            masked_vit.encode_masked(body.net, x, torch.ones(2, patches).bool(), torch.ones(body.width)), tokens
        )
