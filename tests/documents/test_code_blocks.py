"""The commands and code of the README and the site work as shown."""

import re
import shlex
from collections.abc import Iterator

import pytest
from typer.core import TyperGroup

from optim.cli.commands import COMMANDS, load
from tests.support.code_blocks import (
    ROOT,
    RUN,
    Block,
    PageRun,
    blocks_of,
    bring_traces,
    due,
    fits,
    pages,
    run_all,
    run_page,
    shown_after,
)
from tests.support.sample_files import SAMPLES

PAGES = {page.relative_to(ROOT).as_posix(): blocks_of(page) for page in pages()}
SHOWN = ("json", "text", "toml")
"""Languages of blocks that show something and aren't run."""

DIRECTIVE = "{"


def chosen(page: str, *when: str) -> list[Block]:
    """Return the blocks of a page that are run then."""
    return due(PAGES[page], *when)


def name_of(block: Block) -> str:
    return f"{block.page.relative_to(ROOT)}:{block.line}"


TRACED = [block for blocks in PAGES.values() for block in blocks if block.when == "traces"]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page):
    unknown = [
        f"line {block.line}: {block.language!r}"
        for block in PAGES[page]
        if block.language not in (*RUN, *SHOWN) and not block.language.startswith(DIRECTIVE)
    ]
    assert unknown == []


def typed(block: Block) -> Iterator[list[str]]:
    """Yield the words of a block's commands of optim, without pipes and redirections."""
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for sign in ("|", ">", "2>", "&&", "&"):
            words = words[: words.index(sign)] if sign in words else words
        if words[:1] == ["optim"]:
            yield words[1:]


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.language == "bash" for block in PAGES[page])])
def test_every_command_can_be_typed(page):
    for block in PAGES[page]:
        for words in typed(block) if block.language == "bash" else ():
            if not words[0].startswith("-"):
                assert words[0] in COMMANDS, words
                command, rest = load(words[0]), words[1:]
                while isinstance(command, TyperGroup):
                    command, rest = command.commands[rest[0]], rest[1:]
                with command.make_context(words[0], rest) as context:
                    assert context.args == [], words


@pytest.mark.parametrize("page", PAGES)
def test_what_needs_a_public_trace_says_so(page):
    given = {*SAMPLES, *(block.file for block in PAGES[page])}
    needy = [
        f"line {block.line}: {name}"
        for block in due(PAGES[page], "quick", "prove")
        for name in re.findall(r"[\w.-]+\.(?:csv|json)\.gz", block.code)
        if name not in given
    ]
    assert needy == []


@pytest.mark.parametrize("page", [page for page in PAGES if chosen(page, "quick")])
def test_quick_blocks_run(page, tmp_path):
    run = PageRun(tmp_path)
    run.give(PAGES[page])
    run_all(run, PAGES[page], "quick")


@pytest.mark.prove
@pytest.mark.parametrize("page", [page for page in PAGES if chosen(page, "quick", "prove")])
def test_all_blocks_of_a_page_run_in_their_order(page, tmp_path):
    run_page(ROOT / page, tmp_path, "quick", "prove")


@pytest.mark.prove
@pytest.mark.trace
@pytest.mark.parametrize("block", TRACED, ids=name_of)
def test_blocks_on_public_traces_run(block, tmp_path):
    bring_traces(block, tmp_path)
    run, blocks = PageRun(tmp_path), blocks_of(block.page)
    run.give(blocks)
    wanted = shown_after(blocks, block)
    shown = run.run(block)
    assert wanted is None or fits(wanted, shown), shown


@pytest.mark.parametrize("page", PAGES)
def test_shown_output_follows_a_block_that_is_run(page):
    blocks = PAGES[page]
    lost = [
        f"line {block.line}"
        for place, block in enumerate(blocks)
        if block.is_output and blocks[place - 1] not in due(blocks[:place], "quick", "prove", "traces")
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("wanted", "shown", "is_same"),
    [
        ("gap  0.5\n", "gap 0.50001\n", True),
        ("gap 0.5\n", "gap 0.51\n", False),
        ("12 jobs", "13 jobs", False),
        ("(63.885, 'x')", "(63.88500001, 'x')", True),
        ("wall_s ...", "wall_s 3.2 of 7", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("", "a\n", False),
    ],
)
def test_shown_output_is_compared_by_words_and_decimals(wanted, shown, is_same):
    assert fits(wanted, shown) is is_same


def test_other_output_than_the_page_shows_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(2 + 2)\n```\n\n<!-- output -->\n```text\n5\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1: the page shows\n5\n\nit prints\n4"):
        run_all(PageRun(tmp_path), blocks_of(page), "prove")


def test_a_command_that_fails_and_a_wrong_comment_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- run: quick -->\n```bash\noptim instance describe none-such\n```\n")
    with pytest.raises(Exception, match="none-such"):
        PageRun(tmp_path).run(blocks_of(page)[0])
    page.write_text("<!-- run: perhaps -->\n```bash\ntrue\n```\n")
    with pytest.raises(ValueError, match="perhaps"):
        blocks_of(page)
    page.write_text("<!-- file: a.csv -->\n```csv\nx\n```\n\n```bash\ntest -s a.csv\nexit 7\n```\n")
    run, blocks = PageRun(tmp_path), blocks_of(page)
    run.give(blocks)
    with pytest.raises(AssertionError, match="exit code 7"):
        run.run(blocks[1])
