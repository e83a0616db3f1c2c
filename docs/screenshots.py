"""Photographs the pages of the console for docs/console.md: `make screenshots`. Needs Chromium."""

import asyncio
import json
import shutil
import struct
import sys
import zlib
from base64 import b64decode, b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.console_store import STORY_KEY, announce_workers, fill_store
from tests.support.serve_process import run_serve_process

FOLDER = Path(__file__).parent / "console"
WIDTH, HEIGHT = 1200, 760
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PAGES = {
    "overview": "/", "workers": "/workers", "jobs": "/jobs", "failed": "/jobs?state=failed", "lost": "/lost", "keys": "/keys",
    "types": "/types", "callbacks": "/callbacks", "quotas": "/quotas",
    "reservations": "/reservations", "sequences": "/sequences", "schedules": "/schedules", "api-keys": "/api-keys",
    "key": f"/keys/order.charge/{STORY_KEY}",
}  # fmt: skip

REDUCE_COLORS = """async (source) => {
  const image = new Image();
  image.src = source;
  await image.decode();
  const { width, height } = image;
  const canvas = new OffscreenCanvas(width, height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const { data } = canvas.getImageData(0, 0, width, height);
  const counts = new Map();
  const colorAt = (at) => (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
  const pixels = Array.from({ length: width * height }, (_, number) => colorAt(number * 4));
  for (const color of pixels) counts.set(color, (counts.get(color) ?? 0) + 1);
  const channels = (color) => [color >> 16, (color >> 8) & 255, color & 255];
  const distance = (one, other) => channels(one).reduce((sum, value, at) => sum + (value - channels(other)[at]) ** 2, 0);
  const nearest = new Map([...counts.keys()].map((color) => [color, [Infinity, 0]])); // distance and index
  const palette = [];
  const add = (color) => {
    for (const [one, found] of nearest) {
      const far = distance(one, color);
      if (far < found[0]) nearest.set(one, [far, palette.length]);
    }
    palette.push(color);
  };
  [...counts].sort((one, other) => other[1] - one[1]).slice(0, 160).forEach(([color]) => add(color));
  while (palette.length < 256) add([...nearest].reduce((one, other) => (other[1][0] > one[1][0] ? other : one))[0]);
  return { width, height, palette, indexes: btoa(pixels.map((color) => String.fromCharCode(nearest.get(color)[1])).join("")) };
}"""


def main() -> None:
    if CHROMIUM is None:
        sys.exit("Chromium is not installed; install the package chromium")
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/onejob.db"
        asyncio.run(fill_store(url))
        asyncio.run(announce_workers(url))
        with run_serve_process(Path(folder), "--engine", url) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            photograph(browser, server.base_url)
            browser.close()


def photograph(browser: Browser, base_url: str) -> None:
    newest = {
        state: load(f"{base_url}/api/jobs?state={state}&limit=1")["jobs"][0]["id"] for state in ("running", "failed")
    }
    pages = PAGES | {"job": f"/jobs/{newest['running']}", "job-failed": f"/jobs/{newest['failed']}"}
    wide = {"width": WIDTH, "height": HEIGHT}
    take(browser, f"{base_url}/", "overview-dark", size=wide, dark=True)
    for name, path in pages.items():
        take(browser, base_url + path, name, size=wide)
    take(
        browser, f"{base_url}/keys/order.charge/{STORY_KEY}", "phone", size={"width": 390, "height": HEIGHT}, dark=True
    )


def take(browser: Browser, address: str, name: str, *, size: dict[str, int], dark: bool = False) -> None:
    context = browser.new_context(viewport=size, color_scheme="dark" if dark else "light")  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("main h1")
    page.wait_for_timeout(300)
    picture = page.screenshot()
    page.goto("about:blank")  # which has no policy against data URLs
    (FOLDER / f"{name}.png").write_bytes(shrink(page, picture))
    context.close()


def shrink(page: Page, picture: bytes) -> bytes:
    """The picture with 256 colours, the most frequent and the most different: a third of the size, and no visible change."""
    found = page.evaluate(REDUCE_COLORS, f"data:image/png;base64,{b64encode(picture).decode()}")
    width, height, indexes = found["width"], found["height"], b64decode(found["indexes"])
    rows = b"".join(b"\0" + indexes[row * width : (row + 1) * width] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    palette = b"".join(color.to_bytes(3, "big") for color in found["palette"])
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return picture[:8] + b"".join(chunk(*one) for one in chunks)


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def load(address: str) -> dict[str, list[dict[str, str]]]:
    with urlopen(address) as response:
        found: dict[str, list[dict[str, str]]] = json.load(response)
        return found


if __name__ == "__main__":
    main()
