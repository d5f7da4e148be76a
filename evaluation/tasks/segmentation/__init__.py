"""Classes of pixels by frozen features of patches: data sets with label maps, their mean IoU, and two protocols."""
