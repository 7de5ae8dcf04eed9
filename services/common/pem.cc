// SPDX-License-Identifier: Apache-2.0
#include "services/common/pem.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

namespace continuo::common {
namespace {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* t) const {
    Free(t);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>>;

// Opens `text`, which outlives the result, for reading.
Bio Open(std::string_view text) {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int>::max())) return nullptr;
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Keeps OpenSSL from asking for a passphrase at the terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

Certificate ReadCertificate(BIO* bio) {
  return Certificate(PEM_read_bio_X509(bio, nullptr, &NoPassphrase, nullptr));
}

Certificate FirstCertificate(std::string_view pem) {
  const Bio bio = Open(pem);
  Certificate certificate = bio == nullptr ? nullptr : ReadCertificate(bio.get());
  ERR_clear_error();
  return certificate;
}

absl::Time ToTime(const ASN1_TIME* time) {
  tm utc = {};
  if (ASN1_TIME_to_tm(time, &utc) != 1) return absl::InfinitePast();
  return absl::FromTM(utc, absl::UTCTimeZone());
}

}  // namespace

absl::Status CheckCertificates(std::string_view pem) {
  const Bio bio = Open(pem);
  if (bio == nullptr) return absl::InvalidArgumentError("is too large");
  int number = 0;
  while (ReadCertificate(bio.get()) != nullptr) ++number;
  // The reader stops at the end of the text, or at a block that it cannot read as a certificate.
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  if (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    return absl::InvalidArgumentError("has a certificate that cannot be read");
  }
  if (number == 0) return absl::InvalidArgumentError("has no certificate in PEM");
  return absl::OkStatus();
}

absl::Status CheckKeyPair(std::string_view certificates, std::string_view key, absl::Time now) {
  const Certificate certificate = FirstCertificate(certificates);
  if (certificate == nullptr) return absl::InvalidArgumentError("there is no certificate in PEM");
  const Bio bio = Open(key);
  const Key private_key(bio == nullptr
                            ? nullptr
                            : PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassphrase, nullptr));
  ERR_clear_error();
  if (private_key == nullptr) {
    return absl::InvalidArgumentError("the key is no private key in PEM without a passphrase");
  }
  const bool match = X509_check_private_key(certificate.get(), private_key.get()) == 1;
  ERR_clear_error();
  if (!match) return absl::InvalidArgumentError("the key is not that of the certificate");
  const absl::Time end = ToTime(X509_get0_notAfter(certificate.get()));
  if (end < now) {
    return absl::InvalidArgumentError("the certificate has expired on " +
                                      absl::FormatTime(end, absl::UTCTimeZone()));
  }
  return absl::OkStatus();
}

absl::Time CertificateEnd(std::string_view certificates) {
  const Certificate certificate = FirstCertificate(certificates);
  if (certificate == nullptr) return absl::InfinitePast();
  return ToTime(X509_get0_notAfter(certificate.get()));
}

CertificateNames NamesOf(std::string_view pem) {
  CertificateNames result;
  const Certificate certificate = FirstCertificate(pem);
  if (certificate == nullptr) return result;
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  ERR_clear_error();
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_DNS && name->type != GEN_URI) continue;
    const ASN1_IA5STRING* text =
        name->type == GEN_DNS ? name->d.dNSName : name->d.uniformResourceIdentifier;
    std::string value(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                      static_cast<size_t>(ASN1_STRING_length(text)));
    if (!std::ranges::all_of(value, [](char c) { return c > 0x20 && c <= 0x7e; })) continue;
    (name->type == GEN_DNS ? result.dns : result.uris).push_back(std::move(value));
  }
  return result;
}

}  // namespace continuo::common
