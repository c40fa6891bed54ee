"""Settings of Django's own suite over volumes: scripts/suites.sh runs it.

What may fail of it: `test_concurrent_delete` deletes by two transactions at once, as SQLite can't, for which Django
leaves it out; `test_custom_test_name` and `test_unicode_password` are of what a volume has otherwise, or hasn't; and
`test_non_zero_exit_status_when_path_to_db_is_path` is of a path.
"""

import os

_PLACE = {"ENGINE": "budwood.vfs.django", "OPTIONS": {"home": os.environ["DJANGO_SUITE_HOME"]}}
DATABASES = {name: {**_PLACE, "NAME": name} for name in ("default", "other")}
SECRET_KEY = "of the tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
