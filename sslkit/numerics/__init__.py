"""Numbers: measures of features, quick accuracies, order without ties, schedules; maps and captions of pictures."""
