"""An order, and its payments, of which there must never be two."""

from django.db import models


class Order(models.Model):
    amount = models.IntegerField()


class Payment(models.Model):
    order = models.ForeignKey(Order, models.PROTECT)
    amount = models.IntegerField()
