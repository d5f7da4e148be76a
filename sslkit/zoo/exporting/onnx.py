"""An .onnx file: images (batch, C, S, S) -> features (batch, width), any batch size, checked against the network.

Of an entry with a classifier: probabilities (batch, K), outputs before their link, and features; numbers, and features.
Its metadata hold sslkit's description of the network. It is the only format for networks that timm does not make.
"""

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.errors import UserError, first_line
from sslkit.zoo.about import About
from sslkit.zoo.classifier import Classifier
from sslkit.zoo.exporting.base import FEATURES, Loaded, Source, Target, Whole, names_of, pretrained_cfg
from sslkit.zoo.loading import numpy_transform, picture_lines

KEY = "sslkit"
LARGEST = 2**31 - 2**20  # bytes of tensors: a protobuf message holds at most 2 GiB
TOLERANCE = 1e-5  # relative to the largest feature: float32 in another order of sums; a wrong graph is off by far more
EXTRA = 'pip install "sslkit[onnx]"'


class Onnx(Target):
    """Any network that torch can export; images must have the size of training."""

    suffix = ".onnx"

    def refusal(self, source: Source) -> str:
        size = sum(value.nbytes for value in source.state_dict().values())
        return f"its tensors take {size / 1e9:.1f} GB, and an .onnx file holds 2" if size > LARGEST else ""

    def prepare(self, source: Source) -> Source:
        return source

    def write(self, source: Source, path: Path, name: str) -> None:
        missing = [package for package in ("onnx", "onnxscript") if importlib.util.find_spec(package) is None]
        if missing:
            raise UserError(f"export to onnx needs the package {' and '.join(missing)}: {EXTRA}")
        import onnx

        proto = _export(source)
        onnx.helper.set_model_props(
            proto, {KEY: source.about.to_json(), "load": "\n".join(self.lines(source.about, name))}
        )
        onnx.checker.check_model(proto)
        path.write_bytes(proto.SerializeToString())
        if importlib.util.find_spec("onnxruntime") is not None:
            _compare(source, path)

    def lines(self, about: About, name: str) -> list[str]:
        pixels = pretrained_cfg(about)
        first = names_of(about.link)[0]
        use = f"{first} = net.run([{first!r}], {{'images': read('picture.jpg')}})[0]"
        return [
            "import onnxruntime",
            *picture_lines(numpy_transform(pixels), pixels, about.range, use),
            f"net = onnxruntime.InferenceSession({name!r})",
            f"# images: float32 {('batch', *about.input_size)}, (pixels in [0, 1] - {about.mean}) / {about.std}",
        ]

    def owns(self, path: Path) -> bool:
        return path.is_file() and path.suffix == self.suffix

    def load(self, path: Path) -> Loaded:
        _check_whole(path)
        network = OnnxNetwork(path)
        session = network.session
        text = session.get_modelmeta().custom_metadata_map.get(KEY)
        if text is None:
            raise UserError(f"{path} was not exported by sslkit: it has no description of how its images are prepared")
        about = About.from_json(text, path)
        names = [[value.name for value in values] for values in (session.get_inputs(), session.get_outputs())]
        if names != [["images"], names_of(about.link)]:
            raise UserError(f"{path} was not exported by sslkit: it does not turn images into features")
        if about.classes is None:
            return Loaded(network.eval(), about)
        head = nn.Sequential(OnnxHead(path, *names_of(about.link)[-2:])).eval()
        return Loaded(network.eval(), about, Classifier(head, about.classes, about.link, {}, about.half_widths))


class OnnxNetwork(nn.Module):
    """A session of onnxruntime, called with tensors: (B, C, S, S) -> (B, width) on the CPU.

    A session cannot be copied: a copy of the network opens one of its own, from the file.
    """

    def __init__(self, path: Path, given: str = "images", made: str = FEATURES) -> None:
        super().__init__()
        self.path, self.given, self.made = path, given, made
        self.session = self.open()

    def open(self) -> Any:
        """A session of the file."""
        return _session(str(self.path), self.path)

    def __reduce__(self) -> tuple[type["OnnxNetwork"], tuple[Any, ...], dict[str, bool]]:
        return type(self), (self.path, self.given, self.made), {"training": self.training}

    def forward(self, x: Tensor) -> Tensor:
        (y,) = self.session.run([self.made], {self.given: x.detach().cpu().float().contiguous().numpy()})
        return torch.from_numpy(y)


