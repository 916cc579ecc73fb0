"""The simulated driver is built with the header of CUDA 13.0 as well: no name that came later is used.

Not verified here: that such a header is compiled; ``names_since_13_1.txt`` has what cuda.h of 13.5 has and that of 13.0
has not.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LATER = frozenset((Path(__file__).parent / "names_since_13_1.txt").read_text(encoding="ascii").split())


def test_no_later_name_is_used() -> None:
    used: dict[str, list[str]] = {}
    for path in (ROOT / "csrc").rglob("*.[ch]pp"):
        code = re.sub(r"//[^\n]*|\"[^\"\n]*\"", "", path.read_text(encoding="utf-8"))
        used[str(path.relative_to(ROOT))] = sorted(set(re.findall(r"\w+", code)) & LATER)
    assert len(used) > 100
    assert {path: names for path, names in used.items() if names} == {}
