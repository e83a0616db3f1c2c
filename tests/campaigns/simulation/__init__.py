"""A deterministic simulator: several processes with the real gate and batcher on a simulated store, in virtual time.

How it works. A seed draws a plan (`plan`): clients with lists of operations, the size of everything, and the faults that are
on. `simulator` runs the plan on a seeded event loop (`loop`), which decides the order of all callbacks and advances virtual
time. Clients (`client`, `quota_client`, `sequence_client`, `worker_client`) send commands to processes (`process`), which
may crash, pause or restart; the store (`store`) loses requests and replies, is slow, or is unavailable, and its clock may
jump. Then the faults stop, and every call must be answered and everything must expire.

What is checked. Each commit is compared with a plain model of the rules (`model`, with `quota_model`, `usage_model` and
`work_model`), and with invariants that need no model (`commit_checks`, `invariants`); each reply is compared with what the
client sent and when (`reply_checks`).

How the checks are checked. `mutants` are deliberate bugs; a test shows that each of them violates some invariant within a
few hundred seeds. `shrink` reduces a failing plan. `campaign` runs many seeds on several cores:
`python -m tests.campaigns.simulation`.

The same seed gives the same simulation on every machine. Strings that seed a generator, values of `Verb` and the order of
draws in `plan` must not change: each change gives every seed another plan.
"""
