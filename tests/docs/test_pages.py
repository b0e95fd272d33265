"""Pages of the docs hold together: links lead somewhere, and the files, keys and tests that they name exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from rlctl.adapters.engine.meanings import canonical_paths, spellings
from rlctl.config import Config
from rlctl.config.inspect import option_patterns, walk
from rlctl.planning.support import Status, status_of
from rlctl.runtime.reporting.metrics import METRICS
from rlctl.translation.translate import dialects
from tests.common.test_words import found

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GENERATED = {"config.md"}
MADE = (*(ROOT / "docs" / "reference" / "config").glob("*.md"),)
WRITTEN = [page for page in PAGES if page.name not in GENERATED and page not in MADE]
ABOUT_FRAMEWORKS = [
    page for page in WRITTEN if page.parent.name in ("migrate", "getting-started", "zh") or page.name == "concepts.md"
]
"""Pages that name keys of verl, Trinity-RFT and ROLL, too."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HOSTED = re.compile(r"https://(?:github\.com/rlctl/rlctl/blob|raw\.githubusercontent\.com/rlctl/rlctl)/main/(.+)")
"""Links of pages that are also read elsewhere, as README on a package index: files of this repository."""
SOURCE = re.compile(r"`((?:rlctl|tests|docs|presets|benchmarks)/[\w./-]+)(?:::(\w+))?`")
NO_KEYS = {"reward_model.ground_truth", "trainer.val_befor_train"}
"""A column of verl's data, and the typo that pages show."""
FILES = (".py", ".yaml", ".md", ".json", ".jsonl", ".parquet", ".sh", ".txt")
SECTIONS = {key.pattern.split(".")[0] for key in walk(Config)}
ABOUT_DIALECTS = (
    "concepts.md",
    "index.md",
    "CONTRIBUTING.md",
    "add-a-dialect.md",
    "add-a-key.md",
    "add-a-release.md",
)
KEY = re.compile(r"`([a-z_]+(?:\.[a-z_]+|\[\]|<[a-z_0-9]+>)+)`")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors that headings get on GitHub."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in LINK.findall(text):
        hosted = HOSTED.fullmatch(target)
        if target.startswith(("http://", "https://")) and hosted is None:
            continue
        path, _, anchor = (hosted[1] if hosted else target).partition("#")
        file = ((ROOT if hosted else page.parent) / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_files_and_tests_that_are_named_exist(page: Path) -> None:
    for path, test in SOURCE.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), path
        if test:
            assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"


@pytest.mark.parametrize("page", [page for page in WRITTEN if page not in ABOUT_FRAMEWORKS], ids=name)
def test_keys_that_are_named_are_in_the_schema(page: Path) -> None:
    known = {key.pattern for key in walk(Config)}
    below = {cut for pattern in known for cut in re.split(r"(?<=\w)(?=[.\[<{])", pattern)}
    assert below
    for key in KEY.findall(page.read_text(encoding="utf-8")):
        if key.split(".")[0].split("[")[0] not in SECTIONS or key.endswith(FILES):
            continue
        plain = re.sub(r"<[^>]*>|\[\]", "", key)
        fits = any(re.sub(r"<[^>]*>|\[\]|\{\}", "", pattern) == plain for pattern in known)
        assert fits, f"{key} is no key"


@pytest.mark.parametrize("page", ABOUT_FRAMEWORKS, ids=name)
def test_keys_of_frameworks_that_are_named_exist(page: Path) -> None:
    """In the canonical config or in a framework, where a name may lack its first parts: ``rollout.n``."""
    for text in re.findall(
        r"`([^`]+)`", re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    ):
        key = re.split(r"[=:]", text)[0]
        if re.fullmatch(r"[a-z_]+(?:\.[a-z_0-9]+|\[\])+", key) and not key.endswith(FILES) and key not in NO_KEYS:
            plain = key.replace("[]", "")
            assert f".{plain}" in _key_endings(), f"{key} is no key of any framework"


@cache
def _key_endings() -> frozenset[str]:
    """Every key without its indices, and what is left of it without its first parts; each after a dot."""
    texts = [file.read_text() for file in (ROOT / "rlctl" / "adapters" / "schemas").rglob("*.tsv")]
    keys = {line.split("\t")[0] for text in texts for line in text.splitlines() if line and not line.startswith("#")}
    keys |= {key.name for path in canonical_paths() for spelling in spellings(path) for key in spelling.keys}
    keys |= {key.pattern for key in walk(Config)}
    plain = {re.sub(r"\.\*\*?|\[\]|<[^>]*>|\{\}", "", key) for key in keys}
    return frozenset(
        "." + ".".join(parts[at:]) for key in plain for parts in [key.split(".")] for at in range(len(parts))
    )


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_a_page_starts_with_what_it_covers(page: Path) -> None:
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert lines[0].startswith("# "), "a title"
    assert not lines[1].startswith(("#", "```", "|")), "then a sentence"


