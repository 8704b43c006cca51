"""The pre-tokenizer patterns, by the name in `tokenizer.ggml.pre`.

A byte-level BPE merges only inside words, and what a word is was settled in training.
Each entry is the list of patterns that the model's own `tokenizer.json` applies one after the other
(every match and every gap becomes a word); names and groups are llama.cpp's. Where llama.cpp only
approximates a pattern, the original one stands here.
"""

from dataclasses import dataclass

from localllm.errors import Unsupported

# What many patterns share. Contractions are spelled out: (?i:) would also fold U+017F to s.
_ENDS = "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ASCII_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
_MARKS_WORD = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"

# Digits in threes, counted from the right; in a run of more than 195 from the left: stays linear.
_THREES = r"\p{N}{1,3}(?=(?:\p{N}{3}){0,64}(?!\p{N}))|\p{N}{3}"


def _modern(digits: str = r"\p{N}", letters: str = r"\p{L}+", ends: str = _ENDS + "|") -> str:
    """The pattern of cl100k and its many descendants, which differ in how they cut digits."""
    head = rf"[^\r\n\p{{L}}\p{{N}}]?{letters}"
    return rf"{ends}{head}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"


def _cased(ends: str, digits: str, but: str = "", slash: str = "/") -> str:
    """The pattern of o200k and its descendants: words also break where capitals begin."""
    upper, lower = (rf"[\p{{{kind}}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]" for kind in ("Lu}\\p{Lt", "Ll"))
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = rf"{lead}{upper}*{lower}+{ends}|{lead}{upper}+{lower}*{ends}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n{slash}]*|{_SPACES}"


_LLAMA3 = _modern(r"\p{N}{1,3}")
_QWEN2 = _modern()
_GPT4O = _cased(f"(?:{_ENDS})?", r"\p{N}{1,3}")
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    rf"{_ASCII_WORD}|{_MARKS_WORD}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
_DEEPSEEK_CASED = (  # the letters that have a case, as DeepSeek's tokenizer.json lists them
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_SENTENCE_MARKS = " ?[^(\\s|.,!?…。，、।۔،)]+"

_PATTERNS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2,),
    "llama3": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "qwen35": (
        rf"{_ENDS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",
    ),
    "starcoder": (r"\p{N}", _GPT2),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "deepseek-llm": (
        "[\r\n]",
        rf"\s?[{_DEEPSEEK_CASED}]+",
        r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
        r"\s+$",
        "[一-龥ࠀ-一가-퟿]+",
        r"\p{N}+",
    ),
    "deepseek-coder": ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"),
    "deepseek-v3": _DEEPSEEK3,
    "spark2_5": (
        *_DEEPSEEK3[:2],
        rf"{_ASCII_WORD}|{_MARKS_WORD}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+",
        r"\p{N}",
    ),
    "youtu": (
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
        _cased(f"(?:{_ENDS})?", r"\p{N}"),
    ),
    "bloom": (_SENTENCE_MARKS,),
    "viking": (_SENTENCE_MARKS, r"\p{N}"),
    "tekken": (_cased("", r"\p{N}"),),
    "gpt-4o": (_GPT4O,),
    "tiny_aya": (r"\d{1,3}(?=(?:\d{3}){0,64}\b)", _GPT4O),
    "kimi-k2": (
        r"[\p{Han}]+|" + _cased(f"(?:{_ENDS})?", r"\p{N}{1,3}", r"&&[^\p{Han}]", slash=""),
    ),
    "chameleon": (
        "<sentinel:[0-9]+>",
        "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
        "([\\t\\n]|    |  )",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        _GPT2,
    ),
    "jais-2": (
        _LLAMA3.removesuffix(r"|\s+(?!\S)|\s+")
        + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
        + r"|\s{1,2}(?!\S)|\s",
    ),
    "bailingmoe": (
        r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    "seed-coder": (
        rf"{_ENDS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",
    ),
    "ufakzeka": (_modern(ends=""),),
    "afmoe": (
        _THREES,
        "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
        rf"{_ASCII_WORD}|{_MARKS_WORD}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
    ),
    "laguna": (r"[^\n]+|[\n]+", _QWEN2),
    "exaone-moe": (
        rf"{_ENDS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    "minicpm5": (r"\p{N}{1,3}", _modern(r"\p{N}+")),
}

_SAME = {  # names whose patterns are those of another
    "gpt-2": "phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert"
    " jina-v1-en jina-v2-code roberta-bpe mpt olmo jais exaone4 trillion granite-docling",
    "llama3": "llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx"
    " smaug-bpe glm4 chatglm-bpe",
    "qwen2": "deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan grok-2 solar-open",
    "starcoder": "refact command-r smollm codeshell exaone minerva-7b mellum2",
    "deepseek-v3": "hunyuan-dense joyai-llm hy_v4",
    "bloom": "poro-chat gpt3-finnish",
    "gpt-4o": "llama4 kanana2 talkie minimax-m2 granite-embed-multi-97m",
    "tiny_aya": "cohere2moe",
    "bailingmoe": "bailingmoe2 llada-moe",
}
_KIND = {name: name for name in _PATTERNS} | {
    alias: name for name, aliases in _SAME.items() for alias in aliases.split()
}
_LLAMA3_FILES = ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0")
_ADD_BOS = {*_LLAMA3_FILES, "lfm2", "jina-v5-nano", "tekken", "chameleon"}
_WHOLE_WORDS = _ADD_BOS - {"chameleon"} | {"minicpm5", "youtu", "granite-embed-multi-97m"}


@dataclass(frozen=True)
class Split:
    """How one family cuts text into words before merging."""

    patterns: tuple[str, ...]  # Oniguruma regular expressions, applied in this order
    whole_words: bool  # a word that is in the vocabulary is taken as it is, without merging
    add_bos: bool  # whether a text starts with BOS where the file does not say


def split_of(pre: str | None) -> Split:
    """The split for a `tokenizer.ggml.pre`; None is llama.cpp's default. Unsupported if unknown."""
    name = pre or "default"
    if name not in _KIND:
        raise Unsupported(
            f"This model needs the pre-tokenizer '{name[:80]}', which localllm does not know.",
            hint="A newer localllm may know it. A guess would silently give worse answers.",
        )
    return Split(_PATTERNS[_KIND[name]], name in _WHOLE_WORDS, name in _ADD_BOS)


def known() -> list[str]:
    """Every `tokenizer.ggml.pre` that `split_of` knows."""
    return sorted(_KIND)
