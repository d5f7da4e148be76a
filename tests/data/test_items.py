"""The kind of a network's inputs: images and clips by the same rules."""

import torch

from sslkit import backbones
from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Identity, ImageOptions
from sslkit.data.items import IMAGE, Item, item_of


def test_shapes_follow_from_the_axes() -> None:
    assert item_of(None) is IMAGE and IMAGE.shape(3, 16) == (3, 16, 16)
    clip = item_of(4, clips=2)
    assert clip.shape(3, 16) == (3, 4, 16, 16) and clip.about == "clips of 4 frames" and clip.rows == "videos"
    assert clip.batch_shape(5, 3, 16) == (5, 2, 3, 4, 16, 16) and IMAGE.batch_shape(5, 3, 16) == (5, 3, 16, 16)
    assert clip.frames == 4 and IMAGE.frames is None
    assert Item((2, 5), "volume").shape(1, 8) == (1, 2, 5, 8, 8)


def test_a_row_of_clips_counts_by_its_pictures() -> None:
    assert (IMAGE.pictures(4), IMAGE.rows_at_once(128)) == (1, 128)
    clip = item_of(8, clips=2)
    assert (clip.pictures(4), clip.pictures(100)) == (8, 16)
    assert (clip.rows_at_once(128), clip.rows_at_once(1)) == (32, 1)  # 4 pictures for each image, and never none


def test_a_data_set_and_a_network_say_what_they_have() -> None:
    images = ArrayImages(torch.zeros(2, 3, 8, 8, dtype=torch.uint8).numpy(), Identity("few"), ImageOptions())
    assert images.item == IMAGE == backbones.build("narrow_resnet", image_size=8, in_chans=3).item
    network = backbones.build("narrow_slow", image_size=16, in_chans=3, frames=4)
    assert network.item == item_of(4) and network.input_shape() == network.item.shape(3, 16)