class OnnxHead(OnnxNetwork):
    """The part of a file behind its features: (B, width) -> outputs (B, K)."""

    def __init__(self, path: Path, made: str, given: str) -> None:
        super().__init__(path, given, made)

    def __reduce__(self) -> tuple[type["OnnxNetwork"], tuple[Any, ...], dict[str, bool]]:
        return type(self), (self.path, self.made, self.given), {"training": self.training}

    def open(self) -> Any:
        import onnx

        whole = onnx.load(self.path)
        # onnx 1.17 looks for it among the inner values alone, where an output of the graph does not stand
        whole.graph.value_info.extend(value for value in whole.graph.output if value.name == self.given)
        head = onnx.utils.Extractor(whole).extract_model([self.given], [self.made])
        return _session(head.SerializeToString(), self.path)


def _export(source: Source) -> Any:
    """The model as a protobuf message."""
    shape = (2, *source.about.input_size)  # 2: one image would fix the batch size
    free = ({0: torch.export.Dim("batch")},)
    names = {"input_names": ["images"], "output_names": names_of(source.about.link)}
    try:
        with _quiet():
            program = torch.onnx.export(
                Whole(source).eval(), (torch.zeros(shape),), dynamo=True, dynamic_shapes=free, verbose=False, **names
            )
    except Exception as error:  # the exporter, its decompositions and the network raise many classes
        raise UserError(f"torch cannot export {source.about.name} to onnx: {first_line(error)}") from error
    return program.model_proto


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings and log."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


@torch.no_grad()
def _compare(source: Source, path: Path) -> None:
    """Raises UserError unless the file returns what the network does, for one image and for three."""
    session, whole = _session(str(path), path), Whole(source).eval()
    generator = torch.Generator().manual_seed(0)
    for batch in (1, 3):
        images = torch.randn(batch, *source.about.input_size, generator=generator)
        outputs = whole(images)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for output, expected in zip(session.run(None, {"images": images.numpy()}), outputs, strict=True):
            apart = (torch.from_numpy(output) - expected).abs().max() / expected.abs().max().clamp(min=1e-12)
            if apart <= TOLERANCE:
                continue
            raise UserError(
                f"{source.about.name} as onnx gives other features than the network (they differ by {apart:.1e} of the "
                "largest): nothing is written"
            )


def _check_whole(path: Path) -> None:
    """Raises UserError for a file with tensors in other files: it could name any file of this machine."""
    missing = [package for package in ("onnx", "onnxruntime") if importlib.util.find_spec(package) is None]
    if missing:
        raise UserError(f"reading {path} needs the package {' and '.join(missing)}: {EXTRA}")
    import onnx

    try:
        proto = onnx.load(path, load_external_data=False)
    except Exception as error:  # of protobuf's own classes
        raise UserError(f"{path} is no whole onnx file: {first_line(error)}; export or copy it again") from error
    if _lies_elsewhere(proto):
        raise UserError(f"{path} keeps tensors in other files, which sslkit neither writes nor reads: export it again")


def _lies_elsewhere(message: Any) -> bool:
    """True if a protobuf message has, at any depth, a tensor in an external file."""
    import onnx
    from google.protobuf.message import Message

    if isinstance(message, onnx.TensorProto):
        return bool(message.external_data) or message.data_location == onnx.TensorProto.EXTERNAL
    for field, value in message.ListFields():
        parts = [value] if isinstance(value, Message) else value
        if field.message_type is not None and any(map(_lies_elsewhere, parts)):
            return True
    return False


def _session(model: str | bytes, path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of onnxruntime's own classes
        raise UserError(f"{path} is no whole onnx file: {first_line(error)}; export or copy it again") from error
