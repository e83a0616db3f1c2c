"""Workers that are killed at any moment: what the ledger says afterwards must agree with what they left behind."""