def test_what_installs_rlctl_works_before_its_first_release() -> None:
    """rlctl is on no package index: a page names the repository, or links to the extras."""
    pages = {name(page): page.read_text(encoding="utf-8") for page in WRITTEN if page.name != "CHANGELOG.md"}
    assert not {
        shown: text
        for shown, text in pages.items()
        if re.search(r"install '?rlctl(\[[\w,]+\])?'?(?! @)\s*$", text, re.M)
    }
    assert not [shown for shown, text in pages.items() if re.search(r"install 'rlctl\[[\w,]+\]'", text)]


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "howto").glob("*.md")), ids=name)
def test_a_how_to_is_short(page: Path) -> None:
    """At most 900 words outside its examples, so that it is about one task."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"\S*\w\S*", text)) <= 900


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.name != "CHANGELOG.md"], ids=name)
def test_a_page_has_no_banned_phrase(page: Path) -> None:
    """Those of messages and help, outside examples; contributors read of dialects."""
    text = re.sub(
        r"^```.*?^```$|`[^`\n]*`|<!--.*?-->", " ", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    if page.name in ABOUT_DIALECTS:
        text = re.sub(r"\bdialects?\b", " ", text, flags=re.IGNORECASE)
    assert not found(iter([(page.name, text)]))


def test_the_dialects_that_are_named_are_those_that_are_read() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([\d., ]*) \| (yes|no)", (ROOT / "docs" / "convert.md").read_text(encoding="utf-8"), re.M
    )
    named = {dialect: tuple(versions.split(", ")) for dialect, versions, read in rows if read == "yes"}
    assert named == {known.name: known.versions for known in dialects()}


@pytest.mark.parametrize("page", ["docs/reference/capabilities.md", "docs/zh/capabilities.md"])
def test_the_capabilities_say_what_the_runtime_does_with_each_key(page: str) -> None:
    """What it says runs is honoured, and what it says is refused is refused."""
    known = {key.pattern for key in walk(Config)} | set(option_patterns(Config))
    said = {"runs": Status.HONOURED, "可运行": Status.HONOURED, "translated": Status.REFUSED, "可转换": Status.REFUSED}
    rows = re.findall(
        r"^\| .* \| (runs|translated|可运行|可转换)[^|]* \| (.*) \|$", (ROOT / page).read_text(encoding="utf-8"), re.M
    )
    assert len(rows) > 10
    for today, keys in rows:
        for key in re.findall(r"`([^`]+)`", keys):
            covered = [pattern for pattern in known if pattern == key or pattern.startswith((f"{key}.", f"{key}<"))]
            statuses = {status_of(pattern).status for pattern in covered if not _is_section(pattern)}
            assert said[today] in statuses, key
            assert said[today] is not Status.REFUSED or statuses == {Status.REFUSED}, key


def test_the_metrics_that_are_explained_are_logged() -> None:
    named = set(
        re.findall(r"`([a-z]+/[\w<>/@]+)`", (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8"))
    )
    assert len(named) > 15
    templates = {"evaluation/SOURCE/NAME", "reward/NAME", "time/wait_for_rollout", "time/rollout_idle"}
    others = {"policy/accuracy", "policy/margin", "rollout/abandoned_prompts"}  # of some runs only, and in no table
    assert named - set(METRICS) == templates | others


def _is_section(pattern: str) -> bool:
    """Whether the support table has rows below it only."""
    try:
        return not status_of(pattern)
    except KeyError:
        return True


def test_the_two_readmes_show_the_same() -> None:
    """The Chinese README is written on its own; what it shows to type and to read is the same."""
    english, chinese = ((ROOT / file).read_text(encoding="utf-8") for file in ("README.md", "README.zh.md"))
    fence = re.compile(r"^```\w+\n.*?^```$", re.MULTILINE | re.DOTALL)
    typed, other = ([re.sub(r" {2,}# .*", "", block) for block in fence.findall(text)] for text in (english, chinese))
    assert typed == other
    assert english.count("\n## ") == chinese.count("\n## ")
