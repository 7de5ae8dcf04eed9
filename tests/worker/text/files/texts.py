# SPDX-License-Identifier: Apache-2.0
"""Sentences in many writings, and random texts made of them."""

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, doesn't it? It's 12:30 and I'd say we've 1,234.56 reasons.",
    "Every worker reads a file of tokens, and every token has a rank that the merges of pairs are made of.",
    "def tokens_of(text: str) -> list[int]:\n    return [rank[piece] for piece in pieces(text)]  # none is lost\n",
    "for (int i = 0; i < n; ++i) {\n\t\tsum += values[i] * 0.5;\n\t}\n\n#include <vector>\n",
    "Größere Übung macht den Meister; fünf weiße Füchse aßen Käse auf der Straße nach Köln.",
    "L'été dernier, j'ai mangé des crêpes à Besançon où l'œuvre naïve d'un garçon coûtait 20 €.",
    "El niño comió piñas mañana, ¿verdad? ¡Qué sorpresa! La cigüeña voló hacia el sur.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю; завтра будет новый день.",
    "Η γρήγορη αλεπού πηδά πάνω από το τεμπέλικο σκυλί κάθε πρωί.",
    "快速的棕色狐狸跳过了懒狗，今天天气很好，我们去公园散步吧。",
    "素早い茶色の狐がのろまな犬を飛び越える。カタカナとひらがなと漢字があります。",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다. 오늘은 날씨가 좋습니다.",
    "الثعلب البني السريع يقفز فوق الكلب الكسول، واليوم يوم جميل.",
    "השועל החום המהיר קופץ מעל הכלב העצלן בכל בוקר.",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। आज मौसम अच्छा है।",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ",
    "Con cáo nâu nhanh nhẹn nhảy qua con chó lười biếng; hôm nay trời đẹp.",
    "Hızlı kahverengi tilki tembel köpeğin üstünden atlar, İstanbul'da güneş var.",
    "🦊 jumps over 🐶!! 👩‍👩‍👧‍👦 🇫🇷 👍🏽 ❤️ ☕ ✨ 😀😃😄",
    "https://example.org/a/b?c=d&e=%20f#g  mailto:someone@example.org  C:\\Users\\name\\file.txt",
    '{"name": "Mira", "age": 30, "tags": ["a", "b"], "nested": {"x": null, "y": [1.5e-3, -2]}}',
    "<p class=\"big\">A &amp; B</p>\n<!-- note -->\n| a | b |\n| --- | --- |\n* item **bold** _it_ `code`",
    "x² + y³ ≤ ∑ᵢ aᵢ·bᵢ ≈ π/2 → ∞; ½ ¾ № ™ © ® † ‡ … — – ‘quoted’ “words”",
    "    four spaces\n\tand a tab\r\nand a carriage return\n\n\n   \n end   ",
]

FIXED = ["", " ", "  ", "\n", "\t", "a", " a", "a ", "  a  b   c  ", "Hello, world!", "hello  world\n\n", "\r\n\r\n",
         "don't DON'T we'LL I'm", "1234567890", "12 345.678", "ﬁne ﬂow Ａ\u3000Ｂ\u00a0c", "e\u0301 é", "\u2126",
         "\u2581", "\u2581\u2581a", "<0x41>", "unk\u16a0nown \u16a0\u16a1 x\u16a2", "naïve café", "\u200d\ufe0f",
         "a" * 70, " " * 40, "ab" * 50, "\n" * 9 + " x", "🦊🦊🦊"]

# Ranges of characters that all versions of Unicode at hand have in the same classes.
RANGES = [(0x20, 0x7e), (0x20, 0x7e), (0x61, 0x7a), (0xa1, 0x24f), (0x391, 0x3a1), (0x3b1, 0x3c9), (0x410, 0x44f),
          (0x5d0, 0x5ea), (0x621, 0x64a), (0x905, 0x939), (0xe01, 0xe30), (0x1e00, 0x1eff), (0x2010, 0x2027),
          (0x20a0, 0x20ba), (0x2190, 0x21ff), (0x2200, 0x22ff), (0x3041, 0x3096), (0x30a1, 0x30fa), (0x4e00, 0x9fa5),
          (0xac00, 0xd7a3), (0x1f300, 0x1f5ff), (0x1f600, 0x1f64f)]
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n", "\n ", "        "]


def random_text(draw):
    """A text of up to some 80 characters: parts of sentences, random characters, numbers and white space."""
    parts = []
    for _ in range(draw.randint(1, 6)):
        kind = draw.random()
        if kind < 0.45:
            sentence = draw.choice(SENTENCES)
            begin = draw.randrange(len(sentence))
            parts.append(sentence[begin:begin + draw.randint(1, 30)])
        elif kind < 0.7:
            low, high = draw.choice(RANGES)
            parts.append("".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 8))))
        elif kind < 0.8:
            parts.append("".join(chr(draw.randint(*draw.choice(RANGES))) for _ in range(draw.randint(1, 8))))
        elif kind < 0.87:
            parts.append(str(draw.randrange(10 ** draw.randint(1, 12))))
        elif kind < 0.93:
            parts.append(draw.choice(SENTENCES[0].split() + ["aa", "ab", "=", "-", "#", "\n", " "]) *
                         draw.randint(1, 20))
        if draw.random() < 0.6:
            parts.append(draw.choice(SPACES))
    return "".join(parts)
