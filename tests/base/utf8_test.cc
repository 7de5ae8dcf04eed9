// SPDX-License-Identifier: Apache-2.0
#include "services/base/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <unordered_set>
#include <vector>

namespace continuo {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

std::string Assemble(std::string_view bytes) {
  Utf8Assembler assembler;
  std::string text;
  assembler.Push(bytes, &text);
  assembler.Flush(&text);
  return text;
}

// Encodes a character that is no surrogate: the definition of UTF-8, written the slow way.
std::string Encode(uint32_t code) {
  std::string s;
  if (code < 0x80) {
    s = {static_cast<char>(code)};
  } else if (code < 0x800) {
    s = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
  } else if (code < 0x10000) {
    s = {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
         static_cast<char>(0x80 | (code & 63))};
  } else {
    s = {static_cast<char>(0xF0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 63)),
         static_cast<char>(0x80 | (code >> 6 & 63)), static_cast<char>(0x80 | (code & 63))};
  }
  return s;
}

// Returns whether a character begins with exactly these bytes, by a list of all characters.
bool BeginsACharacter(std::string_view bytes) {
  static const auto* const kBeginnings = [] {
    auto* beginnings = new std::unordered_set<std::string>;
    std::string previous;
    for (uint32_t code = 0; code < 0x110000; ++code) {
      if (code >= 0xD800 && code < 0xE000) continue;
      const std::string character = Encode(code);
      for (size_t n = character.size(); n > 0 && !previous.starts_with(character.substr(0, n));
           --n) {
        beginnings->insert(character.substr(0, n));
      }
      previous = character;
    }
    return beginnings;
  }();
  return kBeginnings->contains(std::string(bytes));
}

bool IsWhole(std::string_view bytes) {
  const uint8_t lead = static_cast<uint8_t>(bytes[0]);
  return bytes.size() == (lead < 0x80   ? 1u
                          : lead < 0xE0 ? 2u
                          : lead < 0xF0 ? 3u
                                        : 4u) &&
         BeginsACharacter(bytes);
}

// Slow and obviously right: the longest beginning of a character, whole or replaced; else a byte.
std::string Reference(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    size_t length = 0;
    while (length < bytes.size() && length < 4 && BeginsACharacter(bytes.substr(0, length + 1))) {
      ++length;
      if (IsWhole(bytes.substr(0, length))) break;
    }
    if (length > 0 && IsWhole(bytes.substr(0, length))) {
      text += bytes.substr(0, length);
    } else {
      text += kReplacement;
      length = std::max<size_t>(length, 1);
    }
    bytes.remove_prefix(length);
  }
  return text;
}

TEST(Utf8AssemblerTest, EveryCharacterPassesUnchanged) {
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const std::string character = Encode(code);
    ASSERT_EQ(Assemble(character), character) << std::hex << code;
    ASSERT_TRUE(IsUtf8(character)) << std::hex << code;
  }
}

TEST(Utf8AssemblerTest, NothingOfACharacterComesBeforeItsLastByte) {
  const std::string smile = "😀";
  Utf8Assembler assembler;
  std::string text;
  for (size_t i = 0; i < smile.size(); ++i) {
    EXPECT_EQ(text, "");
    assembler.Push(smile.substr(i, 1), &text);
  }
  EXPECT_EQ(text, smile);
}

// The examples of the Unicode standard, tables 3-8 to 3-11.
TEST(Utf8AssemblerTest, AMaximalSubpartBecomesOneReplacement) {
  const std::string& r = kReplacement;
  EXPECT_EQ(Assemble("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Assemble("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Assemble("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(Assemble("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Utf8AssemblerTest, HalfACharacterAtTheEndIsReplacedOnce) {
  EXPECT_EQ(Assemble("a\xF0\x9F\x98"), "a" + kReplacement);
  EXPECT_EQ(Assemble("a\xE2"), "a" + kReplacement);
}

std::string RandomBytes(std::mt19937& random) {
  // Most bytes are leads and continuations, so that characters are formed and broken.
  static const std::vector<uint8_t> kBytes = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0,
                                              0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF,
                                              0xF0, 0xF1, 0xF4, 0xF5, 0xFF, 0x98, 0x82, 0xAC};
  std::string bytes(random() % 12, '\0');
  for (char& byte : bytes) byte = static_cast<char>(kBytes[random() % kBytes.size()]);
  return bytes;
}

TEST(Utf8AssemblerTest, RandomBytesInRandomPiecesGiveWhatTheReferenceGives) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    const std::string bytes = RandomBytes(random);
    Utf8Assembler assembler;
    std::string text;
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t size = random() % 4;
      const Utf8Assembler copy = assembler;
      assembler = copy;
      assembler.Push(std::string_view(bytes).substr(begin, size), &text);
      begin += size;
    }
    assembler.Flush(&text);
    ASSERT_EQ(text, Reference(bytes)) << ::testing::PrintToString(bytes);
    ASSERT_EQ(IsUtf8(bytes), text == bytes) << ::testing::PrintToString(bytes);
  }
}

TEST(Utf8Test, CharactersStayAndOtherBytesAreReplaced) {
  EXPECT_EQ(ToValidUtf8("aé€😀"), "aé€😀");
  EXPECT_EQ(ToValidUtf8("a\xe2\x82z"), "a\ufffd\ufffdz");
  EXPECT_EQ(ToValidUtf8("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80").size(), 9 * 3);
  EXPECT_EQ(Utf8CharacterLength(""), 0);
}

}  // namespace
}  // namespace continuo
