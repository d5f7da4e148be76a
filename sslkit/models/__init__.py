"""Networks with all that they need to take images: what `sslkit.load` returns, and how words name them."""
