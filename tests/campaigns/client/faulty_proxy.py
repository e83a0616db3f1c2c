"""Faults that are drawn by a seed, for the proxy of `onejob prove`."""

from random import Random

from onejob.cli.commands.prove.faulty_proxy import DROP, ECHO, LOSE, PASS, TWICE, ChooseFault, NetworkFault, cut, delay


def seeded_faults(seed: int, *, faults_max: int, answer_bytes: int, delay_seconds: float) -> ChooseFault:
    """A fault for each attempt of a key, the same for the same seed; after `faults_max` attempts it passes."""

    def choose(key: str, attempt: int) -> NetworkFault:
        chance = Random(f"{seed}/{key}/{attempt}")
        if attempt >= faults_max or chance.random() < 0.4:
            return PASS
        kinds = [
            DROP,
            LOSE,
            TWICE,
            ECHO,
            cut(chance.randrange(answer_bytes)),
            cut(chance.randrange(answer_bytes)),
        ]
        kinds += [delay(delay_seconds)] if chance.random() < 0.1 else []
        return chance.choice(kinds)

    return choose
