"""The built page as files: what is committed is what its source makes, and how it is sent."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest

from biqe.errors import UnreadableFile
from biqe.serve import page_files
from biqe.serve.app import LEVEL

DOCUMENTS = ("/", "/yasgui")
SOURCES = re.compile(r"""(?:src|href)="([^"]+)\"""")


def _files(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@pytest.mark.slow
def test_the_committed_page_is_what_its_source_makes(root, tmp_path):
    node, vite = shutil.which("node"), root / "web" / "node_modules" / "vite" / "bin" / "vite.js"
    if node is None or not vite.is_file():
        pytest.skip("no node or no web/node_modules here; 'make page' installs them")
    for folder in ("first", "second"):
        done = subprocess.run(
            [node, vite, "build", "--outDir", tmp_path / folder, "--emptyOutDir"],
            cwd=root / "web",
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert _files(tmp_path / "first") == _files(tmp_path / "second") == _files(page_files.PAGE)


def test_versions_are_exact_and_come_from_no_one_place(root):
    package = json.loads((root / "web" / "package.json").read_text(encoding="utf-8"))
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions.values())
    lock = json.loads((root / "web" / "package-lock.json").read_text(encoding="utf-8"))
    entries = {name: entry for name, entry in lock["packages"].items() if name}
    # What is in the package is pinned by its hash; where it is fetched from is for each machine to say.
    assert all(entry["integrity"].startswith("sha512-") and "resolved" not in entry for entry in entries.values())
    assert {name: entries[f"node_modules/{name}"]["version"] for name in versions} == versions


@pytest.mark.parametrize("path", DOCUMENTS)
def test_documents_hold_no_script_and_no_style_of_their_own(atlas, path):
    text = atlas.get(path).text
    assert re.findall(r"<script(?![^>]*\ssrc=)", text) == []
    assert "<style" not in text and not re.search(r"\s(?:style|on\w+)=", text)
    used = [address for address in SOURCES.findall(text) if "/assets/" in address]
    assert len(used) >= 3
    for address in used:
        assert atlas.get(f"/{address.removeprefix('./')}").status_code == 200


def test_everything_is_sent_under_a_strict_policy(atlas):
    for name in page_files.read_page():
        path = {"index.html": "/", "yasgui.html": "/yasgui"}.get(name, f"/{name}")
        headers = atlas.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert (policy["style-src"] == "'self'") == (path != "/yasgui")
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


def test_hashed_files_are_kept_for_good_and_documents_are_asked_for_anew(atlas):
    for name in page_files.read_page():
        is_asset = name.startswith("assets/")
        path = f"/{name}" if is_asset else {"index.html": "/", "yasgui.html": "/yasgui"}[name]
        first = atlas.get(path)
        assert ("immutable" in first.headers["cache-control"]) == is_asset
        assert bool(re.search(r"-[\w-]{8}\.\w+$", name)) == is_asset
        again = atlas.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [
        ("gzip", True),
        ("br, gzip;q=0.5", True),
        ("*", True),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
    ],
)
def test_files_are_compressed_for_those_who_can_read_it(atlas, accepted, is_compressed):
    name = next(name for name in page_files.read_page() if re.fullmatch(r"assets/index-.*\.js", name))
    with atlas.stream("GET", f"/{name}", headers={"Accept-Encoding": accepted}) as response:
        sent = b"".join(response.iter_raw())
    assert (response.headers.get("content-encoding") == "gzip") == is_compressed
    assert (gzip.decompress(sent) if is_compressed else sent) == (page_files.PAGE / name).read_bytes()
    assert "accept-encoding" in response.headers["vary"].lower()


@pytest.mark.parametrize(
    "path",
    [
        "/assets/none.js",
        "/assets/../index.html",
        "/assets/..%2Findex.html",
        "/assets/%2Fetc%2Fpasswd",
        "/assets/",
        "/index.html",
        "/page_files.py",
        "/assets/index.html",
    ],
)
def test_nothing_else_is_served(atlas, path):
    response = httpx2.get(f"{atlas.base_url}".rstrip("/") + path)
    assert response.status_code == 404 and b"Traceback" not in response.content


def test_the_first_view_is_small():
    files = page_files.read_page()
    wanted = SOURCES.findall(files["index.html"].content.decode())
    sent = [files["index.html"], *(files[name.removeprefix("./")] for name in wanted if "/assets/" in name)]
    # What the first script imports comes with it.
    text = b"".join(file.content for file in sent if file.name.endswith(".js")).decode()
    sent += [files[f"assets/{name}"] for name in set(re.findall(r'from"\./([\w.-]+\.js)"', text))]
    assert 50_000 < sum(len(gzip.compress(file.content, LEVEL)) for file in sent) < 400_000


def test_a_page_that_was_not_built_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="the page is not built") as refused:
        page_files.routes(tmp_path)
    assert refused.value.hint == "build it with: make page"
