"""From the content of a file to pixels, of any format and depth."""
