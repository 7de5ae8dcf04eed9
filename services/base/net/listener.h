// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>

#include "absl/status/status.h"

namespace continuo {

// Opens, binds and listens at HOST:PORT or [HOST]:PORT. 0.0.0.0, [::], * and an empty host are
// every address of both families, as gRPC has it; without IPv6 in the kernel those of IPv4.
// InvalidArgument for other text, Unavailable with the system's reason where it cannot listen.
absl::Status Listen(boost::asio::ip::tcp::acceptor& acceptor, const std::string& address);

}  // namespace continuo
