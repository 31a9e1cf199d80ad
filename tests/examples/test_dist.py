"""The checks of a release: the report about the wheel of a machine that cannot be emulated here."""

from pathlib import Path

import pytest
from tools.dist import run_foreign


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_wheel_that_cannot_be_emulated_is_reported_as_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], machine: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no emulator is there

    run_foreign(tmp_path, Path(f"palaver-1-py3-none-musllinux_1_1_{machine}.whl"), is_installed=True)

    shown = capsys.readouterr().out
    assert shown.startswith(f"dist: NOT RUN: palaver-1-py3-none-musllinux_1_1_{machine}.whl.")
    assert f"without qemu-{machine}. Run the quick start on {machine} first.\n" in shown
