"""A plane behind gray or RGB is opacity where its file declares it and its values show it, else a channel."""

import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from image_files import deep_png
from PIL import Image
from torch.utils.data import Dataset

from sslkit.data.decode.deep import tells_opacity
from sslkit.data.decode.opacity import Opacity
from sslkit.data.images import Images
from sslkit.data.sources.named import open_images

N, SIDE = 6, 12
USUAL = "ignore:.* are scaled to 8 bits by range"
pytestmark = pytest.mark.filterwarnings(USUAL)
CHANNEL, OPACITY = "it is a channel like the others", "opacity, which is laid over white"


def bands(dtype: type, most: int) -> np.ndarray:
    """Scenes (N, H, W, 4) of red, green, blue and near infrared, up to `most`; darker in infrared."""
    draw = np.random.default_rng(0)
    scenes = draw.integers(1, most + 1, (N, SIDE, SIDE, 4)).astype(dtype)
    scenes[..., 3] = scenes[..., 3] // 3 + 1
    return scenes


def write_png(path: Path, pixels: np.ndarray) -> None:
    if pixels.dtype == np.uint8:
        Image.fromarray(pixels).save(path.with_suffix(".png"))
    else:
        path.with_suffix(".png").write_bytes(deep_png(*pixels[0, 0].tolist()))


def write_tiff(path: Path, pixels: np.ndarray, mark: str = "unassalpha") -> None:
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(path.with_suffix(".tif"), pixels, photometric="rgb", extrasamples=[mark])


def write_associated(path: Path, pixels: np.ndarray) -> None:
    write_tiff(path, pixels, "assocalpha")


def write_jpeg2000(path: Path, pixels: np.ndarray) -> None:
    Image.fromarray(pixels).save(path.with_suffix(".jp2"), irreversible=False)


WRITERS = [
    (write_png, np.uint8),
    (write_png, np.uint16),
    (write_tiff, np.uint8),
    (write_tiff, np.uint16),
    (write_tiff, np.float32),
    (write_associated, np.uint8),
    (write_associated, np.uint16),
    (write_jpeg2000, np.uint8),
]


def folder(path: Path, write: Callable, scenes: np.ndarray) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for number, scene in enumerate(scenes):
        write(path / f"{number}", scene)
    return path


def said(record: pytest.WarningsRecorder) -> list[str]:
    return [str(one.message) for one in record if "opacity" in str(one.message)]


def pixels(images: Images) -> np.ndarray:
    batch = images.__getitems__(list(range(len(images))))
    assert batch["bad"] == []
    return batch["images"].numpy()


@pytest.mark.parametrize(("write", "dtype"), WRITERS)
def test_a_fourth_band_is_no_opacity(tmp_path, write: Callable, dtype: type, recwarn) -> None:
    """Near infrared of 8 bits whitened the picture, that of 12 bits in 16 let it vanish, and no line said it."""
    most = 200 if dtype == np.uint8 else 4000
    scenes = bands(dtype, most)
    if write is write_png and dtype == np.uint16:
        scenes[:] = scenes[:, :1, :1]
    root = folder(tmp_path / "scenes", write, scenes)
    high = 255 if dtype == np.uint8 else 4000 if dtype == np.float32 else 4095
    given = {} if dtype != np.float32 else {"range": [0, 4000]}
    images = open_images(root, image_size=SIDE, cache=None, **given)
    expected = scenes.transpose(0, 3, 1, 2) * (255 / high)
    size = slice(None) if dtype != np.uint16 or write is not write_png else slice(1)
    assert images.channels == 3 and len(said(recwarn)) == 1 and CHANNEL in said(recwarn)[0]
    assert np.abs(pixels(images)[..., size, size] - expected[:, :3, size, size]).max() <= 1
    four = open_images(root, image_size=SIDE, channels=4, cache=None, **given)
    assert np.abs(pixels(four)[..., size, size] - expected[..., size, size]).max() <= 1
    if dtype != np.float32:  # of which 1 is full
        over = open_images(root, image_size=SIDE, opacity=True, cache=None, **given)
        assert pixels(over).mean() > pixels(images).mean() + 20, "the user says that it is opacity"


