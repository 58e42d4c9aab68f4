"""English words for units and currencies, in the singular, and their plurals."""

from __future__ import annotations

from cosyui.speech.reading.numbers_en import plural

UNITS = {
    "km": "kilometer", "m": "meter", "dm": "decimeter", "cm": "centimeter", "mm": "millimeter", "μm": "micrometer",
    "um": "micrometer", "nm": "nanometer", "inch": "inch", "ft": "foot", "yd": "yard", "yds": "yard", "mi": "mile",
    "kg": "kilogram", "kgs": "kilogram", "g": "gram", "mg": "milligram", "μg": "microgram", "ug": "microgram",
    "mcg": "microgram", "ng": "nanogram", "lb": "pound", "lbs": "pound", "oz": "ounce", "L": "liter", "l": "liter",
    "mL": "milliliter", "ml": "milliliter", "μL": "microliter", "μl": "microliter", "dL": "deciliter", "cc": "cc",
    "gal": "gallon", "qt": "quart", "tsp": "teaspoon", "tbsp": "tablespoon", "ha": "hectare", "h": "hour", "hr": "hour",
    "hrs": "hour", "min": "minute", "mins": "minute", "s": "second", "sec": "second", "secs": "second",
    "ms": "millisecond", "μs": "microsecond", "ns": "nanosecond", "yr": "year", "yrs": "year", "wk": "week",
    "wks": "week", "Hz": "hertz", "kHz": "kilohertz", "KHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz",
    "THz": "terahertz", "V": "volt", "kV": "kilovolt", "mV": "millivolt", "W": "watt", "mW": "milliwatt",
    "kW": "kilowatt", "KW": "kilowatt", "MW": "megawatt", "GW": "gigawatt", "Wh": "watt hour", "kWh": "kilowatt hour",
    "KWh": "kilowatt hour", "kwh": "kilowatt hour", "MWh": "megawatt hour", "GWh": "gigawatt hour", "mA": "milliamp",
    "μA": "microamp", "mAh": "milliamp hour", "Ah": "amp hour", "Ω": "ohm", "kΩ": "kilohm", "MΩ": "megohm",
    "μF": "microfarad", "pF": "picofarad", "kN": "kilonewton", "Nm": "newton meter", "N·m": "newton meter",
    "N": "newton", "A": "amp", "J": "joule", "kJ": "kilojoule", "MJ": "megajoule", "cal": "calorie",
    "kcal": "kilocalorie", "eV": "electronvolt", "Pa": "pascal", "hPa": "hectopascal", "kPa": "kilopascal",
    "MPa": "megapascal", "GPa": "gigapascal", "mmHg": "millimeter of mercury", "atm": "atmosphere", "psi": "psi",
    "dB": "decibel", "mol": "mole", "mmol": "millimole", "lm": "lumen", "lx": "lux", "mSv": "millisievert",
    "μSv": "microsievert", "bit": "bit", "KB": "kilobyte", "kB": "kilobyte", "MB": "megabyte", "GB": "gigabyte",
    "TB": "terabyte", "PB": "petabyte", "Mbps": "megabit per second", "Gbps": "gigabit per second",
    "kbps": "kilobit per second", "mph": "mile per hour", "kph": "kilometer per hour", "kmh": "kilometer per hour",
    "mpg": "mile per gallon", "rpm": "revolution per minute", "bpm": "beat per minute", "fps": "frame per second",
    "sqm": "square meter", "sq ft": "square foot", "sq. ft.": "square foot", "sq m": "square meter",
    "sq km": "square kilometer", "sq mi": "square mile", "fl oz": "fluid ounce", "°C": "degree Celsius",
    "℃": "degree Celsius", "°F": "degree Fahrenheit", "℉": "degree Fahrenheit", "°": "degree",
    "ppm": "part per million",
}  # fmt: skip
"""Signs of units after a number. ``in``, ``A`` and ``N`` are words or letters more often than units."""

PER = {"d": "day", "day": "day", "wk": "week", "mo": "month", "month": "month", "y": "year", "yr": "year",
       "year": "year", "week": "week", "hour": "hour", "K": "kelvin", "person": "person", "night": "night",
       "unit": "unit", "user": "user"}  # fmt: skip
"""What only stands after a slash."""

_SAME = frozenset(("hertz", "kilohertz", "megahertz", "gigahertz", "terahertz", "lux", "psi", "cc"))
_JOINED = (" per ", " of ", " Celsius", " Fahrenheit")

CURRENCY_SIGNS = {
    "US$": ("US dollar", "cent"), "HK$": ("Hong Kong dollar", "cent"), "NT$": ("new Taiwan dollar", "cent"),
    "A$": ("Australian dollar", "cent"), "C$": ("Canadian dollar", "cent"), "S$": ("Singapore dollar", "cent"),
    "$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "pence"), "¥": ("yen", ""), "₩": ("won", ""),
    "₹": ("rupee", "paisa"), "₽": ("ruble", ""), "฿": ("baht", ""), "₿": ("bitcoin", ""),
}  # fmt: skip
CURRENCY_CODES = {
    "USD": "US dollar", "RMB": "yuan", "CNY": "yuan", "EUR": "euro", "GBP": "British pound", "JPY": "yen",
    "HKD": "Hong Kong dollar", "KRW": "won", "AUD": "Australian dollar", "CAD": "Canadian dollar", "CHF": "Swiss franc",
    "SGD": "Singapore dollar", "INR": "rupee", "THB": "baht",
}  # fmt: skip
_INVARIANT = frozenset(("yen", "yuan", "won", "baht", "pence", "paisa"))


def plural_unit(name: str) -> str:
    """kilometer per hour: kilometers per hour; foot: feet."""
    for joint in _JOINED:
        head, found, tail = name.partition(joint)
        if found:
            return plural_unit(head) + found + tail
    if name in _SAME or name.rpartition(" ")[2] in _INVARIANT:
        return name
    return name[:-4] + "feet" if name.endswith("foot") else plural(name)
