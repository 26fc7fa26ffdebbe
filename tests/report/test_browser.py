"""Reports opened in a real Chromium: no error, no request, every plot drawn, the copy exact.

Screenshots are kept in ``$COLLBENCH_ARTEFACTS`` where that is set. Under
``COLLBENCH_EXPECT_BROWSER=1`` a missing browser is a failure instead of a skip.
"""

import base64
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collbench.job import PairTimes, Run
from collbench.report import write

pytestmark = pytest.mark.slow

Make = Callable[..., Path]
RESULTS = Path(__file__).parent.parent.parent / "results"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1200,900",
]
MARKS = ".points path, path.js-line, .barlayer .point path, .heatmaplayer image"
TICKS = ".xtick text, .xtick2 text"
DRAWN = """
const [marked, ticked] = arguments;
return [...document.querySelectorAll('.plot')].map(plot => {
  const marks = plot.querySelectorAll(marked);
  const seen = [...marks].filter(mark => {
    const box = mark.getBoundingClientRect();
    return box.width > 0 && box.height >= 0 && box.width + box.height > 1;
  });
  return [plot.dataset.figure, seen.length, plot.querySelectorAll(ticked).length];
});
"""


def missing(what: str) -> None:
    if os.environ.get("COLLBENCH_EXPECT_BROWSER") == "1":
        pytest.fail(f"{what}, and COLLBENCH_EXPECT_BROWSER=1")
    pytest.skip(f"{what}: apt-get install chromium chromium-driver; pip install '.[browser]'")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        missing("no chromium with its driver")
    try:
        from selenium import webdriver
    except ImportError:
        missing("no selenium")
    options = webdriver.ChromeOptions()
    for flag in [*FLAGS, f"--user-data-dir={tmp_path / 'chromium'}"]:
        options.add_argument(flag)
    assert chromium
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    opened = webdriver.Chrome(options=options, service=service)
    yield opened
    opened.quit()


def emulate(browser: Any, *, dark: bool, narrow: bool) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = (390, 844) if narrow else (1200, 900)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": narrow},
    )


def open_report(browser: Any, path: Path, *, dark: bool = False, narrow: bool = False) -> None:
    emulate(browser, dark=dark, narrow=narrow)
    browser.get(path.as_uri())
    deadline = time.monotonic() + 20
    while browser.execute_script("return document.documentElement.dataset.ready") != "yes":
        assert time.monotonic() < deadline, "the page never became ready"
        time.sleep(0.05)
    time.sleep(0.3)


def screenshot(browser: Any, name: str) -> None:
    folder = os.environ.get("COLLBENCH_ARTEFACTS")
    if not folder:
        return
    width = browser.execute_script("return document.documentElement.clientWidth")
    height = browser.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = browser.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


def requests(browser: Any) -> list[str]:
    """Addresses that the report asked for so far, but the page itself and data in it."""
    found = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        sent = message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated")
        params = message["params"]
        if sent and params.get("documentURL", "file:").startswith("file:"):
            found.append(params.get("request", params)["url"])
    assert any(url.startswith("file:") for url in found), "the log does not see requests"
    return [url for url in found if not url.startswith(("file:", "data:", "blob:"))]


def check(browser: Any, plots: int) -> None:
    """No console error, no request, and every plot has marks and axis text."""
    assert [e for e in browser.get_log("browser") if e["level"] in ("SEVERE", "WARNING")] == []
    assert requests(browser) == []
    drawn = browser.execute_script(DRAWN, MARKS, TICKS)
    assert len(drawn) == plots
    assert [name for name, marks, ticks in drawn if not marks or not ticks] == []
    overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(overflow) <= 0, "the page is wider than the window"


