"""What comes before the tables: `python -m paper tune [..]`, `.. replay [..]`, `.. costs`."""

from __future__ import annotations

import sys

from paper import costs, replay, tuning

COMMANDS = {"tune": tuning.main, "replay": replay.main, "costs": costs.main}


def main(arguments: list[str]) -> None:
    """Run the command named first, with the rest."""
    if not arguments or arguments[0] not in COMMANDS:
        sys.exit(f"python -m paper: say which of {', '.join(COMMANDS)}; {__doc__}")
    COMMANDS[arguments[0]](arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
