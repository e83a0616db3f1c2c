"""Failovers of a primary and its synchronous standby under load."""
