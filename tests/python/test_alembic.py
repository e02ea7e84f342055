"""Alembic, unmodified, through the SQL door (G1, C7): a migration that it writes from models, what it finds different after it, a
migration by hand, and back; the models then used by SQLAlchemy over asyncpg."""

import asyncio
import os
import uuid

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import create_async_engine

from conftest import Mood

ENV = """
from alembic import context
models = context.config.attributes["models"]
connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=models, compare_server_default=True,
                  version_table=context.config.attributes["name"],
                  include_name=lambda name, kind, parents: kind != "table" or name in models.tables)
with context.begin_transaction():
    context.run_migrations()
"""
SECOND = """
revision, down_revision = "two", {first!r}
from alembic import op
import sqlalchemy as sa

def upgrade():
    op.add_column("{name}_user", sa.Column("nick", sa.String(20), nullable=False, server_default="n"))
    op.alter_column("{name}_user", "name", type_=sa.String(100), existing_type=sa.String(50))
    op.create_index("{name}_nick", "{name}_user", ["nick"])
    op.drop_constraint("{name}_age", "{name}_user")
    op.drop_constraint("{name}_both", "{name}_user")

def downgrade():
    op.create_unique_constraint("{name}_both", "{name}_user", ["name", "email"])
    op.create_check_constraint("{name}_age", "{name}_user", "age >= 0")
    op.alter_column("{name}_user", "name", type_=sa.String(100), existing_type=sa.String(100))
    op.drop_column("{name}_user", "nick")
"""


def models(name):
    made = sa.MetaData()
    mood = sa.Enum(Mood, name=f"{name}_mood")
    user = sa.Table(
        f"{name}_user", made,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(50), index=True),
        sa.Column("email", sa.String, unique=True),
        sa.Column("age", sa.Integer, server_default="1"),
        sa.Column("mood", mood, server_default="calm", nullable=False),
        sa.Column("tags", postgresql.ARRAY(sa.Text)),
        sa.Column("body", postgresql.JSONB),
        sa.Column("made", sa.DateTime(timezone=True), server_default=sa.func.now()),
        sa.Column("twice", sa.Integer, sa.Computed("age * 2", persisted=True)),
        sa.UniqueConstraint("name", "email", name=f"{name}_both"),
        sa.CheckConstraint("age >= 0", name=f"{name}_age"),
        sa.Index(f"{name}_lower", sa.text("lower(name)")))
    sa.Table(
        f"{name}_post", made,
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("user_id", sa.ForeignKey(f"{name}_user.id", ondelete="CASCADE"), nullable=False))
    return made, user


@pytest.fixture
def name(doors):
    name = "a" + uuid.uuid4().hex[:12]
    yield name
    with psycopg.connect(doors.libpq(), autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {name}_post, {name}_user, {name}")
        connection.execute(f"DROP TYPE IF EXISTS {name}_mood")


def test_a_schema_goes_forth_and_back(doors, name, tmp_path):
    made, user = models(name)
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(doors.libpq()))
    os.mkdir(tmp_path / "versions")
    (tmp_path / "env.py").write_text(ENV)
    (tmp_path / "script.py.mako").write_text(
        "revision, down_revision = ${repr(up_revision)}, ${repr(down_revision)}\nfrom alembic import op\n"
        "import sqlalchemy as sa\n${imports if imports else ''}\n"
        "def upgrade():\n    ${upgrades if upgrades else 'pass'}\n\n"
        "def downgrade():\n    ${downgrades if downgrades else 'pass'}\n")

    def alembic(act):
        with engine.connect() as connection:
            config = Config(attributes={"connection": connection, "models": made, "name": name})
            config.set_main_option("script_location", str(tmp_path))
            done = act(config)
            connection.commit()
            return done

    first = alembic(lambda config: command.revision(config, "one", autogenerate=True)).revision
    alembic(lambda config: command.upgrade(config, "head"))

    def different():
        with engine.connect() as connection:
            known = lambda found, kind, parents: kind != "table" or found in made.tables  # noqa: E731
            options = {"compare_type": True, "compare_server_default": True, "include_name": known, "version_table": name}
            return compare_metadata(MigrationContext.configure(connection, opts=options), made)

    assert different() == []
    with engine.begin() as connection:
        row = {"name": "Ann", "email": "a@x", "mood": Mood.glad, "tags": ["x", None], "body": {"k": [1]}, "age": 3}
        connection.execute(user.insert(), row)
        again = connection.begin_nested()
        with pytest.raises(sa.exc.IntegrityError):
            connection.execute(user.insert(), row)
        again.rollback()
        found = connection.execute(sa.select(user).where(sa.func.lower(user.c.name) == "ann")).one()
        assert (found.mood, found.tags, found.body, found.twice) == (Mood.glad, ["x", None], {"k": [1]}, 6)
    asyncio.run(with_asyncpg(doors, user))
    (tmp_path / "versions" / "two.py").write_text(SECOND.format(first=first, name=name))
    alembic(lambda config: command.upgrade(config, "head"))
    alembic(lambda config: command.downgrade(config, first))
    alembic(lambda config: command.downgrade(config, "base"))
    with engine.connect() as connection:
        assert not sa.inspect(connection).has_table(f"{name}_user")
    engine.dispose()


async def with_asyncpg(doors, user):
    """What its types are, asyncpg asks in the midst of the transaction that needs them."""
    options = doors.asyncpg()
    host, port, tls = options["host"], options["port"], options["ssl"]
    url = f"postgresql+asyncpg://polyshard:polyshard@{host}:{port}/polyshard"
    engine = create_async_engine(url, connect_args={"ssl": tls})
    async with engine.begin() as connection:
        found = (await connection.execute(sa.select(user.c.mood, user.c.tags, user.c.body))).one()
        assert tuple(found) == (Mood.glad, ["x", None], {"k": [1]})
        await connection.execute(user.insert(), {"name": "Bob", "email": "b@x", "mood": Mood.sad})
    await engine.dispose()
