// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/http/tls_context.h"

#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>

#include "absl/strings/str_cat.h"

namespace continuo::gateway::openai {
namespace {

namespace ssl = boost::asio::ssl;

constexpr unsigned char kProtocols[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

int SelectProtocol(SSL*, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* offered, unsigned int offered_size, void*) {
  unsigned char* selected;
  if (SSL_select_next_proto(&selected, out_size, kProtocols, sizeof(kProtocols), offered,
                            offered_size) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *out = selected;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

absl::StatusOr<std::shared_ptr<ssl::context>> MakeTlsContext(const TlsPem& pem) {
  try {
    auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
    SSL_CTX* const native = context->native_handle();
    SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
    SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION);
    // A resumed TLS session would keep an earlier certificate.
    SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(native, SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(native, 0);
    SSL_CTX_set_alpn_select_cb(native, &SelectProtocol, nullptr);
    context->use_certificate_chain(boost::asio::buffer(pem.certificates));
    context->use_private_key(boost::asio::buffer(pem.key), ssl::context::pem);
    if (!pem.roots.empty()) {
      context->add_certificate_authority(boost::asio::buffer(pem.roots));
      context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
    }
    return context;
  } catch (const boost::system::system_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the certificate cannot serve HTTP: ", error.code().message()));
  }
}

}  // namespace continuo::gateway::openai
