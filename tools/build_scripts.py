"""Build scripts/<layout>/*.lua from their sources, and the manifest that pins each text by its SHA1.

A line `--@ part` in a source stands for the text of src/part.lua. A source that is a script starts with `-- name:`.
"""

import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1] / "scripts"
READ_ONLY = {"count", "peek"}


def build(layout: Path) -> dict[str, str]:
    """Every script of a layout: name -> text."""
    sources = {path.stem: path.read_text("utf-8") for path in sorted(layout.glob("src/*.lua"))}
    notice = f"-- Built from src/{{}}.lua; {layout.name} of the contract in scripts/README.md.\n"
    return {
        name: notice.format(name) + re.sub(r"^--@ (\w+)\n", lambda part: sources[part[1]], text, flags=re.MULTILINE)
        for name, text in sources.items()
        if text.startswith(f"-- {name}:")
    }


def main() -> None:
    manifest: dict[str, dict[str, dict[str, object]]] = {}
    for layout in sorted(path.parent for path in ROOT.glob("*/src")):
        entries = manifest[layout.name] = {}
        for name, text in build(layout).items():
            (layout / f"{name}.lua").write_text(text, "utf-8")
            entries[name] = {
                "sha1": hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(),
                "read_only": name in READ_ONLY,
            }
    (ROOT / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
