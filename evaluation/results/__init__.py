"""Results of protocols: storage, intervals, paired tests, tables."""