def with_pairs(runs: list[Run]) -> list[Run]:
    pairs = tuple(
        PairTimes(src=a, dst=b, latency_us=3.1 + 4 * (a // 4 != b // 4), bandwidth_gbs=24.0 - a)
        for a in range(8)
        for b in range(8)
        if a != b
    )
    return [*runs, Run(job_id="pairs", settings={}, outcome="ok", pairs=pairs)]


@pytest.mark.parametrize(("dark", "narrow"), [(False, False), (True, False), (True, True)])
def test_a_profile_opens_without_error_or_request(
    browser: Any, make_profile: Make, tmp_path: Path, dark: bool, narrow: bool
) -> None:
    out = tmp_path / "report.html"
    write([make_profile()], out)
    open_report(browser, out, dark=dark, narrow=narrow)
    screenshot(browser, f"profile-{'dark' if dark else 'light'}-{'narrow' if narrow else 'wide'}")
    check(browser, plots=9)


def test_printed_from_a_dark_screen_the_page_is_light(
    browser: Any, make_profile: Make, tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    write([make_profile()], out)
    open_report(browser, out, dark=True)
    ink = "return getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    dark = browser.execute_script(ink)
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    paper = browser.execute_script(ink)
    opened = "return [...document.querySelectorAll('details')].every(element => element.open)"
    assert browser.execute_script(opened), "folded tables are printed too"
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(ink) == dark
    assert (paper, dark) == ("rgb(27, 31, 36)", "rgb(230, 234, 238)")


def test_a_record_with_pairs_draws_its_matrices(
    browser: Any, make_record: Make, confirmed: list[Run], tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    write([make_record(runs=with_pairs(confirmed))], out)
    open_report(browser, out)
    screenshot(browser, "record")
    check(browser, plots=10)


def test_a_study_of_500_trials_opens(browser: Any, make_study: Make, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write([make_study(500)], out)
    open_report(browser, out, dark=True)
    screenshot(browser, "study-500")
    check(browser, plots=4)
    marks = {name: count for name, count, _ in browser.execute_script(DRAWN, MARKS, TICKS)}
    assert marks["search-history"] >= 500


def test_a_history_and_a_comparison_open(
    browser: Any, make_profile: Make, make_record: Make, tmp_path: Path
) -> None:
    first = make_profile("2026-01-02T00:00:00Z")
    make_profile("2026-02-02T00:00:00Z", settings={"NCCL_MIN_NCHANNELS": "8"})
    out = tmp_path / "report.html"
    write([first.parent], out)
    open_report(browser, out, narrow=True)
    screenshot(browser, "history-narrow")
    check(browser, plots=10)
    write([first, make_record()], out)
    open_report(browser, out)
    screenshot(browser, "comparison")
    check(browser, plots=8)


def test_the_copy_button_copies_the_env_file_exactly(
    browser: Any, make_profile: Make, tmp_path: Path
) -> None:
    profile, out = make_profile(), tmp_path / "report.html"
    write([profile], out)
    open_report(browser, out)
    permissions = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.execute_cdp_cmd("Browser.grantPermissions", permissions)
    browser.find_element("css selector", "[data-copy='0']").click()
    deadline = time.monotonic() + 10
    while not (said := browser.find_element("css selector", ".copied").text):
        assert time.monotonic() < deadline
    copied = browser.execute_async_script(
        "const done = arguments[0]; navigator.clipboard.readText().then(done, e => done('' + e))"
    )
    assert said == "Copied"
    assert copied == (profile / "profile.env").read_text()


def test_without_the_clipboard_interface_copying_still_works(
    browser: Any, make_profile: Make, tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    write([make_profile()], out)
    open_report(browser, out)
    browser.execute_script(
        "navigator.clipboard.writeText = () => Promise.reject(new Error('refused'));"
        "document.addEventListener('copy', () => { window.copied = String(document.getSelection()"
        " || document.activeElement.value); });"
    )
    browser.find_element("css selector", "[data-copy='0']").click()
    deadline = time.monotonic() + 10
    while browser.find_element("css selector", ".copied").text != "Copied":
        assert time.monotonic() < deadline
    assert "NCCL_MIN_NCHANNELS=16" in browser.execute_script("return window.copied")


def test_a_hostile_record_runs_nothing(browser: Any, make_record: Make, tmp_path: Path) -> None:
    evil = "</script><img src=http://127.0.0.1:9/x onerror=\"document.title='owned'\">"
    plain = json.loads(make_record().read_text())
    plain["machine"]["host"] = evil
    plain["machine"]["gpus"][0]["name"] = evil
    plain["settings"] = {"NCCL_ALGO": evil}
    for run in plain["launches"]:
        if run["settings"]:
            run["settings"] = {"NCCL_ALGO": evil}
    path, out = tmp_path / "evil.json", tmp_path / "report.html"
    path.write_text(json.dumps(plain))
    write([path], out, title="safe")
    open_report(browser, out)
    assert browser.title == "safe"
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert evil in browser.find_element("css selector", "#machine").text
    check(browser, plots=8)


def committed() -> list[Path]:
    """Profiles, kept defaults and benches of real runs that are part of this repository."""
    profiles = {path.parent for path in RESULTS.glob("*/*/profile.json") if not path.is_symlink()}
    return sorted([*profiles, *RESULTS.glob("*/studies/*.json"), *RESULTS.glob("*/bench-*.json")])


@pytest.mark.parametrize("path", committed(), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_committed_results_open(browser: Any, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write([path], out)
    open_report(browser, out)
    screenshot(browser, f"result-{path.parent.name}-{path.name}")
    check(browser, plots=browser.execute_script("return document.querySelectorAll('.plot').length"))
    open_report(browser, out, dark=True, narrow=True)
    screenshot(browser, f"result-{path.parent.name}-{path.name}-dark-narrow")
