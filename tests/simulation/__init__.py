"""Random walks: the whole front of onejob on one seeded scheduler, against a plain model of the rules."""