def test_near_infrared_beside_pixels_without_a_value_is_a_channel(tmp_path, recwarn) -> None:
    """Half of a scene is 0 in all bands, as at the border of a satellite's path."""
    scenes = bands(np.uint8, 200)
    scenes[:, :, : SIDE * 2 // 3] = 0
    images = open_images(folder(tmp_path / "a", write_png, scenes), image_size=SIDE, cache=None)
    assert np.abs(pixels(images) - scenes.transpose(0, 3, 1, 2)[:, :3].astype(int)).max() <= 1
    assert CHANNEL in said(recwarn)[0]


@pytest.mark.parametrize("edge", [0, 1, 2])
def test_cut_out_objects_are_laid_over_white(tmp_path, edge: int, recwarn) -> None:
    """Full inside, 0 outside, and soft at the edge: one line, whatever the number of files."""
    scenes = bands(np.uint8, 200)
    scenes[..., 3] = 0
    scenes[:, 2:10, 2:10, 3] = 128
    scenes[:, 2 + edge % 2 : 10 - edge % 2, 2 + edge % 2 : 10 - edge % 2, 3] = 255 - edge
    images = open_images(folder(tmp_path / "a", write_png, scenes), image_size=SIDE, cache=None)
    found = pixels(images)
    assert (found[:, :, 0] == 255).all() and np.abs(found[:, :, 5, 5] - scenes[:, 5, 5, :3].astype(int)).max() <= 2
    assert [OPACITY in one for one in said(recwarn)] == [True]


def test_one_decision_holds_for_all_files(tmp_path, recwarn) -> None:
    """Five scenes, and one whose infrared happens to be saturated: it is read as the others are."""
    scenes = bands(np.uint8, 200)
    scenes[2, ..., 3] = 255
    images = open_images(folder(tmp_path / "a", write_png, scenes), image_size=SIDE, channels=4, cache=None)
    assert np.array_equal(pixels(images), scenes.transpose(0, 3, 1, 2)) and len(said(recwarn)) == 1
    again = pickle.loads(pickle.dumps(images))
    assert again.scale.opacity is False and again.digest == images.digest


def test_a_file_that_lacks_the_fourth_channel_is_left_out(tmp_path) -> None:
    root = folder(tmp_path / "a", write_png, bands(np.uint8, 200))
    Image.new("RGB", (SIDE, SIDE), (1, 2, 3)).save(root / "9.png")
    with pytest.warns(UserWarning, match=CHANNEL):
        batch = open_images(root, image_size=SIDE, channels=4, cache=None).__getitems__([5, 6])
    assert [Path(path).name for path in batch["bad"]] == ["9.png"]
    three = open_images(root, image_size=SIDE, opacity=False, cache=None)
    assert pixels(three)[6, :, 0, 0].tolist() == [1, 2, 3]


def test_test_images_are_read_as_those_of_training(tmp_path) -> None:
    """Their own fourth band is full where there is snow."""
    folder(tmp_path / "train", write_png, bands(np.uint8, 200))
    white = bands(np.uint8, 200)
    white[..., 3] = 255
    white[:, :3, :, 3] = 9
    folder(tmp_path / "test", write_png, white)
    with pytest.warns(UserWarning, match=CHANNEL):
        images = open_images(tmp_path, split="test", image_size=SIDE, cache=None)
    assert np.abs(pixels(images) - white.transpose(0, 3, 1, 2)[:, :3].astype(int)).max() <= 1


def test_shards_and_tables_decide_as_folders(tmp_path) -> None:
    scenes = bands(np.uint8, 200)
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number, scene in enumerate(scenes):
            content = io.BytesIO()
            Image.fromarray(scene).save(content, "PNG")
            about = tarfile.TarInfo(f"{number}.png")
            about.size = content.tell()
            content.seek(0)
            archive.addfile(about, content)
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"image": [Image.fromarray(scene) for scene in scenes]})
    rows.cast_column("image", datasets.Image()).save_to_disk(str(tmp_path / "rows"))
    for source in (f"shards:{tmp_path / 'a.tar'}", f"hf:{tmp_path / 'rows'}"):
        with pytest.warns(UserWarning, match=CHANNEL):
            images = open_images(source, image_size=SIDE, cache=tmp_path / "cache")
        assert np.abs(pixels(images) - scenes.transpose(0, 3, 1, 2)[:, :3].astype(int)).max() <= 1


