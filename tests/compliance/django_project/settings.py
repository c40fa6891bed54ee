"""A project of Django's whose database is a volume; tests/integration/test_django.py runs its commands in a copy."""

from __future__ import annotations

import os

SECRET_KEY = "of no use"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "shop"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "budwood.vfs.django",
        "NAME": "shop",
        "OPTIONS": {"home": os.environ["SHOP_HOME"], "remote": os.environ["SHOP_REMOTE"]},
    }
}
