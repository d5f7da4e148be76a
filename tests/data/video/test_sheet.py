"""The cells of the picture of views of clips."""

import numpy as np
import torch

from sslkit.data.video.sheet import ClipSheet
from sslkit.data.views.augmentation import contact_sheet


def test_frames_and_small_views_that_are_left_out_are_said() -> None:
    clips, views = torch.zeros(1, 1, 3, 32, 8, 8), [torch.zeros(1, 3, 32, 8, 8)] * 2 + [torch.zeros(1, 3, 32, 4, 4)] * 3
    sheet = ClipSheet.of_views(clips, views, torch.ones(1), ["a.mp4"])
    assert len(sheet.columns) == 9 and sheet.columns[-1] == "frame 32\n8 px"
    assert sheet.notes[1:] == ["8 of 32 frames are shown, evenly spaced.", "3 smaller views are not shown."]
    assert sheet.rows == ["a.mp4\nview 1", "a.mp4\nview 2"]


def test_the_picture_of_clips_has_a_row_for_each_view_and_a_column_for_each_frame() -> None:
    clips = torch.zeros(2, 2, 3, 12, 8, 8, dtype=torch.uint8)
    clips[0, 1, 0, 0] = 255  # red: the first frame of the second clip
    views = [torch.full((2, 3, 12, 6, 6), 0.5) for _ in range(3)] + [torch.zeros(2, 3, 12, 2, 2)]
    views[1][0, :, 11] = 1.0
    sheet = ClipSheet.of_views(clips, views, torch.ones(2), ["a", "b"])
    pixels = np.asarray(contact_sheet(sheet.whole, sheet.views, rows=len(sheet.rows)))
    assert pixels.shape == (2 * 3 * 8, 9 * 8, 3)
    assert (pixels[8 + 4, 4] == (255, 0, 0)).all() and (pixels[4, 4] == 0).all()
    assert (pixels[8 + 4, 8 * 8 + 4] == 255).all() and (pixels[4, 8 * 8 + 4] == 128).all()
