#include "models/relative_keys.h"

#include "locus/encodings/transformer_xl.h"
#include "models/project.h"

namespace locus::models {
namespace {

// Reorders columns for alternating sines and cosines to [sin, cos] halves.
Tensor SinesFirst(const Tensor& w, int64_t width) {
  const std::vector<double> from = w.ToVector();
  Tensor sorted = Tensor::Zeros(
      DType::kF64, {static_cast<int64_t>(from.size()) / width, width});
  double* to = sorted.MutableData<double>();
  for (size_t row = 0; row < from.size(); row += static_cast<size_t>(width)) {
    for (int64_t c = 0; c < width; ++c) {
      to[row + static_cast<size_t>(c % 2 * (width / 2) + c / 2)] =
          from[row + static_cast<size_t>(c)];
    }
  }
  return sorted;
}

}  // namespace

Scheme XlScheme(const XlTables& t, std::string words) {
  Scheme scheme;
  scheme.name = "transformer-xl";
  scheme.words = std::move(words);
  scheme.tensors = {t.w, t.u, t.v};
  scheme.build = [t](const TensorLookup& find) {
    Tensor w = find(t.w);
    if (t.w_is_transposed) w = w.Transposed(0, 1).Transposed(1, 2);
    if (t.interleaved) w = SinesFirst(w, t.model_dim);
    const Tensor r = RelativeKeys(
        {.w = w, .heads = t.heads, .dim = t.dim, .model_dim = t.model_dim},
        t.reach, t.clamp);
    return std::make_shared<TransformerXL>(
        r, WithShape(find(t.u), {t.heads, t.dim}),
        WithShape(find(t.v), {t.heads, t.dim}));
  };
  return scheme;
}

int64_t Reach(Reader& r, int64_t trained) {
  const int64_t reach = r.options.length != 0 ? r.options.length : trained;
  // A row has heads x D numbers; this many rows exceed any trained length.
  constexpr int64_t kMostReach = int64_t{1} << 20;
  if (reach < 1 || reach > kMostReach) {
    Fail("a table of relative keys must serve 1 .. {} positions, got {}",
         kMostReach, reach);
  }
  return reach;
}

}  // namespace locus::models
