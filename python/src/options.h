// The keywords that every attention call shares.
#ifndef LOCUS_PYTHON_SRC_OPTIONS_H_
#define LOCUS_PYTHON_SRC_OPTIONS_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "arrays.h"
#include "locus/attention.h"
#include "locus/encoding.h"
#include "locus/models.h"
#include "signature.h"

namespace locus::python {

namespace nb = nanobind;

// Options with the memory of their spans.
class Options {
 public:
  // From the keywords that the function has; the others stay as they are by
  // default. q and k give the sizes that positions are held to.
  Options(const Arguments& a, const Tensor& q, const Tensor& k);
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  AttentionOptions options;

 private:
  // What the caller leaves out, a layer of a model says: scale, window, cap.
  void FillIn(const models::LayerPosition& layer);
  void ReadSeed(const Arguments& a);

  std::vector<int64_t> q_positions_, k_positions_, key_lengths_;
  std::vector<int64_t> q_segments_, k_segments_, prefix_lengths_;
  // What the options' tensors and mask borrow.
  std::vector<Borrowed> operands_;
  std::optional<BorrowedMask> mask_;
};

// The keywords of a call that say what a query sees and what joins its scores,
// as they stand in a signature.
inline constexpr const char* kMaskKeywords =
    "scale: float | None = None, window: int | tuple[int, int] | None = None, "
    "chunk: int | None = None, softcap: float | None = None, ";
inline constexpr const char* kOperandKeywords =
    "mask: Any | None = None, prefix_lengths: Any | None = None, key_bias: Any "
    "| None = None, pair_bias: Any | None = None, sinks: Any | None = None, "
    "table_queries: Any | None = None, ";

// (out, lse, weights), of these what there is; out alone not as a tuple.
nb::object ResultOf(const AttentionResult& result, nb::handle like);

// int w: offsets m - n below w, and above -w unless causal. (left, right):
// -right <= m - n <= left.
std::optional<Window> WindowOf(nb::handle window, bool causal);

// None is no position; a LayerPosition has its encoding.
const Encoding& EncodingOf(nb::handle encoding);

// The encoding of a LayerPosition, and what its config says; null if it is
// something else.
const Encoding* EncodingOfModel(nb::handle object);
const models::LayerPosition* LayerOfModel(nb::handle object);

// The encoding lowered for the rotation of tokens x [B, H, L, D] at these
// positions (empty: 0 .. L - 1); refuses those that do not rotate.
Rotation RotationOf(const Encoding& encoding, const Tensor& x,
                    const std::vector<int64_t>& positions);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_OPTIONS_H_
