"""Action recognition: data sets of videos, clips of them, recipes and tests on whole videos."""
