"""The campaign's files, before they are damaged: each is read by its commands."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from tests.fuzz.campaign import CODES, place
from tests.fuzz.corpus import FILE, all_kinds


@pytest.mark.prove
def test_every_file_is_valid_as_long_as_nobody_spoils_it(tmp_path, monkeypatch):
    (tmp_path / "made").mkdir()
    monkeypatch.chdir(tmp_path / "made")
    kinds = all_kinds(tmp_path / "made", lambda command: CliRunner().invoke(app, command.split()))
    assert len({kind.name for kind in kinds}) == len(kinds)
    refused = []
    for number, kind in enumerate(kinds):
        for command in kind.commands:
            folder = tmp_path / f"{number}-{len(refused)}-{kind.commands.index(command)}"
            folder.mkdir()
            monkeypatch.chdir(folder)
            for name, content in kind.beside.items():
                (folder / name).write_bytes(content)
            named = kind.named or "valid"
            place(kind.content, Path(named))
            result = CliRunner().invoke(app, command.replace(FILE, named).split())
            if result.exit_code not in CODES[:2]:
                refused.append((kind.name, command, result.exit_code, result.stderr))
    assert refused == []
