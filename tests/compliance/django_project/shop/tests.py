"""What Django's ORM does with a volume, in the databases of a test run."""

# pyright: basic, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
# mypy: ignore-errors
# Django's runner calls them, not pytest.
# ruff: noqa: PT009, PT027

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, OperationalError, connection, models, transaction
from django.db.models import Avg, Count, DurationField, ExpressionWrapper, F, Max, Q, StdDev, Sum, Window
from django.db.models.functions import (
    MD5,
    ExtractWeekDay,
    Lower,
    Power,
    Rank,
    Sqrt,
    TruncMonth,
    TruncWeek,
)
from django.test import TestCase, TransactionTestCase

from budwood import dbapi
from budwood.volume.errors import BadInput

from .models import Item, Maker

savepoint = getattr(transaction, "savepoint_create", None) or transaction.savepoint
"""Django 6 calls it otherwise."""

FIRST = datetime(2026, 1, 30, 23, 30, tzinfo=UTC)


def fill() -> None:
    acme, other = Maker.objects.create(name="Acme"), Maker.objects.create(name="other")
    Item.objects.bulk_create(
        Item(
            maker=other if number % 4 == 3 else acme,
            name=f"bolt {number}" if number % 2 else f"Nut {number}",
            price=Decimal(number) / 4,
            stock=number,
            made=FIRST + timedelta(days=number),
            more={"size": {"mm": number}, "tags": ["a"] * number},
        )
        for number in range(8)
    )


