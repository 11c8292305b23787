"""The English of the documentation, the messages and the comments follows docs/style.md."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
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
    r"\bthe other way r?a?round\b": "say both directions",
    r"\bin the place of\b": "instead of; replaces",
    r"\bwhat (came|comes|becomes|became) of\b": "the result, the state",
    r"\bnothing but\b": "only",
    r"\b(can ?not|can|to) be had\b": "is (not) available",
    r"\b(one|a) (record|thread|message|batch|row|JSON object|process) an? (?!time)[a-z]+\b": "one … per …",
    r"\bwhatever (else|comes)\b": "anything else, any other …",
    r"\balso if\b": "even if",
    r"[,:] also (with|after|without|when)\b": "even with, even after …",
    r"\bsomebody\b": "name the person or program; a client, a caller, anyone",
    r"\bas from\b": "as … prints, sends or returns it",
    r"\bgo(es)? on\b": "continue",
    r"\b(was|were) begun\b": "was started, was created",
    r"; there are \{": "say what they are: '; the brokers are 1, 2'",
    r"\bname another (cluster|folder|registry)\b": "choose another …",
    r"\b(is|are|be) there already\b": "already exists",
    r"\b0 takes\b": "0 chooses, 0 for",
    r"\b(it|a clock) right(?=[;.]| \|)": "correct it",
    r"(?<!\bthere )\b(is|are) no (?!longer|more\b|other|such|need|reason|less|good|\{)[a-z]+": "is not a …",
    r"\b(bytes|continues?|continuing|missing|stop|stopping) behind\b": "after",
    r"\b(until|with|most|of) so many\b": "this many, that many",
    r"(?<!\bin )\ba text\b": "a string; text",
    r"[:;#] who [a-z]+ [a-z]+ (can|gets|sees|ends|loses|waits|comes)\b": "name the client, the writer or the reader",
}


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


@pytest.mark.parametrize("folder", ["src/ottla", "tests"])
def test_messages_and_comments_are_in_plain_english(folder: str) -> None:
    exceptions = {ROOT / "src" / "ottla" / "errors.py", Path(__file__)}  # Kafka's own words, and the rules themselves
    found = [
        f"{path.relative_to(ROOT)}: {each}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path not in exceptions
        for each in findings(path.read_text())
    ]
    assert not found, "\n".join(found)


RIDDLES = re.compile(
    r"_told(?!_apart)|anew|somebody|whoever|whatever|^test_wh(at|o)_|^test_nothing$|_is_said|_one_row_a_"
)


def test_names_of_tests_are_statements() -> None:
    """Rule 7: a name states what is true, so a new reader understands the report of a failure."""
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"def (test_\w+)", path.read_text())
        if RIDDLES.search(name)
    ]
    assert not found, "\n".join(found)


def test_scripts_and_examples_are_in_plain_english() -> None:
    folders = ("configs", "examples", "helpers", "image", "scripts")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    found = [
        f"{path.relative_to(ROOT)}: {each}"
        for path in [ROOT / "Dockerfile", ROOT / "action.yml", ROOT / "pyproject.toml", *paths]
        if path.suffix
        in ("", ".py", ".sh", ".yaml", ".yml", ".toml", ".properties", ".go", ".rs", ".java", ".js", ".mjs")
        and not {"target", "node_modules", "__pycache__"} & set(path.parts)
        for each in findings(path.read_text(errors="replace"))
    ]
    assert not found, "\n".join(found)


def test_every_rule_finds_something() -> None:
    bad = """The client is told. It tells of it. Made anew for who asks. Whoever it is. Hence as good as new, for good
measure. Works as ever. Tries in vain. Says so in as many words. Takes it that. All but for one, all else, seen of late.
Its log went another way. Or the other way round, in the place of it. Report what became of it: nothing but a line that
can be had, a JSON object a line. Whatever else, also if somebody waits, also after a crash, as from a file.
Who lags goes. It goes on as it was begun; there are {names}; name another folder. It is there already. Port 0 takes a
free one. 0 sets it right. This is no batch, with bytes behind it, until so many bytes of a text; who was reading can
wait."""
    found = "\n".join([*findings(bad), *findings("Who lags goes.")])
    assert [advice for advice in BANNED.values() if advice not in found] == []
    assert len(findings("Who lags goes.")) == len(findings("Gone. Who lags goes.")) == 1
