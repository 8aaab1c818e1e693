"""Writes the hashes of the operators' sources into a release: `python -m roofmark.releases.freeze 2026.07`.

For whoever works on a release before it is published; afterwards a correction is a new release.
"""

from __future__ import annotations

import sys

from roofmark.releases.frozen import HERE, names, source_sha256

MARK = "[source_sha256]\n"


def freeze(name: str) -> str:
    """The text of the release's file with the hashes of the sources as they are now."""
    head, mark, _ = (HERE / f"{name}.toml").read_text(encoding="utf-8").partition(MARK)
    return head + (mark or f"\n{MARK}") + "".join(f'{key} = "{value}"\n' for key, value in source_sha256().items())


def main(arguments: list[str]) -> None:
    """Freezes the releases named, all of them without a name."""
    for name in arguments or names():
        text = freeze(name)
        (HERE / f"{name}.toml").write_text(text, encoding="utf-8")
        print(f"froze {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
