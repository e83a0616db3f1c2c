"""Several server processes on one port: the supervisor, its workers, and what they share."""
