// The binary digits of the position.
//
//   x_i += bits(pos),  channel c holds (pos >> c) & 1
//
// Unique and bounded; the period doubles from channel to channel: the idea of
// the sinusoids, but in jumps. From 7 to 8 four channels flip.
#include "locus/encodings/binary.h"

#include "encodings/common.h"

namespace locus {
namespace {

RowFiller Digits(int64_t bits) {
  return [bits](int64_t position, double* row) {
    if (position < 0 || position >= (int64_t{1} << bits)) {
      Fail("{} binary digits hold positions 0 .. {}, got {}", bits,
           (int64_t{1} << bits) - 1, position);
    }
    for (int64_t c = 0; c < bits; ++c) {
      row[c] = static_cast<double>((position >> c) & 1);
    }
  };
}

}  // namespace

Binary::Binary(int64_t bits, int64_t dim)
    : bits_(bits), dim_(dim == 0 ? bits : dim) {
  if (bits < 1 || bits > 62) {
    Fail("binary digits must number 1 to 62, got {}", bits);
  }
  if (dim_ < bits) Fail("{} binary digits do not fit {} channels", bits, dim_);
}

Lowered Binary::Lower(const Shape& shape) const {
  return LowerInput(shape, dim_, /*widen=*/0, Digits(bits_));
}

Tensor Binary::Embed(std::span<const int64_t> positions) const {
  return FillRows(positions, dim_, Digits(bits_));
}

namespace {

constexpr Field kBinaryFields[] = {
    {.name = "bits", .sentence = "positions lie in [0, 2^bits)"},
    {.name = "dim",
     .fallback = "0",
     .sentence = "channels, zero from bits on; 0: as many as bits"}};
constexpr Field kBinaryOptions[] = {{.name = "bits",
                                     .fallback = "24",
                                     .sentence = "positions lie in [0, 2^bits)",
                                     .slider = {1, 62, 1}}};

}  // namespace

LOCUS_DESCRIPTOR(Binary) = {
    .name = "binary",
    .class_name = "Binary",
    .title = "Binary digits",
    .formula = "x += bits(pos)",
    .summary = "Channel c of E[pos] is bit c of pos, least significant first.",
    .paper = "folklore",
    .models = "none: shown failing",
    .reference = Reference::kAbsolute,
    .trainable = false,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "jumps, and unseen digits past a power of two",
    .picture = Picture::kEmbedding,
    .fields = kBinaryFields,
    .options = kBinaryOptions,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<Binary>(f.Int("bits"), f.Int("dim"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const Binary&>(encoding);
      return {{"bits", e.bits()}, {"dim", e.dim()}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      const int64_t bits = o.Int("bits");
      return {{"bits", bits}, {"dim", std::max(bits, config.head_dim)}};
    },
};

}  // namespace locus
