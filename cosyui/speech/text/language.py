"""Which language a text or a sentence is in: by its script, and for Latin script by function words and letters."""

from __future__ import annotations

import re
from collections import Counter

from cosyui.errors import InputError
from cosyui.speech.text.markup import MARK_PATTERN

LANGUAGE_NAMES = {
    "zh": "Chinese", "en": "English", "ja": "Japanese", "ko": "Korean", "ru": "Russian", "de": "German",
    "fr": "French", "es": "Spanish", "it": "Italian", "ar": "Arabic", "he": "Hebrew", "el": "Greek", "hi": "Hindi",
    "th": "Thai",
}  # fmt: skip
KNOWN_LANGUAGES = ("zh", "en", "ja", "ko", "ru", "de", "fr", "es", "it")
"""What the released CosyVoice3 was trained on, and what a request may name."""

_LATIN = r"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"  # all but × and ÷
_SCRIPTS = (
    ("ja", re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\uff66-\uff9d]")),
    ("zh", re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")),
    ("ko", re.compile(r"[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]")),
    ("ru", re.compile(r"[\u0400-\u052f]")),
    ("ar", re.compile(r"[\u0600-\u06ff\u0750-\u077f]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
    ("el", re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]{3}")),  # a letter or two are signs of a formula
    ("hi", re.compile(r"[\u0900-\u097f]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
    ("en", re.compile(rf"[{_LATIN}]")),
)
_WORD = re.compile(rf"[{_LATIN}]{{2}}|\b[AI]\b|[{_LATIN}]['’][{_LATIN}]")
_LATIN_WORD = re.compile(r"[a-z\u00df-\u00f6\u00f8-\u024f]+")
_FUNCTION_WORDS = {
    "en": "the and of to in is are was were you that it he she we they for with this have has had not but from at by "
          "my your his her our their what which who will would can could there been be i do does did on as if so no",
    "de": "der die das und ist sind war nicht ein eine einen einem mit von zu auf für den dem des im wir ich sie er "
          "es wie auch noch nach bei aus wenn oder aber habe hat haben wird kann mein sein bin guten um uhr vor",
    "fr": "le la les des du un une et est sont dans que qui pas pour sur avec ce cette nous vous ils elle il je mais "
          "au aux en ont avons plus ne se son sa ses mon où très bonjour merci ans leur était de j ai qu l",
    "es": "el la los las un una y es son en que por para con no se su del al como más pero está muy yo nosotros ellos "
          "este esta hay tiene tengo años mi hola gracias lo le qué ser fue desde hasta de",
    "it": "il lo la gli le un una e è sono che di in per con non si del della dei nel ma anche questo questa più ho "
          "hai ha abbiamo mio mia ci come molto anni ciao grazie dal al alla era da",
}  # fmt: skip
_WORDS = {name: frozenset(words.split()) for name, words in _FUNCTION_WORDS.items()}
_LETTERS = {"de": re.compile("[äöüß]"), "fr": re.compile("[àâçèêëîïôœùû]"), "es": re.compile("[áíñóú¿¡]"),
            "it": re.compile("[àèìòù]")}  # fmt: skip
_ABBREVIATION = re.compile(r"(?<![A-Za-z])(?:Nos?|Dr|Mrs?|Ms|Prof|St|vs|pp?|Figs?|Vol|Ch)\.$")
# "10 km" or "iPhone 15 Pro" in a Chinese text is no English: that has several words, not only names and units.
_WHOLE_WORD = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z]{2,}|[aI])(?![A-Za-z0-9])")
_ORDINARY = re.compile(r"(?<![A-Za-z0-9])[a-z]{2,}(?![A-Za-z0-9])")
LATIN_LANGUAGES = frozenset(_WORDS)
_CLEAR_LEAD = 2

_CLOSERS = "\"'”’」』）)】》"
# The lookbehind keeps a long row of dots from being looked at anew from each of them.
_SENTENCE = re.compile(rf"(?:[。！？；…\n]|(?<![.!?])[.!?]++(?=[{_CLOSERS}]*+(?:\s|$|[^\x00-\x7f])))[{_CLOSERS}]*+\s*+")


def language_code(asked: str | None) -> str | None:
    """What a request names as one of `KNOWN_LANGUAGES` (``zh-CN`` is ``zh``); None for nothing or ``auto``.

    Raises InputError ``language_invalid``, field ``language``, for any other.
    """
    given = (asked or "").strip().lower()
    code = re.split("[-_]", given)[0]
    if not given or code == "auto":
        return None
    if code not in KNOWN_LANGUAGES:
        known = ", ".join(KNOWN_LANGUAGES)
        message = f"{str(asked)[:20]!r} is no language of this model. Choose one of {known}, or leave it out."
        raise InputError("language_invalid", message, "language")
    return code


def detect_language(text: str) -> str:
    """The language of ``text``: one of the keys of `LANGUAGE_NAMES`, or ``""`` if it has no letters.

    Chinese with foreign words in it is ``zh``; Han with a fair share of kana is ``ja``. Latin script is ``en`` unless
    German, French, Spanish or Italian clearly leads.
    """
    text = MARK_PATTERN.sub("", text)
    script = _script(text)
    return _latin(text, "en") if script == "en" else script


def language_spans(text: str, base: str, asked: str | None = None) -> list[tuple[str, str]]:
    """``text`` cut into runs of sentences of one language each, in order: pairs of text and language.

    ``base`` is the language of the whole, for sentences without letters or of a doubtful kind. ``asked`` is what the
    request names: it decides between languages of one script.
    """
    spans: list[tuple[str, str]] = []
    for sentence in _sentences(text):
        language = _sentence_language(sentence, base, asked)
        if spans and spans[-1][1] == language:
            spans[-1] = (spans[-1][0] + sentence, language)
        else:
            spans.append((sentence, language))
    return spans


def _sentences(text: str) -> list[str]:
    ends = [match.end() for match in _SENTENCE.finditer(text) if not _is_abbreviation(text, match.start())]
    return [piece for start, end in zip([0, *ends], [*ends, len(text)], strict=True) if (piece := text[start:end])]


def _is_abbreviation(text: str, dot: int) -> bool:
    """Whether the dot at ``dot`` belongs to a word such as ``No.``, after which the sentence goes on."""
    return bool(_ABBREVIATION.search(text[max(0, dot - 6) : dot + 1]))


def _sentence_language(sentence: str, base: str, asked: str | None) -> str:
    sentence = MARK_PATTERN.sub("", sentence)
    script = _script(sentence)
    if not script or (script == "zh" and base in ("ja", "ko")):
        return base
    if script == "en":
        if base in ("zh", "ja", "ko") and not (_ORDINARY.search(sentence) and len(_WHOLE_WORD.findall(sentence)) >= 2):
            return base
        home = base if base in LATIN_LANGUAGES else "en"
        return asked if asked in LATIN_LANGUAGES else _latin(sentence, home)
    return script


def _script(text: str) -> str:
    counts = Counter({name: len(pattern.findall(text)) for name, pattern in _SCRIPTS})
    if counts["ja"] and counts["ja"] * 6 >= counts["zh"]:
        return "ja"
    # A Greek letter in a formula does not make the text Greek; the same for the odd letter of any other script.
    if counts["zh"] and counts["zh"] * 3 >= max(counts["ko"], counts["ru"], counts["ar"], counts["he"]):
        return "zh"
    name, number = counts.most_common(1)[0]
    if name == "en" and not _WORD.search(text):
        return ""  # x and y are names in a formula, in any language
    return name if number else ""


def _latin(text: str, home: str) -> str:
    """Which of `LATIN_LANGUAGES` a text in Latin script is in; ``home`` unless another clearly leads."""
    text = text.lower()
    words = Counter(_LATIN_WORD.findall(text))
    score = {name: sum(words[word] for word in words.keys() & known) for name, known in _WORDS.items()}
    for name, letters in _LETTERS.items():
        score[name] += len(letters.findall(text))
    first, second = sorted(score, key=lambda name: score[name], reverse=True)[:2]
    signs = len(words.keys() & _WORDS[first]) + (len(_LETTERS[first].findall(text)) if first in _LETTERS else 0)
    leads = score[first] >= score[second] + 1 and score[first] >= score[home] + _CLEAR_LEAD and signs >= 2
    return first if leads else home
