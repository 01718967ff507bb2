"""Commands: `python -m paper evidence [..]`, `.. tune [..]`, `.. replay [..]`, `.. costs`."""

from __future__ import annotations

import sys

from paper import costs, evidence, replay, tuning

COMMANDS = {
    "evidence": evidence.main,
    "tune": tuning.main,
    "replay": replay.main,
    "costs": costs.main,
}


def main(arguments: list[str]) -> None:
    """Run the command that is the first argument."""
    if not arguments or arguments[0] not in COMMANDS:
        sys.exit(f"python -m paper: name one of {', '.join(COMMANDS)}; {__doc__}")
    COMMANDS[arguments[0]](arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
