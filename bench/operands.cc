#include "bench/operands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "bench/case.h"
#include "locus/encodings/rope.h"
#include "locus/error.h"

namespace locus::bench {
namespace {

struct Call {
  int64_t heads = 0, length = 0, dim = 0;
  AttentionOptions& options;
  Terms& terms;
  BackwardOptions& backward;
  std::vector<uint8_t>& mask;
  std::vector<int64_t>& prefix;
};

struct Operand {
  std::string_view name;
  void (*add)(Call& call);
};

Tensor Random(std::vector<int64_t> shape) {
  return RandomInput(DType::kF32, std::move(shape), /*seed=*/5);
}

// Long calls share one bias among their heads: N x N numbers for each would not
// fit.
Tensor PairBias(const Call& c) {
  return Random({1, c.length > 4096 ? 1 : c.heads, c.length, c.length});
}

constexpr Operand kOperands[] = {
    {"query-scale",
     [](Call& c) {
       // Llama 4's, with a range in which it changes.
       std::vector<float> rows;
       for (int64_t i = 0; i < c.length; ++i) {
         const int64_t step = i / 64;
         rows.push_back(1.0F + 0.1F * std::log1p(static_cast<float>(step)));
       }
       c.terms.scale.rows = Tensor::From({1, c.length}, std::move(rows));
     }},
    {"rotate-values",
     [](Call& c) {
       const Rope rope(c.dim, PairLayout::kHalves);
       c.terms.rotate_values = ValueRotation{
           .rotation = *rope.Lower(Shape::SelfAttention(c.heads, c.dim, 1))
                            .terms.rotate};
     }},
    {"key-bias",
     [](Call& c) {
       c.options.key_bias = Random({1, c.heads, c.length});
     }},
    {"pair-bias", [](Call& c) { c.options.pair_bias = PairBias(c); }},
    {"pair-bias-trained",
     [](Call& c) {
       c.options.pair_bias = PairBias(c);
       c.backward.pair_bias = true;
     }},
    {"sinks", [](Call& c) { c.options.sinks = Random({c.heads}); }},
    // The same as the causal option, pair by pair; else every pair.
    {"mask",
     [](Call& c) {
       const auto n = static_cast<size_t>(c.length);
       c.mask.assign(n * n, 1);
       for (size_t i = 0; c.options.causal && i < n; ++i) {
         for (size_t j = i + 1; j < n; ++j) c.mask[i * n + j] = 0;
       }
       c.options.causal = false;
       c.options.mask = {.data = c.mask.data(),
                         .shape = {1, 1, c.length, c.length},
                         .strides = {0, 0, c.length, 1}};
     }},
    {"prefix",
     [](Call& c) {
       c.prefix = {c.length / 8};
       c.options.prefix_lengths = c.prefix;
     }},
    {"chunk", [](Call& c) { c.options.chunk = c.length; }},
    {"dropout", [](Call& c) { c.options.dropout = {.rate = 0.1, .seed = 7}; }},
};

}  // namespace

std::vector<std::string_view> OperandNames() {
  std::vector<std::string_view> names;
  for (const Operand& each : kOperands) names.push_back(each.name);
  return names;
}

std::string_view FindOperand(std::string_view name) {
  for (const Operand& each : kOperands) {
    if (each.name == name) return each.name;
  }
  throw Error(fmt::format("no operand is called '{}'; known values: {}", name,
                          fmt::join(OperandNames(), ", ")));
}

void Operands::Add(std::string_view name, int64_t heads, int64_t length,
                   int64_t dim, AttentionOptions& options, Terms& terms,
                   BackwardOptions& backward) {
  Call call{heads, length, dim, options, terms, backward, mask_, prefix_};
  for (const Operand& each : kOperands) {
    if (each.name == name) each.add(call);
  }
}

}  // namespace locus::bench
