"""The two packages that the atlas is built from, opened without installing them, and checked byte for byte.

libmagics++-data_*.deb   Debian package with Natural Earth 10m rivers, places, oceans and lakes (public domain)
world-atlas-*.tgz        npm package with Natural Earth 10m countries as TopoJSON (ISC)
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

PACKAGES = {"libmagics++-data": "libmagics++-data_*.deb", "world-atlas": "world-atlas-*.tgz"}

_MAGICS = "usr/share/magics/10m/ne_10m_"

# Checksums of the files inside, not of the packages: a rebuilt package with the same data stays welcome.
FILES = {
    "rivers.shp": (
        "libmagics++-data",
        _MAGICS + "rivers_lake_centerlines.shp",
        "2a390e30626d145e967ac31eaaa8e5418c7992f599759e2be56c038f179cd7df",
    ),
    "rivers.dbf": (
        "libmagics++-data",
        _MAGICS + "rivers_lake_centerlines.dbf",
        "76fa4d4873071cefa4a2e6de02d3d6d8420c0b74257eca6848fdfbaa523df078",
    ),
    "places.shp": (
        "libmagics++-data",
        _MAGICS + "populated_places_simple.shp",
        "487301091d77c2d6468a5741ae3becabaf6f76ec5e10d9f90546e8154d8fedcd",
    ),
    "places.dbf": (
        "libmagics++-data",
        _MAGICS + "populated_places_simple.dbf",
        "2e4ca5a059240f93f548531ad979555a0f716cd9b6ddfc9e0c602239d17fc36a",
    ),
    "water.shp": (
        "libmagics++-data",
        _MAGICS + "ocean.shp",
        "98cb221d0d7890e4bfcf4b602462066b938fcbf91dcd5a060ce5c3fd6f951e3b",
    ),
    "water.dbf": (
        "libmagics++-data",
        _MAGICS + "ocean.dbf",
        "783435b72923487eee2b76d5a8a11bab154cee840b631fcecb7cb22b315a5e65",
    ),
    "countries.json": (
        "world-atlas",
        "package/countries-10m.json",
        "3bc6f1d367a9bcec479841bae0e76092f512838411d0cef124e92eec4db45f79",
    ),
}
"""Our name -> (package, path inside it, sha256)."""


def read(folder: Path) -> dict[str, bytes]:
    """Content of every file of ``FILES``, from the packages in ``folder``; stops with a message if one differs."""
    archives = {package: _open(folder, package) for package in PACKAGES}
    contents = {}
    for name, (package, path, expected) in FILES.items():
        content = _member(archives[package], path)
        digest = hashlib.sha256(content).hexdigest()
        if digest != expected:
            raise SystemExit(f"{path} in {package} has sha256 {digest}, expected {expected}: another version?")
        contents[name] = content
    return contents


def available(folder: Path) -> bool:
    """Whether both packages are in ``folder``."""
    return all(any(folder.glob(pattern)) for pattern in PACKAGES.values())


def _open(folder: Path, package: str) -> tarfile.TarFile:
    found = sorted(folder.glob(PACKAGES[package]))
    if not found:
        raise SystemExit(
            f"no {PACKAGES[package]} in {folder}; get it there with "
            "`apt-get download libmagics++-data` and `npm pack world-atlas@2.0.2`"
        )
    content = found[-1].read_bytes()
    if found[-1].suffix == ".deb":
        content = _data_of_deb(content)
    return tarfile.open(fileobj=io.BytesIO(content))


def _data_of_deb(content: bytes) -> bytes:
    """The data.tar.* member of a Debian package, which is an ``ar`` archive with 60-byte headers."""
    position = len(b"!<arch>\n")
    while position < len(content):
        name = content[position : position + 16].decode().strip()
        size = int(content[position + 48 : position + 58])
        if name.startswith("data.tar"):
            return content[position + 60 : position + 60 + size]
        position += 60 + size + size % 2
    raise SystemExit("the Debian package holds no data.tar")


def _member(archive: tarfile.TarFile, path: str) -> bytes:
    for name in (path, f"./{path}"):
        try:
            extracted = archive.extractfile(name)
        except KeyError:
            continue
        if extracted is not None:
            return extracted.read()
    raise SystemExit(f"{path} is not in the package")
