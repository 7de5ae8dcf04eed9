// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/siphash.h"

#include <bit>

#include "services/base/check.h"

namespace continuo::gateway::openai {
namespace {

constexpr size_t kWordBytes = SipHash::kWordBytes;
// The rounds after a word, and those at the end: the 2 and 4 of the name.
constexpr int kWordRounds = 2, kEndRounds = 4;

// Little-endian; at most a word.
uint64_t WordOf(std::string_view bytes) {
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    word |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  return word;
}

uint64_t WholeWordOf(const char* bytes) { return WordOf(std::string_view(bytes, kWordBytes)); }

void Rounds(int number, std::array<uint64_t, 4>* state) {
  auto [v0, v1, v2, v3] = *state;
  for (int i = 0; i < number; ++i) {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  *state = {v0, v1, v2, v3};
}

void AddWord(uint64_t word, std::array<uint64_t, 4>* state) {
  (*state)[3] ^= word;
  Rounds(kWordRounds, state);
  (*state)[0] ^= word;
}

// Takes whole words from the front of `bytes`.
void AddWords(std::string_view* bytes, std::array<uint64_t, 4>* state) {
  for (; bytes->size() >= kWordBytes; bytes->remove_prefix(kWordBytes)) {
    AddWord(WholeWordOf(bytes->data()), state);
  }
}

}  // namespace

SipHash::SipHash(std::span<const uint8_t, kKeyBytes> key) {
  const auto* const bytes = reinterpret_cast<const char*>(key.data());
  const uint64_t k0 = WholeWordOf(bytes), k1 = WholeWordOf(bytes + kWordBytes);
  // "somepseudorandomlygeneratedbytes".
  key_ = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
          k1 ^ 0x7465646279746573};
  begin_ = key_;
}

void SipHash::SetBegin(std::string_view words) {
  CONTINUO_CHECK(words.size() % kWordBytes == 0);
  num_begin_ = words.size();
  begin_ = key_;
  AddWords(&words, &begin_);
}

SipHash::Tag SipHash::Of(std::string_view rest) const {
  State state = begin_;
  // The last word has the size, modulo 256, as its highest byte.
  const uint64_t size = num_begin_ + rest.size();
  AddWords(&rest, &state);
  AddWord(WordOf(rest) | size << 56, &state);
  state[2] ^= 0xff;
  Rounds(kEndRounds, &state);
  const uint64_t hash = state[0] ^ state[1] ^ state[2] ^ state[3];
  Tag tag;
  for (size_t i = 0; i < tag.size(); ++i) tag[i] = static_cast<uint8_t>(hash >> (8 * i));
  return tag;
}

}  // namespace continuo::gateway::openai
