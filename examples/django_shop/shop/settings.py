"""The settings of the shop. What concerns onejob is marked."""

import os
from urllib.parse import urlsplit

database = urlsplit(os.environ.get("SHOP_DATABASE", "postgresql://localhost/shop"))

SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only for this example")
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "shop",
    "onejob.django",  # onejob
]
MIDDLEWARE = [
    "django.middleware.common.CommonMiddleware",
    "onejob.django.IdempotencyMiddleware",  # onejob
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": database.path.lstrip("/"),
        "USER": database.username or "",
        "PASSWORD": database.password or "",
        "HOST": database.hostname or "",
        "PORT": database.port or "",
        "CONN_MAX_AGE": 60,
    }
}

# onejob: the ledger is in the same database, so that a payment, its key and its job commit together.
ONEJOB = {
    "DATABASE": "default",
    "SCOPE": "shop.views.customer",
    "APP": "shop.jobs:app",
    "LEASE": float(os.environ.get("SHOP_LEASE", "60")),
}
