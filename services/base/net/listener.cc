// SPDX-License-Identifier: Apache-2.0
#include "services/base/net/listener.h"

#include <boost/asio/ip/v6_only.hpp>
#include <boost/system/system_error.hpp>

#include "absl/strings/str_cat.h"

namespace continuo {
namespace {

using boost::asio::ip::tcp;

void ListenAt(tcp::acceptor& acceptor, const tcp::endpoint& endpoint, bool both_families) {
  acceptor.open(endpoint.protocol());
  acceptor.set_option(tcp::acceptor::reuse_address(true));
  if (both_families) acceptor.set_option(boost::asio::ip::v6_only(false));
  acceptor.bind(endpoint);
  acceptor.listen();
}

}  // namespace

absl::Status Listen(tcp::acceptor& acceptor, const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.starts_with("unix:")) {
    return absl::InvalidArgumentError(absl::StrCat("\"", address, "\" is not host:port"));
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const bool everywhere = host.empty() || host == "0.0.0.0" || host == "::" || host == "*";
  try {
    tcp::endpoint endpoint = *tcp::resolver(acceptor.get_executor())
                                  .resolve(everywhere ? "0.0.0.0" : host, address.substr(colon + 1),
                                           tcp::resolver::passive)
                                  .begin();
    if (everywhere) {
      try {
        ListenAt(acceptor, tcp::endpoint(tcp::v6(), endpoint.port()), true);
        return absl::OkStatus();
      } catch (const boost::system::system_error& error) {
        boost::system::error_code ignored;
        acceptor.close(ignored);
        // Without IPv6 in the kernel there is no such family, or no such address.
        if (error.code() != boost::asio::error::address_family_not_supported &&
            error.code() != boost::system::errc::address_not_available) {
          throw;
        }
      }
    }
    ListenAt(acceptor, endpoint, false);
  } catch (const boost::system::system_error& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on \"", address, "\": ", error.code().message()));
  }
  return absl::OkStatus();
}

}  // namespace continuo
