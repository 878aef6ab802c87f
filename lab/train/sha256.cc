#include "lab/train/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "locus/error.h"

namespace locus::lab {

std::string Sha256(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(),
                 /*impl=*/nullptr) != 1) {
    throw Error("OpenSSL gives no SHA-256");
  }
  std::string digits;
  for (unsigned int i = 0; i < size; ++i) {
    digits += fmt::format("{:02x}", digest[i]);
  }
  return digits;
}

}  // namespace locus::lab
