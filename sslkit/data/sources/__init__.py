"""Sources of images: folders, lists, arrays, shards, tables, data sets."""
