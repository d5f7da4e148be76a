"""The inputs of a ranking: features, source heads, references and parts of images, of every model on equal images."""
