"""HTTP clients that retry safely: the key and the body are fixed before the first attempt."""
