# Types of fields are for a plugin of mypy's to find.
# pyright: basic
# mypy: disable-error-code="var-annotated"
from __future__ import annotations

from django.db import models


class Maker(models.Model):
    name = models.CharField(max_length=40, unique=True)


class Item(models.Model):
    maker = models.ForeignKey(Maker, on_delete=models.CASCADE, related_name="items")
    name = models.CharField(max_length=40)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    stock = models.IntegerField(default=0)
    made = models.DateTimeField()
    more = models.JSONField(default=dict)

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(stock__gte=0), name="stock_is_there"),)
        indexes = (models.Index(fields=["name"]),)
