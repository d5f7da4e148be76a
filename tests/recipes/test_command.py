"""Words of the command line on their way to Hydra's grammar."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from recipes.command import _quoted


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("metrics=[nleep(covariance=diag),logme]", ["nleep(covariance=diag)", "logme"]),
        ("metrics=[logme, ped(lam=0.3,steps=2)+logme]", ["logme", "ped(lam=0.3,steps=2)+logme"]),
        ('metrics=["nleep(covariance=diag)",logme]', ["nleep(covariance=diag)", "logme"]),
        ("metrics=['ped(lam=1,steps=2)+logme']", ["ped(lam=1,steps=2)+logme"]),
        ("metrics=nleep(covariance=diag)", "nleep(covariance=diag)"),
        ("data=a folder/b=c", "a folder/b=c"),
        ("data=[a/b,c]", ["a/b", "c"]),
        ("lr=[0.1,1e-3]", [0.1, 1e-3]),
        ("seed=3", 3),
        ("truth=null", None),
        ("x={a: b}", {"a": "b"}),
    ],
)
def test_a_word_means_what_a_person_reads(word: str, meant: object) -> None:
    assert OverridesParser.create().parse_override(_quoted(word)).value() == meant
