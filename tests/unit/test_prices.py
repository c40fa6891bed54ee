"""Prices: what S3's standard class asks for, unless told otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from budwood.cli.prices import GB, MONTH_DAYS, Prices, read_prices
from budwood.volume.errors import BadInput


def test_a_hundred_dollars_a_year_buy_so_much() -> None:
    """S3.36: 362 GiB, or 20 million PUTs or LISTs, or 250 million GETs."""
    prices = Prices()
    assert prices.storage_a_month(362 * GB) * 12 == pytest.approx(100, rel=0.01)
    assert prices.puts_a_month(20e6 / 12 / MONTH_DAYS) * 12 == pytest.approx(100)
    assert prices.requests(puts=20e6, lists=0, gets=0, sent_bytes=0) == pytest.approx(100)
    assert prices.requests(puts=0, lists=20e6, gets=0, sent_bytes=0) == pytest.approx(100)
    assert prices.requests(puts=0, lists=0, gets=250e6, sent_bytes=0) == pytest.approx(100)
    assert prices.requests(puts=0, lists=0, gets=0, sent_bytes=1e12) == 0


def test_a_file_says_others(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('currency = "€"\negress_gb = 2\nget_per_1000 = 3.5\n')
    prices = read_prices(path)
    assert prices == Prices(currency="€", egress_gb=2, get_per_1000=3.5)
    assert prices.requests(puts=0, lists=0, gets=2000, sent_bytes=3 * GB) == pytest.approx(2 * 3.5 + 3 * 2)
    assert read_prices(None) == Prices()


def test_one_that_can_t_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Is a directory"):
        read_prices(tmp_path)
