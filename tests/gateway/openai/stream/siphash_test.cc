// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/siphash.h"

#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>

#include <random>
#include <string>

#include "absl/strings/escaping.h"

namespace continuo::gateway::openai {
namespace {

using Key = std::array<uint8_t, SipHash::kKeyBytes>;

std::string HexOf(const SipHash::Tag& tag) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(tag.data()), tag.size()));
}

SipHash::Tag OpenSslsOf(const Key& key, const std::string& message) {
  EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "SIPHASH", nullptr);
  EVP_MAC_CTX* const context = EVP_MAC_CTX_new(mac);
  EVP_MAC_free(mac);
  SipHash::Tag tag = {};
  size_t size = tag.size();
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
                               OSSL_PARAM_construct_end()};
  EXPECT_EQ(EVP_MAC_init(context, key.data(), key.size(), params), 1);
  EXPECT_EQ(EVP_MAC_update(context, reinterpret_cast<const unsigned char*>(message.data()),
                           message.size()),
            1);
  EXPECT_EQ(EVP_MAC_final(context, tag.data(), &size, tag.size()), 1);
  EVP_MAC_CTX_free(context);
  return tag;
}

TEST(SipHashTest, TheExampleOfThePaper) {
  // Appendix A: key and message are the numbers from 0 on.
  Key key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(i);
  std::string message;
  for (char i = 0; i < 15; ++i) message.push_back(i);
  EXPECT_EQ(HexOf(SipHash(key).Of(message)), "e545be4961ca29a1");
}

TEST(SipHashTest, IsOpenSslsForEverySizeAndAnyKey) {
  std::mt19937 random(1);
  for (int round = 0; round < 8; ++round) {
    Key key;
    for (uint8_t& byte : key) byte = static_cast<uint8_t>(random());
    const SipHash mac(key);
    // Beyond 255 bytes the size does not fit its byte.
    for (size_t size = 0; size < 300; ++size) {
      std::string message(size, '\0');
      for (char& byte : message) byte = static_cast<char>(random());
      ASSERT_EQ(mac.Of(message), OpenSslsOf(key, message)) << size;
    }
  }
}

TEST(SipHashTest, ABeginThatIsSetCountsAsTheMessagesFirstWords) {
  const Key key = {1, 2, 3};
  std::string message(70, '\0');
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<char>(i);
  SipHash mac(key);
  for (const size_t begin : {48, 8, 32, 0}) {
    mac.SetBegin(message.substr(0, begin));
    for (size_t size = begin; size <= message.size(); ++size) {
      ASSERT_EQ(mac.Of(message.substr(begin, size - begin)),
                OpenSslsOf(key, message.substr(0, size)))
          << begin << ' ' << size;
    }
  }
}

}  // namespace
}  // namespace continuo::gateway::openai
