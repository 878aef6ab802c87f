#include "ring/cli/operands.h"

#include <utility>

namespace locus::ring {
namespace {

// Numbers for tokens, `heads` x `dim` each, f32.
Tensor Rows(Case c, Kind kind, int64_t heads, int64_t dim,
            const std::vector<Chunk>& chunks) {
  c.dim = dim;
  c.dtype = DType::kF32;
  return Numbers(c, kind, heads, chunks);
}

Tensor Reshaped(const Tensor& x, std::vector<int64_t> shape) {
  return Tensor::Borrow(x.dtype(), std::move(shape), {}, x.Raw(),
                        std::make_shared<Tensor>(x));
}

}  // namespace

CaseOperands::CaseOperands(const Case& c, const std::vector<Chunk>& chunks)
    : prefix_({c.length / 8}), dropout_({.rate = 0.1, .seed = c.seed}) {
  sinks_ =
      Reshaped(Rows(c, Kind::kSinks, c.heads, 1, {{.count = 1}}), {c.heads});
  const Tensor keys = Rows(c, Kind::kKeyBias, c.heads, 1, chunks);
  const int64_t tokens = keys.size(2);
  key_bias_ = Reshaped(keys, {1, c.heads, tokens});
  pair_bias_ = Rows(c, Kind::kPairBias, c.heads, c.length, chunks);
  // Uniform on [-sqrt(3), sqrt(3)): one pair in six is hidden.
  for (double x : Rows(c, Kind::kMask, 1, c.length, chunks).ToVector()) {
    mask_.push_back(x > -1.1547005 ? 1 : 0);
  }
  mask_.push_back(0);  // a rank without tokens has a mask as well
  tokens_ = tokens;
  length_ = c.length;
}

void CaseOperands::AddTo(AttentionOptions& options) const {
  options.prefix_lengths = prefix_;
  options.mask = {.data = mask_.data(),
                  .shape = {1, 1, tokens_, length_},
                  .strides = {0, 0, length_, 1}};
  options.key_bias = key_bias_;
  options.pair_bias = pair_bias_;
  options.sinks = sinks_;
  options.dropout = dropout_;
}

}  // namespace locus::ring
