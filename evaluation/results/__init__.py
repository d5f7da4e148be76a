"""Results of protocols: storage, intervals, paired tests, tables."""

OUT = "runs/evaluation"  # folder of the results of models that are no zoo entries
