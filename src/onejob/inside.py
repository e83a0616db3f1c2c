"""The old name of `onejob.transaction`."""

raise ImportError("onejob.inside is now onejob.transaction, and Inside is InTransaction; change the import")
