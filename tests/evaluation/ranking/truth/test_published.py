import pytest

from evaluation import datasets
from evaluation.ranking.truth import published
from sslkit.errors import UserError

FIVE = {
    ("Infomin", "dtd"): (73.74, 73.47),
    ("MoCov1", "cifar10"): (84.15, 94.15),
    ("PCLv1", "cifar10"): (86.42, 96.42),
    ("PCLv1", "voc07"): (91.91, 81.91),
    ("SimCLRv2", "dtd"): (94.71, 74.71),
}
# The tables as printed: data sets across, models down.
PED_TABLE_4 = """
model,Aircraft,Caltech101,Cars,CIFAR10,CIFAR100,Flowers,VOC2007,Pets,Food101,DTD
BYOL,82.1,91.9,89.83,96.98,83.86,96.8,85.13,91.48,85.44,76.37
Deepclusterv2,82.43,91.16,90.16,97.17,84.84,97.05,85.38,90.89,87.24,77.31
Infomin,83.78,80.86,86.9,96.72,70.89,95.81,81.41,90.92,78.82,73.74
InsDis,79.7,77.21,80.21,93.08,69.08,93.63,76.33,84.58,76.47,66.4
MoCov1,81.85,79.68,82.19,84.15,71.23,94.32,77.94,85.26,77.21,67.36
MoCov2,83.7,82.76,85.55,96.48,71.27,95.12,78.32,89.06,77.15,72.56
PCLv1,82.16,88.6,87.15,86.42,79.44,95.62,91.91,88.93,77.7,73.28
PCLv2,83.0,87.52,85.56,96.55,79.84,95.87,81.85,88.72,80.29,69.3
Sela-v2,85.42,90.53,89.85,96.85,84.36,96.22,85.52,89.61,86.37,76.03
SimCLRv1,80.54,90.94,89.98,97.09,84.49,95.33,83.29,88.53,82.2,73.97
SimCLRv2,81.5,88.58,88.82,96.22,78.91,95.39,83.08,89.18,82.23,94.71
Swav,83.04,89.49,89.81,96.81,83.78,97.11,85.06,90.59,87.22,76.68
"""
ITM_TABLE_3 = """
model,Caltech101,Cars,CIFAR100,CIFAR10,DTD,Aircraft,Flowers,Food101,Pets,SUN397
DenseNet-121,97.24,88.38,85.67,97.38,69.47,83.86,90.40,84.99,91.77,72.49
EfficientNet-B0,97.87,87.25,87.01,97.88,68.88,81.61,89.71,85.82,90.68,73.87
MobileNetv2,96.03,85.65,82.15,96.48,67.34,76.36,90.03,83.70,89.02,71.16
ResNet-18,95.74,83.58,82.69,96.57,65.59,77.56,88.52,79.92,88.50,68.71
DINO-B16,98.16,88.42,90.53,98.70,74.31,78.40,93.19,87.88,92.97,77.02
DINO-S8,97.47,89.33,90.24,98.65,71.97,80.02,90.84,90.84,93.10,77.53
MoCov3-B16,97.70,88.53,90.74,98.68,72.07,75.70,93.61,87.15,89.75,75.92
MAE-B16,97.52,88.16,87.55,98.42,69.04,72.16,85.80,87.30,89.81,75.29
MAE-L16,97.98,91.21,91.28,98.55,74.26,85.30,90.73,90.82,94.69,79.18
SimMIM-B16,96.20,86.02,88.80,98.63,66.17,68.32,83.87,87.88,87.16,74.55
"""
OURS = {"Flowers": "flowers102", "VOC2007": "voc07"}  # the other names differ by capitals only


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


@pytest.mark.parametrize(("name", "table"), [("ped", PED_TABLE_4), ("itm", ITM_TABLE_3)])
def test_all_cells_as_printed(name, table):
    header, *rows = (line.split(",") for line in table.split())
    sets = [OURS.get(title, title.lower()) for title in header[1:]]
    printed = {dataset: {row[0]: float(row[k]) for row in rows} for k, dataset in enumerate(sets, 1)}
    assert published.truth(name, "paper") == printed


def test_what_is_returned_may_be_changed():
    published.truth("itm")["pets"].clear()
    assert len(published.truth("itm")["pets"]) == 10


def test_unknown_benchmark_and_reading():
    with pytest.raises(UserError, match="no published benchmark 'lead'"):
        published.truth("lead")
    with pytest.raises(UserError, match="no reading 'code'"):
        published.truth("itm", "code")
