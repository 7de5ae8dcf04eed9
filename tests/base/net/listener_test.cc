// SPDX-License-Identifier: Apache-2.0
#include "services/base/net/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace continuo {
namespace {

using boost::asio::ip::tcp;
using ::testing::HasSubstr;

bool HasIpv6() {
  boost::asio::io_context context;
  tcp::acceptor acceptor(context);
  boost::system::error_code error;
  acceptor.open(tcp::v6(), error);
  if (!error) acceptor.bind({boost::asio::ip::make_address("::1"), 0}, error);
  return !error;
}

class ListenerTest : public ::testing::Test {
 protected:
  bool Accepts(const std::string& host) {
    tcp::socket socket(context_);
    boost::system::error_code error;
    socket.connect({boost::asio::ip::make_address(host), acceptor_.local_endpoint().port()}, error);
    return !error;
  }

  boost::asio::io_context context_;
  tcp::acceptor acceptor_{context_};
};

TEST_F(ListenerTest, EveryAddressIsThatOfBothFamilies) {
  for (const char* host : {"0.0.0.0", "[::]", "*", ""}) {
    SCOPED_TRACE(host);
    acceptor_ = tcp::acceptor(context_);
    ASSERT_TRUE(Listen(acceptor_, absl::StrCat(host, ":0")).ok());
    EXPECT_TRUE(Accepts("127.0.0.1"));
    EXPECT_EQ(Accepts("::1"), HasIpv6());
  }
}

TEST_F(ListenerTest, AnAddressOfOneFamilyIsThatAlone) {
  ASSERT_TRUE(Listen(acceptor_, "127.0.0.1:0").ok());
  EXPECT_TRUE(Accepts("127.0.0.1"));
  EXPECT_FALSE(Accepts("::1"));
  if (!HasIpv6()) return;
  acceptor_ = tcp::acceptor(context_);
  ASSERT_TRUE(Listen(acceptor_, "[::1]:0").ok());
  EXPECT_FALSE(Accepts("127.0.0.1"));
  EXPECT_TRUE(Accepts("::1"));
}

TEST_F(ListenerTest, APortThatIsTakenIsUnavailable) {
  ASSERT_TRUE(Listen(acceptor_, "0.0.0.0:0").ok());
  for (const char* host : {"0.0.0.0", "127.0.0.1"}) {
    tcp::acceptor second(context_);
    const absl::Status status =
        Listen(second, absl::StrCat(host, ":", acceptor_.local_endpoint().port()));
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("in use"));
  }
}

TEST_F(ListenerTest, OtherTextIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(Listen(acceptor_, "8080")));
  EXPECT_TRUE(absl::IsInvalidArgument(Listen(acceptor_, "unix:/tmp/x")));
  EXPECT_TRUE(absl::IsUnavailable(Listen(acceptor_, "127.0.0.1:http-or-so")));
}

}  // namespace
}  // namespace continuo
