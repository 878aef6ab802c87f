// Every encoding of the list on small calls: instances, positions, and
// attention with encodings of the input applied to q and k.
#ifndef LOCUS_TESTS_REFERENCE_ENCODING_CALLS_H_
#define LOCUS_TESTS_REFERENCE_ENCODING_CALLS_H_

#include "locus/locus.h"
#include "support/tensors.h"

namespace locus::testing {

inline constexpr int64_t kHeads = 4, kDim = 8, kLength = 16, kWidth = 4;

inline std::unique_ptr<Encoding> MakeExample(const EncodingInfo& info) {
  ExampleConfig config{.heads = kHeads, .head_dim = kDim, .length = kLength};
  if (info.name == "rope-2d" || info.name == "rope-mixed")
    config.options["width"] = std::to_string(kWidth);
  return info.example(config);
}

// Class names in the list, all of them or those of one kind: test parameters.
inline std::vector<std::string> ClassNames(
    std::optional<Reference> reference = {}) {
  std::vector<std::string> names;
  for (const EncodingInfo& info : Encodings()) {
    if (!reference || info.reference == *reference) {
      names.emplace_back(info.class_name);
    }
  }
  return names;
}

// Position of token i: a raster index for 2-D encodings (which is i itself); a
// time, row and column for M-RoPE.
inline int64_t PositionOf(const EncodingInfo& info, int64_t i) {
  return info.name == "mrope" ? PackPosition(i, i / kWidth, i % kWidth) : i;
}

inline std::vector<int64_t> PositionsOf(const EncodingInfo& info, int64_t begin,
                                        int64_t end) {
  std::vector<int64_t> positions;
  for (int64_t i = begin; i < end; ++i) {
    positions.push_back(PositionOf(info, i));
  }
  return positions;
}

// Tokens of one or more sequences, [1, heads, length, dim] each.
struct Tokens {
  Tensor q = {}, k = {}, v = {};

  static Tokens Random(int64_t length, uint64_t seed) {
    return {RandomTensor({1, kHeads, length, kDim}, seed),
            RandomTensor({1, kHeads / 2, length, kDim}, seed + 1),
            RandomTensor({1, kHeads / 2, length, kDim}, seed + 2)};
  }
};

// Tokens `begin` .. `end` - 1 of x [1, H, L, D].
inline Tensor Slice(const Tensor& x, int64_t begin, int64_t end) {
  std::vector<double> out;
  for (int64_t h = 0; h < x.size(1); ++h) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t d = 0; d < x.size(3); ++d) out.push_back(x.At(0, h, i, d));
    }
  }
  return Tensor::From({1, x.size(1), end - begin, x.size(3)}, std::move(out));
}

// x + E[pos] on every head: an encoding of the input with W = 1.
inline Tensor AddRows(const Tensor& x, const Tensor& rows) {
  Tensor out = Tensor::From(x.shape(), x.ToVector());
  double* data = out.MutableData<double>();
  for (int64_t h = 0; h < x.size(1); ++h) {
    for (int64_t i = 0; i < x.size(2); ++i) {
      for (int64_t d = 0; d < x.size(3); ++d) *data++ += rows.At(i, d);
    }
  }
  return out;
}

// Attention with the encoding wherever it acts. The rows of an input encoding
// come from its term for positions 0 .. kLength - 1, so that the index over the
// length uses the same length in every call.
inline reference::Forward Attend(const Encoding& encoding, const Tokens& tokens,
                                 const AttentionOptions& options) {
  const Terms whole =
      encoding.Lower(Shape::SelfAttention(kHeads, kDim, kLength)).terms;
  if (!whole.input_add) {
    return reference::Attention(tokens.q, tokens.k, tokens.v, encoding,
                                options);
  }
  const auto rows = [&](std::span<const int64_t> positions) {
    std::vector<double> out;
    for (int64_t p : positions) {
      for (int64_t d = 0; d < kDim; ++d) {
        out.push_back(
            whole.input_add->table.At(p - whole.input_add->first_position, d));
      }
    }
    return Tensor::From({static_cast<int64_t>(positions.size()), kDim},
                        std::move(out));
  };
  return reference::Attention(AddRows(tokens.q, rows(options.q_positions)),
                              AddRows(tokens.k, rows(options.k_positions)),
                              tokens.v, encoding, options);
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_REFERENCE_ENCODING_CALLS_H_
