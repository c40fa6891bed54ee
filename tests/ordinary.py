"""Databases as programs make them: the schemas of six well-known ones, in short, with what these keep in them.

None was made with types in mind: dates are text under DATE, DATETIME and TIMESTAMP, or numbers; truth is 0 and 1, or
't' and 'f'; prices are REAL and INTEGER under DECIMAL and MONEY; pictures lie under types that SQLite has no rule for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Ordinary:
    """`types`: of columns that aren't told by SQLite's own rules, what they are read as; by table and column."""

    name: str
    statements: str
    types: dict[str, str]
    queries: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


_CHINOOK: Final = Ordinary(
    "chinook",
    """
    CREATE TABLE Employee (EmployeeId INTEGER NOT NULL, LastName NVARCHAR(20) NOT NULL, ReportsTo INTEGER,
        BirthDate DATETIME, HireDate DATETIME, CONSTRAINT PK_Employee PRIMARY KEY (EmployeeId));
    CREATE TABLE Invoice (InvoiceId INTEGER NOT NULL PRIMARY KEY, CustomerId INTEGER NOT NULL,
        InvoiceDate DATETIME NOT NULL, BillingState NVARCHAR(40), Total NUMERIC(10,2) NOT NULL);
    CREATE TABLE Track (TrackId INTEGER PRIMARY KEY, Name NVARCHAR(200), Milliseconds INTEGER, UnitPrice NUMERIC(10,2));
    CREATE TABLE PlaylistTrack (PlaylistId INTEGER NOT NULL, TrackId INTEGER NOT NULL,
        CONSTRAINT PK_PlaylistTrack PRIMARY KEY (PlaylistId, TrackId));
    CREATE VIEW Sales AS SELECT BillingState, count(*) AS Invoices, sum(Total) AS Total, max(InvoiceDate) AS Last
        FROM Invoice GROUP BY BillingState;
    INSERT INTO Employee VALUES (1, 'Adams', NULL, '1962-02-18 00:00:00', '2002-08-14 00:00:00'),
        (2, 'Edwards', 1, '1958-12-08 00:00:00', '2002-05-01 00:00:00');
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
        INSERT INTO Invoice SELECT i, i % 59, datetime('2009-01-01', i || ' hours'),
            CASE WHEN i % 3 THEN 'CA' END, (i * 99 % 2500) / 100.0 FROM n;
    INSERT INTO Track VALUES (1, 'For Those About To Rock', 343719, 0.99), (2, 'Balls to the Wall', 342562, 1.99);
    INSERT INTO PlaylistTrack VALUES (1, 1), (1, 2);
    """,
    {
        "Employee.BirthDate": "string",
        "Employee.HireDate": "string",
        "Invoice.InvoiceDate": "string",
        "Invoice.Total": "double",
        "Track.UnitPrice": "double",
        "Sales.Invoices": "long",
        "Sales.Total": "double",
        "Sales.Last": "string",
    },
    {
        "SELECT count(*) AS n FROM Invoice": ["long"],
        "SELECT CustomerId, sum(Total), avg(Total), max(InvoiceDate), count(*) FROM Invoice GROUP BY 1": [
            "long",
            "double",
            "double",
            "string",
            "long",
        ],
        "SELECT Name || ' (' || (Milliseconds / 1000) || ')' AS words, Milliseconds / 1000, x'00ff' FROM Track": [
            "string",
            "long",
            "binary",
        ],
        "SELECT date(InvoiceDate) AS day, group_concat(InvoiceId), NULL AS none FROM Invoice GROUP BY day": [
            "string",
            "string",
            "string",
        ],
    },
)

_NORTHWIND: Final = Ordinary(
    "northwind",
    """
    CREATE TABLE [Employees] ([EmployeeID] INTEGER PRIMARY KEY AUTOINCREMENT, [LastName] TEXT, [BirthDate] DATE,
        [Photo] BLOB, [Notes] TEXT);
    CREATE TABLE [Categories] ([CategoryID] INTEGER PRIMARY KEY, [CategoryName] TEXT, [Picture] image);
    CREATE TABLE [Orders] ([OrderID] INTEGER PRIMARY KEY, [CustomerID] TEXT, [OrderDate] DATETIME,
        [ShippedDate] DATETIME, [Freight] NUMERIC DEFAULT 0, [ShipName] nvarchar(40));
    CREATE TABLE [Order Details] ([OrderID] INTEGER NOT NULL, [ProductID] INTEGER NOT NULL,
        [UnitPrice] NUMERIC NOT NULL DEFAULT 0, [Quantity] INTEGER NOT NULL DEFAULT 1,
        [Discount] REAL NOT NULL DEFAULT 0,
        PRIMARY KEY ("OrderID", "ProductID"));
    CREATE TABLE [Products] ([ProductID] INTEGER PRIMARY KEY, [ProductName] TEXT, [UnitPrice] money,
        [Discontinued] bit NOT NULL DEFAULT '0');
    INSERT INTO Employees VALUES (1, 'Davolio', '1968-12-08', x'151c2f00', 'Education includes …'),
        (2, 'Fuller', '1952-02-19', NULL, '');
    INSERT INTO Categories VALUES (1, 'Beverages', x'151c2f0002'), (2, 'Condiments', zeroblob(9000));
    INSERT INTO Orders VALUES (10248, 'VINET', '2016-07-04', '2016-07-16', 32.38, 'Vins et alcools'),
        (10249, 'TOMSP', '2016-07-05', NULL, 11, 'Toms');
    INSERT INTO [Order Details] VALUES (10248, 11, 14, 12, 0), (10248, 42, 9.8, 10, 0.05);
    INSERT INTO Products VALUES (1, 'Chai', 18, 0), (2, 'Chang', 19.5, 1);
    CREATE VIEW [Order Subtotals] AS
        SELECT OrderID, Sum((UnitPrice*Quantity*(1-Discount)/100)*100) AS Subtotal FROM [Order Details]
        GROUP BY OrderID;
    """,
    {
        "Employees.BirthDate": "string",
        "Employees.Photo": "binary",
        "Categories.Picture": "binary",
        "Orders.OrderDate": "string",
        "Orders.ShippedDate": "string",
        "Orders.Freight": "double",
        "Order Details.UnitPrice": "double",
        "Products.UnitPrice": "double",
        "Products.Discontinued": "long",
        "Order Subtotals.Subtotal": "double",
        # Of SQLite's own table for AUTOINCREMENT nobody says more.
        "sqlite_sequence.name": "string",
        "sqlite_sequence.seq": "long",
    },
    {
        "SELECT o.ShipName, d.UnitPrice * d.Quantity AS price FROM Orders o JOIN [Order Details] d USING (OrderID)": [
            "string",
            "double",
        ]
    },
)

_DJANGO: Final = Ordinary(
    "django",
    """
    CREATE TABLE "auth_user" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "password" varchar(128) NOT NULL,
        "last_login" datetime NULL, "is_superuser" bool NOT NULL, "username" varchar(150) NOT NULL UNIQUE,
        "is_active" bool NOT NULL, "date_joined" datetime NOT NULL);
    CREATE TABLE "django_session" ("session_key" varchar(40) NOT NULL PRIMARY KEY, "session_data" text NOT NULL,
        "expire_date" datetime NOT NULL);
    CREATE TABLE "shop_order" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "number" char(32) NOT NULL,
        "total" decimal NOT NULL, "placed" date NOT NULL, "at" time NULL, "took" bigint NULL, "extra" text NULL
        CHECK ((JSON_VALID("extra") OR "extra" IS NULL)), "weight" real NOT NULL, "count" integer unsigned NOT NULL);
    INSERT INTO auth_user VALUES (1, 'pbkdf2$', NULL, 1, 'root', 1, '2024-03-01 10:00:00.123456'),
        (2, 'pbkdf2$', '2024-03-02 08:30:00', 0, 'anna', 1, '2024-03-01 10:05:00');
    INSERT INTO django_session VALUES ('k1', 'e30=', '2024-03-15 10:00:00');
    INSERT INTO shop_order VALUES (1, '8f14e45f', '12.50', '2024-03-01', '10:00:00', 5000000, '{"a": 1}', 3, 2),
        (2, 'c9f0f895', 7, '2024-03-02', NULL, NULL, NULL, 0.25, 1);
    """,
    {
        "auth_user.last_login": "string",
        "auth_user.is_superuser": "long",
        "auth_user.is_active": "long",
        "auth_user.date_joined": "string",
        "django_session.expire_date": "string",
        "shop_order.total": "double",
        "shop_order.placed": "string",
        "shop_order.at": "string",
        "sqlite_sequence.name": "string",
        "sqlite_sequence.seq": "long",
    },
)

_RAILS: Final = Ordinary(
    "rails",
    """
    CREATE TABLE "schema_migrations" ("version" varchar NOT NULL PRIMARY KEY);
    CREATE TABLE "users" ("id" integer PRIMARY KEY AUTOINCREMENT NOT NULL, "email" varchar DEFAULT '' NOT NULL,
        "admin" boolean DEFAULT 'f', "confirmed" boolean DEFAULT 0, "born_on" date, "created_at" datetime(6) NOT NULL,
        "balance" decimal(10,2) DEFAULT 0.0, "settings" json, "avatar" blob, "sign_in_count" integer DEFAULT 0);
    CREATE TABLE "events" ("id" integer PRIMARY KEY, "at" timestamp, "kind" string, "ip" inet, "score" float);
    INSERT INTO schema_migrations VALUES ('20240301100000'), ('20240302100000');
    INSERT INTO users VALUES (1, 'a@example.org', 't', 1, '1990-05-06', '2024-03-01 10:00:00.123456', 10, '{}',
        x'89504e47', 3),
        (2, 'b@example.org', 'f', 0, NULL, '2024-03-01 10:00:00.000001', 0.5, '{"x":[1]}', NULL, 0);
    INSERT INTO events VALUES (1, 1709283600, 'login', '10.0.0.1', 1), (2, 1709283661, 'logout', NULL, 2.5);
    """,
    {
        "users.admin": "string",
        "users.confirmed": "long",
        "users.born_on": "string",
        "users.created_at": "string",
        "users.balance": "double",
        "users.settings": "string",
        "users.avatar": "binary",
        "events.at": "long",
        "events.kind": "string",
        "events.ip": "string",
        "sqlite_sequence.name": "string",
        "sqlite_sequence.seq": "long",
    },
)

_PLACES: Final = Ordinary(
    "places",
    """
    CREATE TABLE moz_places (id INTEGER PRIMARY KEY, url LONGVARCHAR, title LONGVARCHAR, rev_host LONGVARCHAR,
        visit_count INTEGER DEFAULT 0, hidden INTEGER DEFAULT 0 NOT NULL, frecency INTEGER DEFAULT -1 NOT NULL,
        last_visit_date INTEGER, guid TEXT, url_hash INTEGER DEFAULT 0 NOT NULL);
    CREATE TABLE moz_historyvisits (id INTEGER PRIMARY KEY, from_visit INTEGER, place_id INTEGER, visit_date INTEGER,
        visit_type INTEGER, session INTEGER);
    CREATE TABLE moz_inputhistory (place_id INTEGER NOT NULL, input LONGVARCHAR NOT NULL, use_count INTEGER,
        PRIMARY KEY (place_id, input));
    CREATE TABLE moz_meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
    CREATE TABLE moz_anno_attributes (id INTEGER PRIMARY KEY, name VARCHAR(32) UNIQUE NOT NULL, at LONG);
    CREATE VIRTUAL TABLE titles USING fts5 (title, url);
    INSERT INTO moz_places VALUES (1, 'https://example.org/', 'Example', 'gro.elpmaxe.', 3, 0, 100, 1709283600123456,
        'AbCdEf', 47358327123126), (2, 'https://example.net/', NULL, 'ten.elpmaxe.', 0, 1, -1, NULL, 'GhIjKl', 0);
    INSERT INTO moz_historyvisits VALUES (1, 0, 1, 1709283600123456, 1, 0);
    INSERT INTO moz_inputhistory VALUES (1, 'exa', 2);
    INSERT INTO moz_meta VALUES ('sync/deviceID', 'k3j4'), ('origin_frecency', '12'), ('version', 'v7');
    INSERT INTO moz_anno_attributes VALUES (1, 'downloads/destinationFileURI', 1709283600123456);
    INSERT INTO titles VALUES ('Example', 'https://example.org/'), ('Other', 'https://example.net/');
    """,
    {
        "moz_meta.value": "string",
        "moz_anno_attributes.at": "long",
        "titles.title": "string",
        "titles.url": "string",
    },
    {
        "SELECT url, datetime(last_visit_date / 1000000, 'unixepoch') AS at, length(url) FROM moz_places": [
            "string",
            "string",
            "long",
        ],
        "SELECT title FROM titles WHERE titles MATCH 'example'": ["string"],
    },
)

_KEPT: Final = Ordinary(
    "state",
    """
    CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
    CREATE TABLE android_metadata (locale TEXT);
    CREATE TABLE notes (a, b, "modified" TIMESTAMP, price DECIMAL(10, 2), size LONG, uid GUID);
    CREATE TABLE copied AS SELECT a, b || '' AS c, price * 2 AS d, modified FROM notes;
    CREATE TABLE named (k, n NUMERIC, PRIMARY KEY (n, k)) WITHOUT ROWID;
    CREATE TABLE made (id INTEGER PRIMARY KEY, "when" DATETIME AS (date(id * 86400, 'unixepoch')), twice AS (id * 2));
    CREATE TABLE empty (a, d DATE, n NUMERIC, b BLOB);
    INSERT INTO ItemTable VALUES ('theme', '{"id": "dark"}'), ('window', '[1, 2]');
    INSERT INTO android_metadata VALUES ('en_US');
    INSERT INTO notes VALUES (1, 'x', 1709283600000, 10, 3000000000, 'f81d4fae'), (2, NULL, NULL, 0.1, 5, x'');
    DELETE FROM notes WHERE a = 2;
    INSERT INTO notes VALUES (2, 'y', 1709283600001, 0.1, 5, NULL);
    INSERT INTO copied SELECT a, b || '', price * 2, modified FROM notes;
    INSERT INTO named VALUES ('x', 9007199254740993), ('y', 1);
    INSERT INTO made (id) VALUES (1), (2);
    """,
    {
        "ItemTable.value": "string",
        "notes.a": "long",
        "notes.b": "string",
        "notes.modified": "long",
        "notes.price": "double",
        "notes.size": "long",
        "notes.uid": "string",
        "copied.a": "long",
        "copied.c": "string",
        "copied.d": "double",
        "copied.modified": "long",
        "named.k": "string",
        "named.n": "long",
        "made.when": "string",
        "made.twice": "long",
        "empty.a": "string",
        "empty.d": "string",
        "empty.n": "double",
        "empty.b": "binary",
    },
    {
        "SELECT 1 WHERE 0": ["string"],
        "SELECT typeof(a), total(price), 3000000000 * 3 FROM notes": [
            "string",
            "double",
            "long",
        ],
    },
)

ORDINARY: Final = (_CHINOOK, _NORTHWIND, _DJANGO, _RAILS, _PLACES, _KEPT)
