// The bare index and the index divided by the length: the naive encodings.
#ifndef LOCUS_ENCODINGS_INDEX_H_
#define LOCUS_ENCODINGS_INDEX_H_

#include <optional>

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

// How a scalar position enters x [.., dim]: added to every channel, or appended
// as an extra channel.
enum class ScalarMode : uint8_t { kAdd, kConcatenate };

// E[pos] = pos.
class Index final : public Encoding {
 public:
  // `dim` is the width of x.
  explicit Index(int64_t dim, ScalarMode mode = ScalarMode::kAdd);

  std::string_view Name() const override { return "index"; }
  int64_t dim() const { return dim_; }
  ScalarMode mode() const { return mode_; }
  Lowered Lower(const Shape& shape) const override;
  Tensor Embed(std::span<const int64_t> positions) const override;

 private:
  int64_t dim_;
  ScalarMode mode_;
};

// E[pos] = pos / (length - 1).
class NormalisedIndex final : public Encoding {
 public:
  // Without a length, the last position of the call becomes 1.
  explicit NormalisedIndex(int64_t dim, ScalarMode mode = ScalarMode::kAdd,
                           std::optional<int64_t> length = std::nullopt);

  std::string_view Name() const override { return "normalised-index"; }
  int64_t dim() const { return dim_; }
  ScalarMode mode() const { return mode_; }
  std::optional<int64_t> length() const { return length_; }
  Lowered Lower(const Shape& shape) const override;
  Tensor Embed(std::span<const int64_t> positions) const override;

 private:
  double Step(int64_t last_position) const;

  int64_t dim_;
  ScalarMode mode_;
  std::optional<int64_t> length_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_INDEX_H_