class Queries(TestCase):
    @classmethod
    def setUpTestData(cls) -> None:
        fill()

    def test_rows_are_made_read_changed_and_removed(self) -> None:
        item = Item.objects.select_related("maker").get(name="bolt 3")
        self.assertEqual(
            (item.maker.name, item.price, item.made), ("other", Decimal("0.75"), FIRST + timedelta(days=3))
        )
        item.stock = 30
        item.save()
        self.assertEqual(Item.objects.filter(stock__gt=7).update(stock=F("stock") + 1), 1)
        self.assertEqual(Item.objects.get(pk=item.pk).stock, 31)
        made, new = Maker.objects.get_or_create(name="third")
        self.assertTrue(new)
        self.assertEqual(Maker.objects.filter(pk=made.pk).delete()[0], 1)
        self.assertEqual(Maker.objects.get(name="other").delete()[1], {"shop.Item": 2, "shop.Maker": 1})
        Item.objects.bulk_create(
            [Item(pk=item.pk + 100, maker=Maker.objects.get(), name="x", price=1, made=FIRST)],
            update_conflicts=True,
            unique_fields=["id"],
            update_fields=["name"],
        )
        self.assertEqual(Item.objects.count(), 7)

    def test_aggregates(self) -> None:
        told = Item.objects.aggregate(Sum("stock"), Avg("price"), Max("made"), StdDev("stock"))
        self.assertEqual((told["stock__sum"], told["price__avg"]), (28, Decimal("0.875")))
        self.assertAlmostEqual(told["stock__stddev"], 5.25**0.5)
        by_maker = Maker.objects.annotate(number=Count("items"), much=Count("items", filter=Q(items__stock__gt=4)))
        self.assertEqual(sorted(by_maker.values_list("name", "number", "much")), [("Acme", 6, 2), ("other", 2, 1)])
        ranks = Item.objects.annotate(rank=Window(Rank(), partition_by="maker", order_by="-stock"))
        self.assertEqual(ranks.get(name="bolt 7").rank, 1)

    def test_the_functions_that_django_registers(self) -> None:
        months = (
            Item.objects.annotate(month=TruncMonth("made"))
            .values_list("month")
            .annotate(n=Count("id"))
            .order_by("month")
        )
        self.assertEqual([(month.month, n) for month, n in months], [(1, 2), (2, 6)])
        week = Item.objects.annotate(week=TruncWeek("made"), day=ExtractWeekDay("made")).get(name="bolt 1")
        self.assertEqual((week.week.date(), week.day), (date(2026, 1, 26), 7))
        self.assertEqual(Item.objects.filter(name__regex=r"^bolt [13]$").count(), 2)
        self.assertEqual(Item.objects.filter(name__iregex=r"^nut").count(), 4)
        self.assertEqual(Item.objects.filter(made__date=date(2026, 2, 1)).count(), 1)
        later = ExpressionWrapper(F("made") + timedelta(hours=2), output_field=models.DateTimeField())
        self.assertEqual(Item.objects.annotate(later=later).first().later, FIRST + timedelta(hours=2))
        apart = ExpressionWrapper(F("made") - FIRST, output_field=DurationField())
        self.assertEqual(Item.objects.annotate(apart=apart).get(name="bolt 5").apart, timedelta(days=5))
        told = Item.objects.annotate(low=Lower("name"), hash=MD5("name"), root=Sqrt(Power("stock", 2))).get(
            name="Nut 6"
        )
        self.assertEqual((told.low, len(told.hash), told.root), ("nut 6", 32, 6.0))
        self.assertEqual(Item.objects.get(more__size__mm=3).name, "bolt 3")

    def test_constraints(self) -> None:
        for wrong in (
            lambda: Maker.objects.create(name="Acme"),
            lambda: Item.objects.filter(stock=0).update(stock=-1),
        ):
            with self.assertRaises(IntegrityError), transaction.atomic():
                wrong()
        with self.assertRaises(IntegrityError), transaction.atomic():
            Item.objects.create(maker_id=999, name="x", price=1, made=FIRST)
            connection.check_constraints()

    def test_a_savepoint_goes_back_to_where_it_was_made(self) -> None:
        with transaction.atomic():
            Maker.objects.create(name="kept")
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                Maker.objects.create(name="lost")
                raise ZeroDivisionError
            mark = savepoint()
            Maker.objects.create(name="lost as well")
            transaction.savepoint_rollback(mark)
        self.assertEqual(Maker.objects.filter(name__in=["kept", "lost", "lost as well"]).count(), 1)

    def test_errors_are_django_s_with_budwood_s_as_their_cause(self) -> None:
        for push in (connection.push, lambda: connection.cursor().execute("PRAGMA budwood_push")):
            with self.assertRaisesRegex(OperationalError, "COMMIT or ROLLBACK first") as told, transaction.atomic():
                Maker.objects.create(name="unpushed")
                push()
            self.assertIsInstance(told.exception.__cause__.__cause__, BadInput)

    def test_a_run_s_database_has_no_remote_and_a_home_of_its_own(self) -> None:
        options = connection.settings_dict["OPTIONS"]
        self.assertTrue(options["home"].endswith(".tests"))
        self.assertTrue(connection.settings_dict["NAME"].startswith("test_shop"))
        status = connection.status()
        self.assertEqual((status["remote"], Path(options["home"]).is_dir()), ("", True))

    def test_what_a_volume_has_not_is_refused(self) -> None:
        other = connection.copy()
        other.settings_dict = {**connection.settings_dict, "HOST": "db.example"}
        with self.assertRaisesRegex(ImproperlyConfigured, "has a HOST"):
            other.get_connection_params()


class Transactions(TransactionTestCase):
    def test_atomic_commits_or_rolls_back_and_tells_afterwards(self) -> None:
        told = []
        with transaction.atomic():
            fill()
            transaction.on_commit(lambda: told.append(Item.objects.count()))
            self.assertEqual(told, [])
        self.assertEqual(told, [8])
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            Item.objects.all().delete()
            raise ZeroDivisionError
        self.assertEqual(Item.objects.count(), 8)

    def test_threads_have_connections_of_their_own_to_one_database(self) -> None:
        found = []

        def look() -> None:
            found.append((Maker.objects.count(), isinstance(connection.connection, dbapi.Connection)))
            connection.close()

        Maker.objects.create(name="seen")
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        self.assertEqual(found, [(1, True)])

    def test_a_connection_that_was_closed_below_is_unusable(self) -> None:
        connection.ensure_connection()
        self.assertTrue(connection.is_usable())
        connection.connection.close()
        self.assertFalse(connection.is_usable())
        connection.close()
        self.assertEqual(Maker.objects.count(), 0)
