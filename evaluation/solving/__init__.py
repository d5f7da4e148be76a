"""From images and labels to one model that predicts, within a budget of time."""
