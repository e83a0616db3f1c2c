"""A payment view that is killed pays once; with the key settled after the view it pays twice, which is the control."""

from pathlib import Path

import pytest

from tests.campaigns.django.payments import POINTS, find_wrong, run_shop
from tests.support.postgres_server import Server

KILLS = 2


def test_a_payment_view_that_is_killed_anywhere_pays_once(tmp_path: Path, postgres: Server) -> None:
    with run_shop(tmp_path, postgres.database()) as shop:
        wrong = [find_wrong(point, shop.pay_while_dying(point, n)) for point in POINTS for n in range(KILLS)]
    assert not any(wrong), wrong


@pytest.mark.parametrize("point", ["committed"])
def test_a_key_that_is_settled_after_the_view_pays_twice(tmp_path: Path, postgres: Server, point: str) -> None:
    with run_shop(tmp_path, postgres.database(), settles_after_the_view=True) as shop:
        paid = shop.pay_while_dying(point, 0)
    assert (paid.payments, paid.is_replayed) == (2, False)
