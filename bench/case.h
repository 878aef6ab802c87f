// A call of attention with one encoding, ready to be run and timed.
#ifndef LOCUS_BENCH_CASE_H_
#define LOCUS_BENCH_CASE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/operands.h"
#include "locus/attention.h"
#include "locus/descriptor.h"
#include "locus/tensor.h"

namespace locus::bench {

enum class Direction : uint8_t { kForward, kBackward };

inline std::string_view DirectionName(Direction direction) {
  return direction == Direction::kForward ? "forward" : "backward";
}

// Self-attention on [1, heads, length, dim] in `dtype`.
struct CallSpec {
  std::string encoding = "none";
  std::string operand =
      {};  // of OperandNames, beside the encoding; empty: none
  DType dtype = DType::kF32;
  bool causal = false;
  int64_t heads = 16;
  int64_t length = 2048;
  int64_t dim = 64;
  int threads = 0;  // 0: all of the machine's

  // Of plain attention: forward 4 L^2 D H (q.k and p.v, a multiply and an add
  // each), backward 10 L^2 D H (five such products); causal sees half.
  double Operations(Direction direction) const;
  // What it is called in a table.
  const std::string& Name() const {
    return operand.empty() ? encoding : operand;
  }
  // Of q, which k, v and the output share.
  int64_t QBytes() const { return heads * length * dim * DTypeBytes(dtype); }
};

class Case {
 public:
  // Random inputs, and the encoding's example lowered for the call. Throws
  // Error for an encoding that the list does not have or that cannot serve.
  explicit Case(const CallSpec& spec);
  Case(const Case&) = delete;  // options_ points into members
  Case& operator=(const Case&) = delete;

  const CallSpec& spec() const { return spec_; }

  // Seconds of one call. The first one is slow: fresh memory, sleeping threads.
  double Time(Direction direction);

  // One call; the bytes of the tensors that it returned.
  int64_t OutputBytes(Direction direction);
  // Gives the backward pass made-up results of a forward pass: its memory does
  // not depend on them, and a real pass would leave scratch memory behind.
  void MakeUpForward();

  // The largest difference from the float64 reference over the largest value,
  // of the output or of the worst gradient, tables included. O(length^2).
  double Error(Direction direction);

 private:
  const AttentionResult& Forward();

  CallSpec spec_;
  Tensor q_, k_, v_, d_out_;
  std::vector<int64_t> positions_;
  Operands operands_;
  AttentionOptions options_;
  BackwardOptions backward_;
  Terms terms_;
  std::optional<AttentionResult> forward_;
};

// The names of the list that act in attention, plain first. Encodings of the
// input are not among them: to attention they are plain.
std::vector<std::string> AttentionEncodings();

// Case(spec).Error(direction) at a length that the reference can afford.
double ShortError(CallSpec spec, Direction direction);
// That length, for a call of `length`: odd, so that no tile is whole.
int64_t ShortLength(int64_t length);

// The encoding's example, with the sizes of real models: Shaw's clip of 128,
// DeBERTa's 256 buckets.
std::unique_ptr<Encoding> MakeEncoding(const std::string& name, int64_t heads,
                                       int64_t dim, int64_t length);
// Positions of tokens 0 .. length - 1 where these are not the indices (M-RoPE),
// else nothing.
std::vector<int64_t> PositionsFor(const std::string& name, int64_t length);

// max |exact - fused| / max |exact|.
double RelativeError(const Tensor& exact, const Tensor& fused);

// Roughly normal numbers, the same for the same seed.
Tensor RandomInput(DType dtype, std::vector<int64_t> shape, uint64_t seed);

}  // namespace locus::bench

#endif  // LOCUS_BENCH_CASE_H_
