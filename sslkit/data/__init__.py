"""Images: their sources (`sources`), their pixels (`decode`), their augmented views (`views`), and videos (`video`)."""
