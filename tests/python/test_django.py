"""Django, unmodified, through the SQL door (G1): its migrations, its ORM and its transactions."""

import os
import subprocess
import sys


def test_a_shop_is_migrated_and_used(doors):
    script = os.path.join(os.path.dirname(__file__), "django_shop.py")
    host, port = doors.sql.rsplit(":", 1)
    words = [sys.executable, script, host, port, *([doors.certificate] if doors.certificate else [])]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert ran.stdout == "done\n", ran.stderr
