"""The English of the documentation, the messages and the comments follows docs/style.md."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]

BANNED = {
    r"\b(is|are|was|were|be|been) told\b(?! apart)": "say who sends, reports or shows what",
    r"\btell(s|ing)? of\b": "report, show or name it",
    r"\banew\b": "again; rebuild, rewrite, reopen",
    r"\bwho asks\b": "the client, the caller",
    r"\bwho(so)?ever\b": "name the person or program, or write 'anyone who'",
    r"\b(wherein|whereof|thereof|therein|whence|hence|thus|lest|upon)\b": "the common word",
    r"\bas good as\b": "almost",
    r"\bfor good measure\b": "leave it out",
    r"\bas ever\b": "as before, as usual",
    r"\bin vain\b": "without success",
    r"\bin as many words\b": "explicitly",
    r"\b(takes|took|take|have|has) it that\b": "assumes",
    r"(?<=[.;] )who [a-z]+s\b": "'who' needs a noun before it: 'a client that …', 'if you …'",
    r"^who [a-z]+s\b": "'who' needs a noun before it: 'a client that …', 'if you …'",
    r"\bbut for\b": "except for",
    r"(?<!\.)\ball else\b": "everything else",
    r"\bof late\b": "recent, lately",
    r"\b(goes|went|go) another way\b": "differs, diverged",
}

# Packages that stay clean, and how many findings all others may have together. The set grows, the number shrinks.
CLEAN = {
    "bench", "cli", "client", "config", "console", "http", "log", "metadata", "records", "registry", "replication",
    "testing", "wire",
}  # fmt: skip
LEFT = 91


def findings(text: str) -> list[str]:
    """The banned phrases in a text. A phrase may run over the end of a line."""
    flat = re.sub(r"\s*\n\s*(#:? )?", " ", text)
    return [
        f"{flat[max(0, found.start() - 30) : found.end() + 30]!r}: {advice}"
        for pattern, advice in BANNED.items()
        for found in re.finditer(pattern, flat, flags=re.IGNORECASE)
    ]


def shown(page: Path) -> str:
    """The text of a page without the examples of bad style."""
    text = page.read_text()
    return re.sub(r"^\| .*$", "", text, flags=re.M) if page == ROOT / "docs" / "style.md" else text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_in_plain_english(page: Path) -> None:
    assert findings(shown(page)) == []


def test_messages_and_comments_are_in_plain_english() -> None:
    package = ROOT / "src" / "ottla"
    clean, left = [], []
    for path in sorted(package.rglob("*.py")):
        if path != package / "errors.py":  # those are Kafka's own words
            inside = path.relative_to(package)
            found = [f"{inside}: {each}" for each in findings(path.read_text())]
            (clean if inside.parts[0] in CLEAN or len(inside.parts) == 1 else left).extend(found)
    assert not clean, "\n".join(clean)
    assert len(left) <= LEFT, "\n".join(left)


def test_every_rule_finds_something() -> None:
    bad = """The client is told. It tells of it. Made anew for who asks. Whoever it is. Hence as good as new, for good
measure. Works as ever. Tries in vain. Says so in as many words. Takes it that. All but for one, all else, seen of late.
Its log went another way. Who lags goes."""
    found = "\n".join([*findings(bad), *findings("Who lags goes.")])
    assert [advice for advice in BANNED.values() if advice not in found] == []
    assert len(findings("Who lags goes.")) == len(findings("Gone. Who lags goes.")) == 1
