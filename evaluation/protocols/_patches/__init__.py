"""Features of patches and classes of pixels, for the protocols linear_seg and knn_seg."""
