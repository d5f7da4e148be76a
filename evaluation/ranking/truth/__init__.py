"""The truth of a ranking: accuracies after fine-tuning, measured or published, and the agreement with them."""
