"""The programs of docs/client.md run against a real server."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.serve_process import ServeProcess

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def test_the_programs_of_the_page_run_repeatedly(server: ServeProcess, tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(programs) == 3
    for program in [*programs, *programs]:
        here = program.replace("http://127.0.0.1:8001", server.base_url)
        ran = subprocess.run([sys.executable, "-c", here], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
