"""Tables that nobody has declared, which every shard has alike: references that are checked at the end, locks, names of what was
violated (G1, C1, C7)."""

import uuid

import psycopg
import pytest


@pytest.fixture
def connection(doors):
    with psycopg.connect(doors.libpq(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def name(connection):
    """Two tables of which one refers to the other, as Django makes them."""
    name = "r" + uuid.uuid4().hex[:12]
    run = connection.execute
    run(f"CREATE TABLE {name} (id int PRIMARY KEY, label text CONSTRAINT {name}_label UNIQUE, n int NOT NULL DEFAULT 0)")
    run(f"CREATE TABLE {name}_of (id int PRIMARY KEY, owner int)")
    run(f"ALTER TABLE {name}_of ADD CONSTRAINT {name}_fk FOREIGN KEY (owner) REFERENCES {name} (id) "
        "DEFERRABLE INITIALLY DEFERRED")
    run(f"INSERT INTO {name} VALUES (1, 'one')")
    yield name
    run(f"DROP TABLE {name}_of, {name}")


def count(connection, table):
    return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_a_reference_that_does_not_hold_in_the_end_is_refused_and_nothing_else_is(connection, name):
    run, violated = connection.execute, psycopg.errors.ForeignKeyViolation
    with pytest.raises(violated):
        run(f"INSERT INTO {name}_of VALUES (1, 99)")
    with pytest.raises(violated), connection.transaction():
        run(f"INSERT INTO {name}_of VALUES (1, 1)")
        run(f"DELETE FROM {name} WHERE id = 1")
    with pytest.raises(violated), connection.transaction():
        run(f"INSERT INTO {name}_of VALUES (1, 1), (2, 5) ON CONFLICT (id) DO UPDATE SET owner = 7")
    # All shards go on.
    assert (count(connection, name), count(connection, f"{name}_of")) == (1, 0)
    with connection.transaction():
        run(f"INSERT INTO {name}_of VALUES (1, 2)")
        run(f"INSERT INTO {name} VALUES (2, 'two')")
    assert (count(connection, name), count(connection, f"{name}_of")) == (2, 1)


def test_rows_that_were_locked_can_be_changed(doors, connection, name):
    run = connection.execute
    with connection.transaction():
        assert run(f"SELECT label FROM {name} WHERE id = 1 FOR UPDATE").fetchone() == ("one",)
        run(f"UPDATE {name} SET n = n + 1 WHERE id = 1")
        with pytest.raises(psycopg.errors.UniqueViolation), connection.transaction():
            run(f"INSERT INTO {name} VALUES (1, 'again')")
    assert run(f"SELECT n FROM {name}").fetchone() == (1,)


def test_what_was_violated_is_named(connection, name):
    with pytest.raises(psycopg.errors.UniqueViolation) as refused:
        connection.execute(f"INSERT INTO {name} VALUES (3, 'one')")
    diagnosis = refused.value.diag
    assert (diagnosis.schema_name, diagnosis.table_name, diagnosis.constraint_name) == ("public", name, f"{name}_label")
    with pytest.raises(psycopg.errors.NotNullViolation) as refused:
        connection.execute(f"INSERT INTO {name} VALUES (3, 'three', NULL)")
    assert (refused.value.diag.table_name, refused.value.diag.column_name) == (name, "n")
    with pytest.raises(psycopg.errors.UndefinedTable, match='relation "nosuch.thing" does not exist'):
        connection.execute("SELECT * FROM nosuch.thing")
