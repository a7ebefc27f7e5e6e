"""The server under a path of nginx, configured as docs/guides/nginx.md says."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

FETCHED = Path(__file__).parents[2] / "build" / "proxies" / "usr" / "sbin"
"""Where ``make proxies`` puts it."""
NGINX = shutil.which("nginx") or shutil.which("nginx", path=f"/usr/sbin:{FETCHED}")
pytestmark = pytest.mark.skipif(NGINX is None, reason="no nginx here")
QUERY = "SELECT ?city WHERE { ?city :located_on :Rhine }"


@pytest.fixture(scope="module")
def proxied(atlas, root, tmp_path_factory) -> Iterator[httpx2.Client]:
    """A client of nginx with the location of the guide, before the server of the atlas."""
    folder: Path = tmp_path_factory.mktemp("nginx")
    page = (root / "docs" / "guides" / "nginx.md").read_text("utf-8")
    site = re.search(r"```nginx\n(.*?)```", page, re.DOTALL)[1]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wanted = "http://127.0.0.1:7878/;"
    assert wanted in site
    site = site.replace(wanted, f"{str(atlas.base_url).rstrip('/')}/;")
    site = f"server {{ listen 127.0.0.1:{port}; {site} }}"
    paths = "".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; events {{}} http {{ access_log off; {paths} {site} }}"
    )
    with subprocess.Popen([NGINX, "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.PIPE) as nginx:
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}/graph/", timeout=60) as client:
                while True:
                    assert nginx.poll() is None, nginx.stderr.read().decode()
                    try:
                        client.get("health")
                        break
                    except httpx2.ConnectError:
                        time.sleep(0.05)
                yield client
        finally:
            nginx.terminate()


def test_page_endpoint_and_api_are_under_a_path(proxied, atlas):
    page = proxied.get("")
    assert page.status_code == 200
    for name in re.findall(r'(?:src|href)="\./([^"]+)"', page.text):
        assert proxied.get(name).content == atlas.get(f"/{name}").content
    wanted = atlas.get("/sparql", params={"query": QUERY}, headers={"Accept": "text/csv"})
    found = proxied.get("sparql", params={"query": QUERY}, headers={"Accept": "text/csv"})
    assert (found.status_code, found.text) == (200, wanted.text)


def test_pages_of_other_sites_are_still_refused(proxied):
    own = f"http://{proxied.base_url.netloc.decode()}"
    for origin, status in ((own, 200), ("http://example.com", 403)):
        answer = proxied.post("api/ask", json={"query": QUERY, "mode": "known"}, headers={"Origin": origin})
        assert answer.status_code == status
