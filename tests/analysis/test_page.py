"""The page of ``--html``: one file that loads nothing, in which names are text, as a browser shows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from bench import profkit
from recording import Op, step_trace

TRACES = Path(__file__).parents[2] / "traces"
PAIR = TRACES / "dcp-combine/eager", TRACES / "dcp-combine/fused"
HOSTILE = "<script>alert(1)</script>&\"'>|`@x#1"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def page(file: Path, *command: str | Path) -> str:
    assert profkit(*command, "--html", file).returncode in (0, 1, 3)
    return file.read_text(encoding="utf-8")


class Elements(HTMLParser):
    """Counts elements, and collects what refers elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "action", "xlink:href")]


def elements(text: str) -> Elements:
    found = Elements()
    found.feed(text)
    return found


@pytest.fixture(scope="module")
def diff_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "diff.html"
    page(file, "diff", *PAIR)
    return file


def test_a_page_is_one_small_file_that_shows_each_launch_and_loads_nothing(diff_page: Path) -> None:
    text = diff_page.read_text(encoding="utf-8")
    found = elements(text)
    assert len(text) < 200_000
    assert found.references == []
    assert found.tags.count("script") == 1
    # Slots, waterfall, intervals, layers; and the patterns.
    assert found.tags.count("svg") == 5
    assert text.count('class="slot ') == 2 * 12
    assert text.count('class="slot absent"') == 8
    assert text.count('class="arrow"') == 8
    assert text.index("CONFIRMED: 8 launches") < text.index("Work preserved") < text.index('class="slot ')


def test_names_from_strangers_are_text(tmp_path: Path) -> None:
    layers = [[Op(HOSTILE), Op("b"), Op("c")], [Op("b"), Op("c")]]
    sides = [step_trace(tmp_path / f"{n}.sqlite", [layer] * 3, replays=4) for n, layer in enumerate(layers)]
    for command in (("diff", *sides), ("layers", sides[0])):
        found = elements(page(tmp_path / "page.html", *command))
        assert found.tags.count("script") == 1
        assert found.references == []


@pytest.mark.parametrize("make", ["trace", "directory", "missing folder"])
def test_a_page_replaces_nothing_that_is_no_page(tmp_path: Path, make: str) -> None:
    target = tmp_path / "here" if make != "missing folder" else tmp_path / "no" / "page.html"
    if make == "trace":
        target.write_text("SQLite format 3")
    if make == "directory":
        target.mkdir()
    done = profkit("layers", PAIR[0], "--html", target)
    assert (done.returncode, done.stdout) == (2, "")
    assert str(target) in done.stderr
    assert make != "trace" or target.read_text() == "SQLite format 3"


def test_layers_have_a_page_with_and_without_layers(tmp_path: Path) -> None:
    text = page(tmp_path / "layers.html", "layers", PAIR[0])
    assert text.count('class="slot floor"') == 8
    assert "Where the step&#39;s time goes" in text
    flat = step_trace(tmp_path / "flat.sqlite", ["a b c d"], layer_range="part {i}", replays=3)
    assert "No layers can be told" in page(tmp_path / "flat.html", "layers", flat)


BROWSER = """
const found = { errors: [], requests: performance.getEntriesByType("resource").length };
window.addEventListener("error", event => found.errors.push(String(event.message)));
const box = document.querySelector("input[type=search]");
box.value = "searchsorted"; box.dispatchEvent(new Event("input"));
found.shown = [...document.querySelectorAll("tbody tr:not(.total)")].filter(row => !row.hidden).length;
box.value = ""; box.dispatchEvent(new Event("input"));
const heads = [...document.querySelectorAll("th button")];
heads.findLast(head => head.textContent === "change").click();
found.first = document.querySelector("tbody tr td:nth-child(3)").textContent;
found.verdict = document.querySelector("h1").getBoundingClientRect().bottom < innerHeight;
found.wide = document.documentElement.scrollWidth <= innerWidth;
found.focus = heads[0].tabIndex;
const out = document.createElement("pre");
out.id = "found"; out.textContent = JSON.stringify(found); document.body.append(out);
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it_without_errors_or_requests(diff_page: Path, tmp_path: Path, width: int, dark: bool) -> None:
    text = diff_page.read_text(encoding="utf-8").replace("</body>", f"<script>{BROWSER}</script></body>")
    file = tmp_path / "probe.html"
    # A frame of that width: a window has a least one.
    file.write_text(text, encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<iframe id="f" src="probe.html" style="width:{width}px;height:800px"></iframe><script>'
        "f.onload = () => { document.body.append(f.contentDocument.getElementById('found')); };</script>",
        encoding="utf-8",
    )
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    command = [
        str(CHROMIUM),
        *flags.split(),
        "--disable-component-update",
        "--disable-sync",
        "--allow-file-access-from-files",
    ]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=4000", "--dump-dom"]
    command += ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run([*command, frame.as_uri()], capture_output=True, text=True, timeout=120)
    said = re.search(r'<pre id="found">(.*?)</pre>', done.stdout)
    assert said is not None, done.stderr[-2000:]
    found = json.loads(said[1])
    assert found == {
        "errors": [],
        "requests": 0,
        "shown": 1,
        "first": "pack_kernel",
        "verdict": True,
        "wide": True,
        "focus": 0,
    }
