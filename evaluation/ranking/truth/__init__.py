"""What a ranking is compared with: accuracies after fine-tuning, measured or published, and the agreement with them."""
