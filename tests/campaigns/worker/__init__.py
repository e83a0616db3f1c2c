"""The worker, and a campaign that kills workers and compares the ledger with the evidence they left."""
