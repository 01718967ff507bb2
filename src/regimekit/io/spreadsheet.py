"""Read a sheet of an xlsx workbook."""

from __future__ import annotations

import csv
import zipfile
from datetime import datetime, time
from pathlib import Path
from typing import Any

from regimekit.core.exceptions import RegimekitError, unknown

_MAX_BYTES = 2**31  # of all parts of a workbook, unpacked


def write_sheet(path: Path, sheet: str | None, target: Path) -> str:
    """Write a sheet of a workbook to a CSV file.

    Cells are written as the workbook stores them: dates in ISO 8601, formulas as their last
    computed value. Empty rows are left out.

    Args:
        path: the workbook.
        sheet: name of the sheet; the only one by default.
        target: CSV file to write.

    Returns:
        The name of the sheet.

    Raises:
        RegimekitError: if the file is no workbook, or the sheet is not known or not given.
    """
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise RegimekitError(
            f"{path.name} is a spreadsheet; reading it needs openpyxl. Install it with pip install "
            "'regimekit[xlsx]', or save the sheet as CSV."
        ) from None
    _check_size(path)
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # openpyxl raises errors of zip files, XML and its own
        raise RegimekitError(
            f"{path.name} cannot be read as a spreadsheet: {str(error).rstrip('.')}. "
            "Save the sheet as CSV and pass that file."
        ) from None
    try:
        names = book.sheetnames
        if sheet is None and len(names) > 1:
            raise RegimekitError(
                f"{path.name} has {len(names)} sheets. Pass --sheet with one of {', '.join(names)}."
            )
        chosen = names[0] if sheet is None else sheet
        if chosen not in names:
            raise unknown("--sheet", chosen, names)
        with target.open("w", newline="", encoding="utf-8") as output:
            writer = csv.writer(output)
            for row in book[chosen].iter_rows(values_only=True):
                if any(cell is not None for cell in row):
                    writer.writerow([_text(cell) for cell in row])
    finally:
        book.close()
    return chosen


def _check_size(path: Path) -> None:
    """Raise if the parts of a workbook, which are compressed, have too many bytes."""
    try:
        with zipfile.ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist())
    except (zipfile.BadZipFile, OSError):
        # openpyxl reports what is wrong.
        return
    if size > _MAX_BYTES:
        raise RegimekitError(
            f"{path.name} has {size / 2**30:.1f} GB of content, over {_MAX_BYTES / 2**30:.0f} GB. "
            "Save the sheet as CSV."
        )


def _text(cell: Any) -> Any:
    if isinstance(cell, datetime):
        midnight = cell.time() == time()
        return cell.date().isoformat() if midnight else cell.isoformat(sep=" ")
    return "" if cell is None else cell
