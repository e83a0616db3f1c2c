"""JSON bodies of the HTTP API as Structs, which are the codec and the schema at once."""