@pytest.mark.parametrize("kind", ["array", "npz", "dataset"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_four_channels_of_an_array_are_channels(tmp_path, kind: str, dtype: type, recwarn) -> None:
    """Nothing declares opacity; three channels are the first three, and `opacity` says that it is one."""
    scenes = bands(dtype, 200 if dtype == np.uint8 else 4000)
    scenes[..., 3] = np.iinfo(dtype).max
    np.savez(tmp_path / "a.npz", x=scenes)

    class Own(Dataset):
        def __len__(self) -> int:
            return N

        def __getitem__(self, row: int) -> np.ndarray:
            return scenes[row]

    def source() -> object:
        return {"array": scenes, "npz": tmp_path / "a.npz", "dataset": Own()}[kind]

    given = {} if dtype == np.uint8 else {"range": [0, 65535]}
    scale = 1 if dtype == np.uint8 else 255 / 65535
    four = open_images(source(), image_size=SIDE, **given)
    assert four.channels == 4 and np.abs(pixels(four) - scenes.transpose(0, 3, 1, 2) * scale).max() <= 1
    assert len(said(recwarn)) == 1 and "nothing tells whether the last of its 4 channels is opacity" in said(recwarn)[0]
    three = open_images(source(), image_size=SIDE, channels=3, **given)
    assert np.array_equal(pixels(three), pixels(four)[:, :3])
    scenes[..., 3] = 0
    scenes[:, :6, :, 3] = np.iinfo(dtype).max
    np.savez(tmp_path / "a.npz", x=scenes)
    shown = open_images(source(), image_size=SIDE, opacity=True, **given)
    assert shown.channels == 3 and (pixels(shown)[:, :, 6:] == 255).all()
    assert np.array_equal(pixels(shown)[:, :, :6], pixels(four)[:, :3, :6])


def test_a_colour_that_is_transparent_is_no_plane(tmp_path, recwarn) -> None:
    Image.fromarray(np.full((8, 8), 7, np.uint8)).save(tmp_path / "a.png", transparency=7)
    assert (pixels(open_images(tmp_path, image_size=8, cache=None)) == 255).all() and not said(recwarn)


def test_a_jpeg2000_declares_opacity_in_its_header(tmp_path) -> None:
    plain, declared = io.BytesIO(), io.BytesIO()
    Image.fromarray(bands(np.uint8, 200)[0]).save(plain, "JPEG2000")
    content = plain.getvalue()
    channels = [(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 1, 0)]
    box = (22 + 12).to_bytes(4, "big") + b"cdef" + (4).to_bytes(2, "big")
    box += b"".join(number.to_bytes(2, "big") for one in channels for number in one)
    place = content.index(b"jp2c") - 4
    declared.write(content[:place] + box + content[place:])
    assert [tells_opacity(io.BytesIO(one)) for one in (content, declared.getvalue(), content[:9])] == [
        b"cdef" in content,
        True,
        False,
    ]


def test_the_share_is_of_what_is_visible() -> None:
    found = Opacity()
    found.add(np.array([[0, 0, 0, 9, 9, 255]], np.uint8))
    assert not found.is_shown and "of whose values above 0 33% are full" in found.describe(3)
    found.add(np.array([[254, 253]], np.uint8))
    assert found.is_shown
    empty = Opacity()
    empty.add(np.zeros((2, 2), np.uint16))
    assert empty.is_shown, "a picture under an empty opacity is shown"


def test_gray_images_beside_four_planes_keep_their_place(tmp_path: Path) -> None:
    """Files whose fourth plane is no opacity decide for the set; gray files of 16 bits are read as three channels."""
    rng = np.random.default_rng(0)
    for row in range(8):
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(tmp_path / f"c{row}.png")
        Image.fromarray(rng.integers(0, 255, (16, 16, 4), dtype=np.uint8), "RGBA").save(tmp_path / f"f{row}.png")
        Image.fromarray(rng.integers(0, 4000, (16, 16)).astype(np.uint16)).save(tmp_path / f"g{row}.png")
    with pytest.warns(UserWarning):
        images = open_images(str(tmp_path), image_size=16)
    assert images.scale.opacity is False and images.channels == 3
    rows = [row for row in range(len(images)) if images.image_name(row).startswith("g")]
    batch = images.__getitems__(rows)
    assert batch["index"].tolist() == rows and (batch["images"][:, 0] == batch["images"][:, 1]).all()
