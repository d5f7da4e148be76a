"""Data sets with the boxes, and some with the masks, of objects."""
