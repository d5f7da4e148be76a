"""Where images come from: folders, lists, arrays, shards, tables, data sets."""
