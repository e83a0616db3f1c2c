"""The JSON bodies of the HTTP contracts, as Structs: codec and schema at once."""
