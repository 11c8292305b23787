"""The documentation site in a browser: it finds pages, and sends no request to other machines."""

import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def site_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    subprocess.run([sys.executable, "-m", "zensical", "build"], cwd=folder, check=True, capture_output=True)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder / "site"))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_search_finds_a_page_without_outside_requests(browser: Browser, site_url: str) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(site_url + "/index.html")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("/")
    page.wait_for_timeout(300)  # the search box opens with an animation and accepts keys after it
    page.keyboard.type("Toxiproxy")
    page.get_by_role("option", name="Testcontainers").first.wait_for(timeout=15_000)
    page.close()
    assert [url for url in asked if not url.startswith((site_url, "data:", "blob:"))] == []
