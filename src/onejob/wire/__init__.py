"""The wire between gates and managers: batches of commands as msgpack over kept HTTP/1.1 connections.

    POST /hello      the versions, the ledger, its settings and its time; sent first on every connection
    POST /execute    an array of commands      →  an array of replies, one for each
    POST /scan       a query                   →  a page
    POST /barrier    a tenant and a user       →  nothing, when their writes have ended
    POST /tokens     a credential and a count  →  tokens of its rate limit
    POST /subscribe                            →  a stream of records that were settled

Every request but the first names the version it is written in (`Onejob-Wire`) and the ledger it is meant for
(`Onejob-Ledger`), and carries a credential (`Authorization: Bearer ojg_…`) unless the certificate of the client is one. A
response is a sequence of frames, each of which begins with one byte: `.` is a sign of life, which is sent each second
while a request is executed, `R` a result and `F` a failure.

A command is decoded strictly and alone: one with a field or a name that the manager does not know is answered
`NotUnderstood`, is not executed, and goes to another manager; the others of its batch are executed. What has its default
is not sent, so a new field is seen by older managers only when it is used, and no default may ever change. The manager
answers in the version of the request. A program speaks its own version and the one before.
"""
