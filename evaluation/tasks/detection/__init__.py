"""Detection of objects: data sets with boxes and masks, detectors on any backbone, training and average precision."""
