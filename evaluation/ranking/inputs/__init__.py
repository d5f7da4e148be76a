"""What a ranking reads: features, source heads, references and parts of images, of every model on equal images."""
