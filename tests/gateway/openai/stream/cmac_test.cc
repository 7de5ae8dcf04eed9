// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/cmac.h"

#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>

#include <random>

#include "absl/strings/escaping.h"

namespace continuo::gateway::openai {
namespace {

using Key = std::array<uint8_t, 32>;

std::string HexOf(const Cmac::Tag& tag) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(tag.data()), tag.size()));
}

Cmac::Tag OpenSslsOf(const Key& key, const std::string& message) {
  EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "CMAC", nullptr);
  EVP_MAC_CTX* const context = EVP_MAC_CTX_new(mac);
  EVP_MAC_free(mac);
  std::string cipher = "AES-256-CBC";
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, cipher.data(), cipher.size()),
      OSSL_PARAM_construct_end()};
  Cmac::Tag tag = {};
  size_t size = 0;
  EXPECT_EQ(EVP_MAC_init(context, key.data(), key.size(), params), 1);
  EXPECT_EQ(EVP_MAC_update(context, reinterpret_cast<const unsigned char*>(message.data()),
                           message.size()),
            1);
  EXPECT_EQ(EVP_MAC_final(context, tag.data(), &size, tag.size()), 1);
  EVP_MAC_CTX_free(context);
  return tag;
}

TEST(CmacTest, TheExamplesOfTheStandard) {
  // SP 800-38B, D.3.
  const std::string key_bytes =
      absl::HexStringToBytes("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
  Key key;
  std::copy(key_bytes.begin(), key_bytes.end(), key.begin());
  const std::string message = absl::HexStringToBytes(
      "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
      "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710");
  Cmac cmac(key);
  EXPECT_EQ(HexOf(cmac.Of("")), "028962f61b7bf89efc6b551f4667d983");
  EXPECT_EQ(HexOf(cmac.Of(message.substr(0, 16))), "28a7023f452e8f82bd4bf28d8c37c35c");
  EXPECT_EQ(HexOf(cmac.Of(message.substr(0, 40))), "aaf3d8f1de5640c232f5b169b9c911e6");
  EXPECT_EQ(HexOf(cmac.Of(message)), "e1992190549f6ed5696a2c056c315410");
}

TEST(CmacTest, IsOpenSslsForEverySizeAndAnyKey) {
  std::mt19937 random(1);
  for (int round = 0; round < 8; ++round) {
    Key key;
    for (uint8_t& byte : key) byte = static_cast<uint8_t>(random());
    Cmac cmac(key);
    for (size_t size = 0; size < 100; ++size) {
      std::string message(size, '\0');
      for (char& byte : message) byte = static_cast<char>(random());
      ASSERT_EQ(cmac.Of(message), OpenSslsOf(key, message)) << size;
    }
  }
}

TEST(CmacTest, ABeginThatIsSetCountsAsTheMessagesFirstBlocks) {
  const Key key = {1, 2, 3};
  std::string message(70, '\0');
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<char>(i);
  Cmac cmac(key);
  for (const size_t begin : {48, 16, 32, 0}) {
    cmac.SetBegin(message.substr(0, begin));
    for (size_t size = begin + 1; size <= message.size(); ++size) {
      ASSERT_EQ(cmac.Of(message.substr(begin, size - begin)),
                OpenSslsOf(key, message.substr(0, size)))
          << begin << ' ' << size;
    }
  }
}

}  // namespace
}  // namespace continuo::gateway::openai
