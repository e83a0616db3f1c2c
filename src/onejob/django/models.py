"""What the admin pages show, for Django's permissions `view_ledgerjob` and `view_ledgerkey`. The rows are in the ledger."""

from django.db import models


class LedgerModel(models.Model):
    class Meta:
        abstract = True
        managed = False
        default_permissions = ("view",)


class LedgerJob(LedgerModel):
    pass


class LedgerKey(LedgerModel):
    pass
