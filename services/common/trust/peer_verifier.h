// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/security/tls_certificate_verifier.h>

#include <memory>

#include "services/common/trust/peer_names.h"

namespace continuo::common {

// Takes a server whose certificate has one of the names, whatever its address; that the certificate
// is of the CA has been checked before. For ReloadedTls::ForChannel.
std::shared_ptr<grpc::experimental::CertificateVerifier> MakePeerVerifier(PeerNames names);

}  // namespace continuo::common
