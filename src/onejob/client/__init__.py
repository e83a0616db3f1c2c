"""Callers over HTTP that cannot get it wrong: one key and one body, fixed before the first attempt.

`flow` (when to send again, without I/O), `judged` (what an answer means), `calls` (what is sent), `verbs` (the acts,
written once), `client` (their sync and async drivers), `outbox` (intent on disk), `transport` (for any other API).
"""
