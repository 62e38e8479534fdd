"""Files, modules and make targets that the documents name exist, and so do equations of the mathematics that the code cites."""

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MATHEMATICS = sorted((ROOT / "docs" / "mathematics").glob("*.md"))
DOCUMENTS = [*map(ROOT.joinpath, ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FORMAT = re.compile(r"optim/\w+/\d+")
"""Names of file formats look like paths: `optim/admission/1`."""


def missing_in(text: str, folder: Path) -> list[str]:
    """Return the paths, links, modules and targets that a document names and that aren't there."""
    paths = re.findall(r"`((?:optim|tests|docs|notebooks)/[\w./-]*)`", text)
    missing = [path for path in paths if not FORMAT.fullmatch(path) and not (ROOT / path).exists()]
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    missing += [link for link in links if not (folder / link).exists()]
    modules = re.findall(r"^(?:from|import) (optim[\w.]*)", text, flags=re.MULTILINE)
    missing += [name for name in modules if find_spec(name) is None]
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    return missing + [f"make {name}" for name in re.findall(r"(?:`|^)make (\w+)", text, re.M) if name not in targets]


def equations(page: Path) -> set[str]:
    """Return the numbers of a page's equations: A.14 to A.18 of (A.14-A.18)."""
    found = re.findall(r"([A-Z])\.(\d+)(?:-[A-Z]\.(\d+))?", page.read_text())
    return {f"{letter}.{n}" for letter, low, high in found for n in range(int(low), int(high or low) + 1)}


def defined_twice(text: str) -> list[str]:
    """Return the numbers that a page gives to more than one equation: as a tag, or in backquotes after a statement."""
    numbers = re.findall(r"\\tag\{([^}]*)\}|`\(([A-Z]\.\d+\w*)\)`", text)
    return [number for number, count in Counter(tag or inline for tag, inline in numbers).items() if count > 1]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_a_document_names_exists(document):
    assert missing_in(document.read_text(), document.parent) == []


def test_a_missing_file_link_module_and_target_are_found():
    text = "`optim/none.py` [x](none.md)\nfrom optim.none import x\n`make none`, `optim/admission/1`, `make test`"
    assert missing_in(text, ROOT) == ["optim/none.py", "none.md", "optim.none", "make none"]


def test_references_to_the_mathematics_can_be_opened():
    numbers = {page.name: equations(page) for page in MATHEMATICS}
    wrong, count = [], 0
    for path in sorted((ROOT / "optim").rglob("*.py")):
        for name, where in re.findall(
            r"docs/mathematics/([\w.]+\.md)((?:[\s,]+(?:\([A-Z]\.\d+\)|to|and))*)", path.read_text()
        ):
            count += 1
            known = numbers.get(name, set())
            if name not in numbers or not set(re.findall(r"[A-Z]\.\d+", where)) <= known:
                wrong.append(f"{path.relative_to(ROOT)}: {name}{where}")
    assert count > 0
    assert wrong == []


@pytest.mark.parametrize("page", MATHEMATICS, ids=lambda path: path.name)
def test_every_equation_has_its_own_number(page):
    assert defined_twice(page.read_text()) == []


def test_a_number_of_two_equations_is_found():
    assert defined_twice(r"$$x = 1 \tag{B.1}$$ `y = 2` `(B.2)` by (B.1); `z = 3` `(B.2)`") == ["B.2"]
