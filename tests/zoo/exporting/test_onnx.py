"""The .onnx file in plain onnxruntime: any batch, the same features, the normalisation in its metadata."""

import copy
import importlib.util
import json
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import sslkit
from sslkit import zoo
from sslkit.errors import UserError

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


class Square(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.flatten(1) ** 2)


def function() -> nn.Module:
    return Square()


@pytest.mark.parametrize(
    ("name", "size", "in_chans"),
    [
        pytest.param("resnet18", 16, 1, marks=pytest.mark.slow),
        pytest.param("resnet18", 72, 3, marks=pytest.mark.nightly),
        pytest.param("vit_tiny_patch16_224", 32, 3, marks=pytest.mark.nightly),
        ("narrow_resnet", 28, 1),
        pytest.param("narrow_vit", 28, 1, marks=pytest.mark.slow),
    ],
)
def test_plain_onnxruntime_gives_the_same_features(name: str, size: int, in_chans: int, entry_of) -> None:
    entry = entry_of(name, size, in_chans)
    path = zoo.export(entry, to="onnx")
    session = onnxruntime.InferenceSession(path)
    (images,), (features,) = session.get_inputs(), session.get_outputs()
    assert images.shape[1:] == [in_chans, size, size] and isinstance(images.shape[0], str)
    assert features.shape[1] == entry.card["backbone"]["width"]
    net = entry.backbone()
    for batch in (1, 2, 7):
        x = torch.randn(batch, in_chans, size, size)
        expected = net(x).detach().numpy()
        (given,) = session.run(None, {"images": x.numpy()})
        assert given.shape == expected.shape and np.abs(given - expected).max() < 1e-5 * np.abs(expected).max()
    about = json.loads(session.get_modelmeta().custom_metadata_map["sslkit"])
    assert (about["mean"], about["image_size"]) == (entry.card["normalize"]["mean"], size)


def test_a_network_that_timm_does_not_make(entry_of, monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "own_network", sys.modules[__name__])
    entry = entry_of("own_network:function", 8, 1)
    x = torch.randn(3, 1, 8, 8)
    trust = "own_network:function"
    expected = entry.backbone(trust=trust)(x)
    written = sslkit.load(zoo.export(entry, to="onnx", trust=trust))
    torch.testing.assert_close(written.net(x), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sslkit.load(entry.folder, trust=trust).net(x), expected)
    for to in ("timm", "hf", "torchvision"):
        with pytest.raises(
            UserError, match=r"own_network:function, not by timm; possible for this network: onnx, torch_export$"
        ):
            zoo.export(entry, to=to, trust=trust)


def test_a_loaded_file_can_be_copied_and_pickled(entry_of) -> None:
    net = sslkit.load(zoo.export(entry_of("narrow_resnet", 28, 1), to="onnx"))
    x = torch.rand(2, 1, 28, 28)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(x), net(x)) and not other.net.training


@pytest.mark.slow
def test_another_result_is_not_written(entry_of, monkeypatch) -> None:
    from sslkit.zoo.exporting import onnx

    exported = onnx._export

    def wrong(source):
        with torch.no_grad():
            source.net.conv1.weight.mul_(1.001)
        proto = exported(source)
        with torch.no_grad():
            source.net.conv1.weight.div_(1.001)
        return proto

    entry = entry_of("narrow_resnet", 28, 1)
    monkeypatch.setattr(onnx, "_export", wrong)
    with pytest.raises(UserError, match="gives other features than the network"):
        zoo.export(entry, to="onnx")
    assert list((entry.folder / "exports").iterdir()) == []


def test_missing_packages_are_one_line(entry_of, exported, monkeypatch) -> None:
    entry, path = entry_of("narrow_resnet", 28, 1), exported("onnx")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'onnx and onnxscript: pip install "sslkit\[onnx\]"$'):
        zoo.export(entry, to="onnx")
    with pytest.raises(UserError, match=r'onnxruntime: pip install "sslkit\[onnx\]"$'):
        sslkit.load(path)


@pytest.mark.parametrize("place", ["weight", "constant", "branch"])
def test_tensors_in_other_files_are_refused(place: str, exported, tmp_path, no_sockets) -> None:
    import onnx

    proto = onnx.load(exported("onnx"))
    secret = onnx.TensorProto(name="secret", dims=[4], data_type=onnx.TensorProto.UINT8)
    secret.data_location = onnx.TensorProto.EXTERNAL
    secret.external_data.add(key="location", value="../../../../../../etc/passwd")
    if place == "weight":
        proto.graph.initializer.append(secret)
    else:
        node = proto.graph.node.add(op_type="Constant" if place == "constant" else "If", output=["secret"])
        attribute = node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
        (attribute.t if place == "constant" else attribute.g.initializer.add()).CopyFrom(secret)
    path = tmp_path / "x.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(UserError, match=r"x\.onnx keeps tensors in other files"):
        sslkit.load(path)


def test_a_graph_of_other_names_is_refused(exported, tmp_path) -> None:
    import onnx

    proto = onnx.load(exported("onnx"))
    for node in proto.graph.node:
        for place, name in enumerate(node.output):
            node.output[place] = "other" if name == "features" else name
    proto.graph.output[0].name = "other"
    (tmp_path / "x.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(UserError, match="does not turn images into features"):
        sslkit.load(tmp_path / "x.onnx")
    (tmp_path / "x.onnx").write_bytes(b"junk")
    with pytest.raises(UserError, match="is no whole onnx file"):
        sslkit.load(tmp_path / "x.onnx")
