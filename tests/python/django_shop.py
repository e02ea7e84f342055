"""A shop in Django, whose orders are sharded by tenant: migrations, the ORM, bulk inserts and transactions (G1, C1)."""

import sys

import django
from django.conf import settings

host, port, *certificate = sys.argv[1:]
settings.configure(
    SECRET_KEY="of a test",
    USE_TZ=True,
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "polyshard",
            "USER": "polyshard",
            "PASSWORD": "polyshard",
            "HOST": host,
            "PORT": port,
            "OPTIONS": {"sslmode": "verify-full", "sslrootcert": certificate[0]} if certificate else {},
        }
    },
)
django.setup()

from django.contrib.auth.models import Group, Permission, User  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, NotSupportedError, connection, models, transaction  # noqa: E402
from django.db.models import Count, F, Max, Window  # noqa: E402
from django.db.models.functions import Rank  # noqa: E402


class Order(models.Model):
    pk = models.CompositePrimaryKey("tenant_id", "id")
    tenant_id = models.BigIntegerField()
    id = models.BigIntegerField()
    note = models.TextField()

    class Meta:
        app_label, db_table = "shop", "shop_orders"


def refused(error, action):
    try:
        with transaction.atomic():
            action()
    except error:
        return True
    return False


# All migrations of Django's own applications: deferred references, renamed and widened columns, indexes for patterns.
call_command("migrate", verbosity=0)
with connection.schema_editor() as editor:
    editor.create_model(Order)
with connection.cursor() as cursor:
    cursor.execute("SELECT polyshard.create_map('shops', 'hash', 'bigint')")
    cursor.execute("SELECT polyshard.shard_table('shop_orders', 'shops', 'tenant_id')")

# Users, groups, permissions and sessions are reference tables: joined everywhere.
ann = User.objects.create_user("ann", "ann@example.com", "a password")
assert Permission.objects.count() > 10
staff = Group.objects.create(name="staff")
staff.permissions.set(Permission.objects.order_by("id")[:3])
ann.groups.add(staff)
assert len(User.objects.get(username="ann").get_all_permissions()) == 3
assert refused(IntegrityError, lambda: User.objects.create_user("ann"))
session = SessionStore()
session["basket"] = [1, 2]
session.save()
assert SessionStore(session.session_key)["basket"] == [1, 2]

# Orders: many rows at once by arrays, of one tenant each.
for tenant in range(1, 6):
    Order.objects.bulk_create([Order(tenant_id=tenant, id=i, note=f"{tenant}/{i}") for i in range(20)])
assert Order.objects.count() == 100
assert Order.objects.get(tenant_id=3, id=7).note == "3/7"
assert list(Order.objects.filter(tenant_id=2, id__lt=3).order_by("-id").values_list("note", flat=True)) == [
    "2/2",
    "2/1",
    "2/0",
]
grouped = Order.objects.values("tenant_id").annotate(n=Count("*"), last=Max("id")).order_by("tenant_id")
assert [(row["tenant_id"], row["n"], row["last"]) for row in grouped] == [(t, 20, 19) for t in range(1, 6)]
first = Window(Rank(), partition_by=F("tenant_id"), order_by=F("id").desc())
assert Order.objects.annotate(place=first).filter(place=1).count() == 5
# A cursor WITH HOLD over all shards.
assert sum(1 for _ in Order.objects.order_by("tenant_id", "id").iterator(chunk_size=7)) == 100

# A transaction with a savepoint stays on its shard; one over several is refused.
with transaction.atomic():
    order = Order.objects.select_for_update().get(tenant_id=4, id=1)
    order.note = "changed"
    order.save()
    assert refused(IntegrityError, lambda: Order.objects.create(tenant_id=4, id=2, note="twice"))
    Order.objects.create(tenant_id=4, id=100, note="new")
assert Order.objects.get(tenant_id=4, id=1).note == "changed"
assert refused(NotSupportedError, lambda: [Order.objects.create(tenant_id=t, id=200, note="") for t in range(1, 60)])
assert not Order.objects.filter(id=200).exists()
assert Order.objects.update_or_create(tenant_id=5, id=300, defaults={"note": "made"})[1]
assert Order.objects.filter(tenant_id=5).update(note="all") == 21
assert Order.objects.filter(tenant_id=5).delete()[0] == 21
assert connection.introspection.get_primary_key_columns(connection.cursor(), "shop_orders") == ["tenant_id", "id"]
print("done")
