"""Public holidays as a covariate; needs the package `holidays`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.preprocessing.time_index import dates_of_labels


def holidays(dates: Any, country: str, region: str | None = None) -> dict[str, NDArray[np.float64]]:
    """Return a covariate that is 1 on public holidays and 0 on other days.

    Args:
        dates: sorted dates: an index or a column of any library, or a list.
        country: two-letter code of the country, such as "DE".
        region: code of the state or province, such as "BW".

    Returns:
        {"holiday": (T,) 0 or 1}, to pass as X to `run` or `forecast`.

    Raises:
        RegimekitError: if the package `holidays` is not installed, the country is not known, or
            `dates` are no sorted dates.

    Example:
        >>> import regimekit as rk
        >>> rk.holidays(["2024-12-24", "2024-12-25"], "DE")["holiday"].tolist()
        [0.0, 1.0]
    """
    try:
        import holidays as package
    except ModuleNotFoundError:
        raise RegimekitError(
            "Holidays need the package holidays. Install it with pip install 'regimekit[holidays]'."
        ) from None
    days = dates_of_labels(dates)
    if not days:
        raise RegimekitError("dates must be sorted dates, such as the index of y.")
    try:
        known = package.country_holidays(country, subdiv=region)
    except NotImplementedError:
        place = repr(country) if region is None else f"{country!r}, region {region!r}"
        raise RegimekitError(
            f"Holidays of country={place} are not known. Pass a code such as 'DE' or 'US'."
        ) from None
    return {"holiday": np.array([float(day.date() in known) for day in days])}
