"""Blobs with tools that people use: rclone, and fsspec's file system, both unmodified."""

import os
import random
import shutil
import subprocess
import uuid

import pytest
from adlfs import AzureBlobFileSystem

from blob_help import container, read, service  # noqa: F401: fixtures
from conftest import ACCOUNT, KEY

MIB = 1024 * 1024


def rclone(doors, *arguments):
    """What the program prints; its configuration is in the environment alone."""
    # What it calls an emulator is the account with the published key, whose name is in the path.
    settings = {"TYPE": "azureblob", "USE_EMULATOR": "true", "ENDPOINT": doors.blob}
    environment = {f"RCLONE_CONFIG_DOOR_{name}": value for name, value in settings.items()}
    trust = ["--ca-cert", doors.certificate] if doors.certificate else []
    words = ["rclone", "--config", os.devnull, "--retries", "1", "--low-level-retries", "1", *trust, *arguments]
    ran = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, f"rclone {' '.join(arguments)}: {ran.stderr}"
    return ran.stdout


@pytest.mark.skipif(not shutil.which("rclone"), reason="rclone is not installed: run scripts/setup-test.sh")
def test_a_folder_is_synchronised_by_rclone(doors, tmp_path, container):
    chance, here = random.Random(12), tmp_path / "here"
    files = {"a.txt": 10, "b/c d.bin": 100_000, "b/ü/é&.bin": 5 * MIB, "large.bin": 20 * MIB, "empty": 0}
    for name, size in files.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(size))
    there = f"door:{container.container_name}/backup"
    rclone(doors, "sync", str(here), there, "--azureblob-chunk-size", "4M", "--transfers", "4")
    listed = sorted(rclone(doors, "lsf", "-R", "--files-only", there).splitlines())
    assert listed == sorted(files)
    assert read(container.get_blob_client("backup/b/c d.bin")) == (here / "b/c d.bin").read_bytes()
    # It compares the checksums that the service tells.
    rclone(doors, "check", str(here), there)
    (here / "a.txt").write_bytes(b"changed")
    (here / "empty").unlink()
    rclone(doors, "sync", str(here), there, "--checksum")
    rclone(doors, "sync", there, str(tmp_path / "back"))
    found = {str(path.relative_to(tmp_path / "back")): path.read_bytes()
             for path in (tmp_path / "back").rglob("*") if path.is_file()}
    assert found == {name: (here / name).read_bytes() for name in files if name != "empty"}
    rclone(doors, "copyto", f"{there}/large.bin", f"{there}/copied.bin")
    assert read(container.get_blob_client("backup/copied.bin")) == (here / "large.bin").read_bytes()
    rclone(doors, "purge", there)
    assert list(container.list_blobs()) == []


def test_a_file_system_of_fsspec(doors, service):
    if doors.certificate:
        pytest.skip("it has no way to name a certificate to trust")
    words = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={doors.blob};DefaultEndpointsProtocol=http;"
    files = AzureBlobFileSystem(connection_string=words, skip_instance_cache=True)
    name = "fs" + uuid.uuid4().hex
    files.mkdir(name)
    content = random.Random(13).randbytes(10 * MIB)
    with files.open(f"{name}/dir/large.bin", "wb", blocksize=4 * MIB) as file:
        for place in range(0, len(content), MIB):
            file.write(content[place:place + MIB])
    files.pipe(f"{name}/dir/sub/small", b"small")
    with files.open(f"{name}/dir/large.bin", "rb") as file:
        file.seek(5 * MIB - 3)
        assert file.read(7) == content[5 * MIB - 3:5 * MIB + 4]
    assert files.cat(f"{name}/dir/large.bin") == content
    assert files.ls(f"{name}/dir") == [f"{name}/dir/large.bin", f"{name}/dir/sub"]
    assert files.find(name) == [f"{name}/dir/large.bin", f"{name}/dir/sub/small"]
    assert files.info(f"{name}/dir/large.bin")["size"] == len(content) and files.isdir(f"{name}/dir")
    files.copy(f"{name}/dir/sub/small", f"{name}/copy")
    files.rm(f"{name}/dir", recursive=True)
    assert files.find(name) == [f"{name}/copy"] and files.cat(f"{name}/copy") == b"small"
    files.rm(name, recursive=True)
    assert not service.get_container_client(name).exists()
