"""What a data set is: how it was read and why, and a row for each image; a table that `data=` takes back."""
