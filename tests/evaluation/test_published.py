import pytest

from evaluation import datasets, published
from sslkit.errors import UserError

FIVE = {
    ("Infomin", "dtd"): (73.74, 73.47),
    ("MoCov1", "cifar10"): (84.15, 94.15),
    ("PCLv1", "cifar10"): (86.42, 96.42),
    ("PCLv1", "voc07"): (91.91, 81.91),
    ("SimCLRv2", "dtd"): (94.71, 74.71),
}


@pytest.mark.parametrize(("name", "models"), [("ped", 12), ("itm", 10)])
def test_every_cell_of_the_table_is_there(name, models):
    truth = published.truth(name)
    assert len(truth) == 10
    assert all(len(column) == models for column in truth.values())
    assert len({tuple(column) for column in truth.values()}) == 1  # the same models in the same order
    assert all(60 < value < 100 for column in truth.values() for value in column.values())


@pytest.mark.parametrize("name", published.names())
def test_data_sets_are_ours(name):
    assert set(published.truth(name)) <= set(datasets.names())


def test_the_two_readings_of_ped_differ_in_five_cells():
    paper, code = published.truth("ped", "paper"), published.truth("ped", "code")
    odd = {
        (model, dataset): (paper[dataset][model], code[dataset][model])
        for dataset in paper
        for model in paper[dataset]
        if paper[dataset][model] != code[dataset][model]
    }
    assert odd == FIVE
    assert published.truth("ped") == code


def test_each_cell_has_its_source():
    code = {(cell.model, cell.dataset): cell.source for cell in published.cells("ped", "code")}
    assert {key for key, source in code.items() if "code" in source} == set(FIVE)
    assert all("Table 4" in source for key, source in code.items() if key not in FIVE)
    assert all("Table 4" in cell.source for cell in published.cells("ped", "paper"))
    assert all("Table 3" in cell.source for cell in published.cells("itm"))


def test_some_cells_as_printed():
    ped, itm = published.truth("ped", "paper"), published.truth("itm")
    assert (ped["aircraft"]["BYOL"], ped["dtd"]["Swav"], ped["flowers102"]["InsDis"]) == (82.1, 76.68, 93.63)
    assert (itm["caltech101"]["DenseNet-121"], itm["sun397"]["SimMIM-B16"]) == (97.24, 74.55)


def test_what_is_returned_may_be_changed():
    published.truth("itm")["pets"].clear()
    assert len(published.truth("itm")["pets"]) == 10


def test_unknown_benchmark_and_reading():
    with pytest.raises(UserError, match="no published benchmark 'lead'"):
        published.truth("lead")
    with pytest.raises(UserError, match="no reading 'code'"):
        published.truth("itm", "code")
