"""A method with all plug-ins is written whole by torch.save, as any module of a user's is, and computes the same."""

import io

import pytest
import torch
from contract import MEMBERS, PLUGINS, batch, build, enough, step


@pytest.mark.filterwarnings("ignore:.*no data set.*", "ignore:.*eta.*", "ignore:.*dead.*")
@pytest.mark.parametrize(("name", "family"), MEMBERS)
def test_a_saved_method_gives_the_same_terms(name: str, family: str) -> None:
    method = build(f"{name}+{PLUGINS[-1]}", family)
    file = io.BytesIO()
    torch.save(method, file)
    file.seek(0)
    images = batch(enough(method, 6))
    terms, again = (step(one, *images) for one in (method, torch.load(file, weights_only=False)))
    assert again.keys() == terms.keys()
    for term, value in terms.items():
        torch.testing.assert_close(again[term], value, rtol=0, atol=0)
