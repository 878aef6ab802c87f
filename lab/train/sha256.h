// SHA-256 (FIPS 180-4): identifies a corpus or a spec, and protects saved
// states.
#ifndef LOCUS_LAB_TRAIN_SHA256_H_
#define LOCUS_LAB_TRAIN_SHA256_H_

#include <string>
#include <string_view>

namespace locus::lab {

// 64 hexadecimal digits.
std::string Sha256(std::string_view bytes);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_SHA256_H_
