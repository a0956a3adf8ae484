"""Build scripts/<layout>/*.lua from their sources, and the manifest that pins each text by its SHA1.

A line `--@ part` in a source stands for the text of src/part.lua, `--@ part name` for what stands there under
`--# name`, and in a shared part `--@ name` for what the script itself has under `--# name`. A source that is a script
starts with `-- name:`. Parts are text, not functions: to make functions anew in every run costs more than what they do.
"""

import hashlib
import json
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1] / "scripts"
READ_ONLY = {"count", "peek"}


def build(layout: Path) -> dict[str, str]:
    """Every script of a layout: name -> text."""
    parts: dict[str, str] = {}
    for path in sorted(layout.glob("src/*.lua")):
        whole, *sections = re.split(r"^--# ", path.read_text("utf-8"), flags=re.MULTILINE)
        parts[path.stem] = whole.rstrip() + "\n"
        for section in sections:
            name, _, text = section.partition("\n")
            parts[f"{path.stem} {name}"] = text.rstrip() + "\n" if text.strip() else ""

    def fill(text: str, script: str) -> str:
        def part(line: re.Match[str]) -> str:
            name = line[2] if line[2] in parts else f"{script} {line[2]}"
            return textwrap.indent(fill(parts[name], script), line[1])

        return re.sub(r"^( *)--@ (.+)\n", part, text, flags=re.MULTILINE)

    notice = f"-- Built from src/{{}}.lua; {layout.name} of the contract in scripts/README.md.\n"
    return {
        name: notice.format(name) + fill(text, name) for name, text in parts.items() if text.startswith(f"-- {name}:")
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
