"""A primary and its synchronous standby: killed, promoted and rebuilt under load."""
