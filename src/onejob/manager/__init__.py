"""The manager: owns a ledger (an engine), maintains it, and serves the command wire to gates."""
