"""The HTTP/1.1 server: connections with limits and deadlines, exchanges, corked writes."""
