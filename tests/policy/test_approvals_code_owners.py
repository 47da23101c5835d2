"""CODEOWNERS as GitHub and GitLab read it; gitignore's patterns are held against git itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from factories.repositories import Repository
from karat.policy.approvals.code_owners import ForgeName, is_owner, matches, parse


def owners(text: str, path: str, forge: ForgeName = "github") -> list[tuple[str, ...]]:
    return [section.owners for section in parse(text, forge).of(path)]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*", ["a", "a/b/c.py"], []),
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc"]),
        ("/build/logs/", ["build/logs/a", "build/logs/x/y"], ["build/logs", "x/build/logs/a"]),
        ("docs/*", ["docs/a.md"], ["docs/x/a.md", "x/docs/a.md"]),
        ("apps/", ["apps/a", "x/apps/y/b"], ["apps"]),
        ("/docs/", ["docs/a", "docs/x/a"], ["x/docs/a"]),
        ("**/logs", ["logs/a", "build/logs/a", "deep/er/logs"], ["logs.txt"]),
        ("docs/**", ["docs/a", "docs/x/y"], ["docs"]),
        ("a/**/b", ["a/b", "a/x/y/b"], ["a/xb"]),
        ("/tests/op?.py", ["tests/op1.py"], ["tests/op12.py", "tests/op/.py"]),
        ("my\\ dir/", ["my dir/a"], ["my\\ dir/a"]),
        ("src", ["src/a", "x/src", "src"], ["srcs"]),
        (".*", [".github/x", "a/.b"], ["a.b"]),
    ],
)
def test_patterns_of_github(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not matches(pattern, path, "github")] == []
    assert [path for path in no if matches(pattern, path, "github")] == []


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*", ["a", "a/b/.c"], []),
        ("*.rb", ["a.rb", "x/y/a.rb", ".rb"], ["a.rbx"]),
        ("/docs/", ["docs/a", "docs/x/.a"], ["docs", "x/docs/a"]),
        ("/docs/*", ["docs/a"], ["docs/x/a"]),
        ("/docs/**/*.md", ["docs/a.md", "docs/x/y/a.md"], ["x/docs/a.md"]),
        ("lib/", ["lib/a", "x/lib/y/a"], ["lib"]),
        ("README", ["README", "x/README"], ["README/x", "READMEs"]),
        ("\\#file.rb", ["#file.rb"], ["file.rb"]),
        ("path\\ with\\ spaces/", ["path with spaces/a"], ["path/a"]),
        ("/[ab]?.py", ["a1.py", "b2.py"], ["c1.py", "a/.py"]),
        ("/[!ab].py", ["c.py"], ["a.py", "/.py"]),
        ("/[z-a].py", [], ["a.py", "z.py"]),
        ("/a[b", ["a[b"], ["ab"]),
    ],
)
def test_patterns_of_gitlab(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not matches(pattern, path, "gitlab")] == []
    assert [path for path in no if matches(pattern, path, "gitlab")] == []


def test_the_last_match_wins_and_may_name_nobody() -> None:
    text = "* @all\n*.py @py @org/team  # comment @nobody\n/gen/ \n/x.py mail@example.org\n"
    assert owners(text, "a.md") == [("@all",)]
    assert owners(text, "a.py") == [("@py", "@org/team")]
    assert owners(text, "gen/a.py") == []
    assert owners(text, "x.py") == [("mail@example.org",)]


@pytest.mark.parametrize("line", ["!a.py @x", "[a]*.py @x", "\\#a.py @x", "a.py x", "a.py @@maintainer"])
def test_github_skips_what_it_cannot_read(line: str) -> None:
    assert parse(f"* @all\n{line}\n", "github").rules == parse("* @all\n", "github").rules


def test_gitlab_has_sections_defaults_numbers_and_optional_ones() -> None:
    text = """
    * @general  # @also-parsed
    [Docs][2] @docs
    docs/
    README.md @writer
    ^[Database] @db
    model/
    [docs]
    *.md
    """
    book = parse(text, "gitlab")
    both = book.of("docs/a")
    assert [(s.name, s.owners, s.count, s.optional) for s in both] == [
        ("", ("@general", "@also-parsed"), 1, False),
        ("Docs", ("@docs",), 2, False),
    ]
    assert [(s.name, s.optional) for s in book.of("model/a")] == [("", False), ("Database", True)]
    # The second heading of the section has no owners of its own.
    assert [s.name for s in book.of("README.md")] == [""]


def test_gitlab_excludes_for_the_whole_section() -> None:
    text = "* @all\n!*.rb\n/a.rb @again\n[Ruby]\n*.rb @ruby\n"
    assert owners(text, "a.rb", "gitlab") == [("@ruby",)]
    assert owners(text, "a.py", "gitlab") == [("@all",)]


def test_a_section_that_is_required_once_is_required() -> None:
    book = parse("^[A] @x\n*.a\n[a][3] @x\n*.b\n", "gitlab")
    assert [(s.count, s.optional) for s in book.of("q.a")] == [(3, False)]


@pytest.mark.parametrize(
    ("word", "good"),
    [
        ("@user", True),
        ("@org/team", True),
        ("@a/b/c", True),
        ("a@b.org", True),
        ("user", False),
        ("@", False),
        ("a@b", False),
        ("@@owner", True),
        ("@a b", False),
    ],
)
def test_owners_are_accounts_teams_and_addresses(word: str, good: bool) -> None:  # noqa: FBT001 - a table
    assert is_owner(word) is good


SEGMENT = st.sampled_from(["a", "b", "ab", "*", "a*", "*b", "?", "**", "a.py", "*.py"])
PATTERN = st.builds(
    lambda first, parts, last: first + "/".join(parts) + last,
    st.sampled_from(["", "/"]),
    st.lists(SEGMENT, min_size=1, max_size=3),
    st.sampled_from(["", "/"]),
)
PATH = st.lists(st.sampled_from(["a", "b", "ab", "aa", "a.py", "b.py"]), min_size=1, max_size=4).map("/".join)


@pytest.mark.slow
@settings(max_examples=60)
@given(PATTERN, st.lists(PATH, min_size=1, max_size=12, unique=True))
def test_githubs_patterns_are_gits(tmp_path_factory: pytest.TempPathFactory, pattern: str, paths: list[str]) -> None:
    last = pattern.strip("/").split("/")[-1]
    if (last == "*" and "/" in pattern.strip("/")) or "**" in pattern.strip("/").replace("**/", ""):
        return  # here GitHub goes its own way, and git's trailing ** is below
    assert [path for path in paths if matches(pattern, path, "github")] == _ignored(
        tmp_path_factory.getbasetemp() / "patterns", pattern, paths
    )


def _ignored(root: Path, pattern: str, paths: list[str]) -> list[str]:
    """What git's own matcher says."""
    if not (root / ".git").is_dir():
        Repository(root)
    (root / "ignored").write_text(pattern + "\n")
    words = ["git", "-c", f"core.excludesFile={root / 'ignored'}", "check-ignore", "--no-index", "--stdin"]
    done = subprocess.run(words, cwd=root, input="\n".join(paths), capture_output=True, text=True, check=False)
    found = set(done.stdout.splitlines())
    return [path for path in paths if path in found]


@given(PATH, PATH, st.sampled_from(["github", "gitlab"]))
def test_a_path_owns_itself_and_no_other_file(path: str, other: str, forge: ForgeName) -> None:
    book = parse(f"* @all\n/{path} @mine\n", forge)
    below = forge == "github" and other.startswith(f"{path}/")
    expected = "@mine" if other == path or below else "@all"
    assert [s.owners for s in book.of(other)] == [(expected,)]


@given(st.text(max_size=60), PATH, st.sampled_from(["github", "gitlab"]))
def test_whatever_stands_there_a_later_rule_for_everything_wins(text: str, path: str, forge: ForgeName) -> None:
    heading = "[karat-last]\n" if forge == "gitlab" else ""
    found = parse(f"{text}\n{heading}* @last\n", forge).of(path)
    assert ("@last",) in [section.owners for section in found]
