"""The rules: commands, the facts they decide over and their replies; pure, without I/O, clock or randomness."""
