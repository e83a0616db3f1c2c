"""The rules: commands, the facts they decide over, and their replies. Pure: no I/O, no clock, no randomness."""
