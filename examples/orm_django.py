"""Django: a model in a volume. A project has its settings in a file; here they stand in one with the model.

.venv/bin/python examples/orm_django.py

A directory stands in for a node or a bucket. It needs `pip install 'budwood[django]'`.
"""

# Types of fields are for a plugin of mypy's to find.
# pyright: basic
# mypy: disable-error-code="var-annotated"

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, cast

import django
from django.conf import settings
from django.db import connection, models, transaction

import budwood


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = (folder / "store").as_uri()
        options = {"home": folder / "here", "remote": remote}
        settings.configure(
            DATABASES={"default": {"ENGINE": "budwood.vfs.django", "NAME": "inventory", "OPTIONS": options}}
        )
        django.setup()

        class Part(models.Model):
            name = models.CharField(max_length=40, unique=True)
            count = models.IntegerField()

            class Meta:
                app_label = "stock"

        with connection.schema_editor() as editor:
            editor.create_model(Part)
        volume = cast("Any", connection)
        with transaction.atomic():
            Part.objects.bulk_create([Part(name="bolt", count=40), Part(name="nut", count=60)])
            # Once it is committed: a push sends what is.
            transaction.on_commit(lambda: print("pushed, LSN", volume.push()["lsn"]))
        Part.objects.filter(name="bolt").update(count=models.F("count") - 5)
        print("here:  ", list(Part.objects.order_by("name").values_list("name", "count")))
        print("unpushed:", volume.status()["unpushed"])
        connection.close()

        with budwood.connect("inventory", home=folder / "there", remote=remote) as there:
            print("there: ", there.execute("SELECT name, count FROM stock_part ORDER BY name").fetchall())
        there.close()


if __name__ == "__main__":
    main()
