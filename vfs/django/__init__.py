"""Django: volumes as databases of Django's; `pip install "budwood[django]"`.

    DATABASES = {
        "default": {
            "ENGINE": "budwood.vfs.django",
            "NAME": "inventory",
            "OPTIONS": {"remote": "https://db.example"},
        }
    }

Django's own backend for SQLite, over dbapi.py. OPTIONS are the arguments of `dbapi.connect`: `home`, `remote`, `token`,
`lsn`, `at`, `mode`, `timeout`; and those of Django's: `transaction_mode`, `init_command`. The connection has `push()`,
`pull()` and `status()`:

    transaction.on_commit(connection.push)

base.py      the connection
creation.py  the databases of a test run: volumes of a home of their own, which nothing leaves
client.py    `manage.py dbshell`: apsw's shell
"""
