"""Amounts as people read them."""


def size(amount: float) -> str:
    """Bytes as people read them: 98.4 MB, 1.1 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if amount >= 100 or unit == "B" else f"{amount:.1f} {unit}"
